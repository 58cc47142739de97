"""PENCIL (Yi and Wu 2019): the loss of a batch as printed, label logits moved by its gradient as autograd finds it."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot, softmax
from reference.descent import Descent

BATCH, EPOCHS = 128, 130  # of the authors, for whom lam was chosen


def divergence(f: Sequence[Tensor], d: Sequence[Tensor]) -> Tensor:
    """KL(f || d)."""
    return sum(f_c * (torch.log(f_c) - torch.log(d_c)) for f_c, d_c in zip(f, d, strict=True))


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    stages: Sequence[Sequence[Sequence[Sequence[int]]]],  # stages[s][epoch] = batches
    num_classes: int,
    *,
    alpha: float,
    beta: float,
    lam: float,
    sharpness: float,
    double_softmax: bool,
    last_lr: float,
    lr: float,
    **optim: float,
) -> Trajectory:
    out, descent = Trajectory(), Descent(net.train(), lr=lr, **optim)
    labels = torch.zeros(len(x), num_classes)  # float32, as a memory of n x C numbers is
    for s, epochs in enumerate(stages):
        descent.lr = lr * (last_lr if s == 2 else 1.0)
        for batches in epochs:
            for batch in batches:
                logits = net(x[list(batch)])
                rows = [labels[i].double().requires_grad_() for i in batch]
                loss = torch.zeros((), dtype=x.dtype)
                for z, row, i in zip(logits, rows, batch, strict=True):
                    if s == 0:
                        loss = loss + cross_entropy(z, one_hot(int(y[i]), num_classes)) / len(batch)
                        continue
                    f, d = softmax(z), softmax(row)
                    loss = loss + divergence(f, d) / num_classes / len(batch)
                    if s == 1:
                        held = cross_entropy(torch.stack(d), one_hot(int(y[i]), num_classes))
                        loss = loss + alpha * (held if double_softmax else -torch.log(d[int(y[i])])) / len(batch)
                        loss = loss - beta * sum(f_c * torch.log(f_c) for f_c in f) / num_classes / len(batch)
                if s == 1:
                    gradients = torch.autograd.grad(loss, rows, retain_graph=True)
                descent.update(loss)
                if s == 1:
                    # The mean over the batch has divided the gradient by its size; the authors' is 128.
                    step = lam * len(batch) / BATCH * EPOCHS / len(epochs)
                    for i, row, gradient in zip(batch, rows, gradients, strict=True):
                        labels[i] = (row.detach() - step * gradient).float()
                out.loss.append(loss.item())
                out.targets.append([labels.clone()])
                out.weights.append([w.detach().clone() for w in net.parameters()])
        if s == 0:
            for i in range(len(x)):
                labels[i] = torch.tensor([sharpness * value for value in one_hot(int(y[i]), num_classes)])
    return out
