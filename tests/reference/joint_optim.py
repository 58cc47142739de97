"""Joint optimisation (Tanaka et al. 2018), one example and one class at a time.

First step: CE to the labels + alpha L_p + beta L_e at a constant learning rate; predictions of each epoch are kept as
they were made, and from the end of epoch ``start`` on labels are their mean over the last ``window`` epochs.
Second step: another network, cross entropy only.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot, softmax
from reference.descent import Descent


def entropy(p: Sequence[Tensor]) -> Tensor:
    return -sum(p_c * torch.log(p_c) for p_c in p)


def prior_term(predictions: Sequence[Sequence[Tensor]]) -> Tensor:
    """sum_c pi_c log(pi_c / mean p_c), pi uniform."""
    num_classes = len(predictions[0])
    total = 0.0
    for c in range(num_classes):
        mean = sum(p[c] for p in predictions) / len(predictions)
        total = total + torch.log((1.0 / num_classes) / mean) / num_classes
    return total


def train(
    nets: Sequence[nn.Module],  # of the two steps
    x: Tensor,
    y: Tensor,
    steps: Sequence[Sequence[Sequence[Sequence[int]]]],  # steps[s][epoch] = batches
    num_classes: int,
    *,
    alpha: float,
    beta: float,
    start: int,
    window: int,
    hard: bool,
    second_lr: float,
    lr: float,
    **optim: float,
) -> Trajectory:
    out = Trajectory()
    recent = [torch.zeros(len(x), num_classes) for _ in range(window)]  # float32, as a memory of n x C numbers is
    labels = torch.zeros(len(x), num_classes)
    for s, epochs in enumerate(steps):
        net = nets[s].train()
        descent = Descent(net, lr=lr * (second_lr if s else 1.0), **optim)
        for epoch, batches in enumerate(epochs):
            for batch in batches:
                logits = net(x[list(batch)])
                predictions = [softmax(z) for z in logits]
                loss = torch.zeros((), dtype=x.dtype)
                for z, p, i in zip(logits, predictions, batch, strict=True):
                    if s == 0 and epoch < start:
                        label = one_hot(int(y[i]), num_classes)
                    elif hard:
                        label = one_hot(int(labels[i].argmax()), num_classes)
                    else:
                        label = labels[i].tolist()
                    loss = loss + cross_entropy(z, label) / len(batch)
                    if s == 0:
                        loss = loss + beta * entropy(p) / len(batch)
                        recent[epoch % window][i] = torch.tensor([p_c.item() for p_c in p])
                if s == 0:
                    loss = loss + alpha * prior_term(predictions)
                descent.update(loss)
                out.loss.append(loss.item())
                out.targets.append([torch.cat(recent, dim=1), labels.clone()])
                out.weights.append([w.detach().clone() for w in net.parameters()])
            if s == 0 and epoch + 1 >= start:
                known = min(epoch + 1, window)
                for i in range(len(x)):
                    for c in range(num_classes):
                        labels[i, c] = sum(recent[k][i, c] for k in range(known)) / known
    return out
