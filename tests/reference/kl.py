"""Section C: cross entropy minus lambda times the targets' log-likelihood, targets as in Algorithm 1."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot, softmax
from reference.descent import Descent
from reference.elr import new_target


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    batches: Sequence[Sequence[int]],
    num_classes: int,
    *,
    lam: float,
    beta: float,
    recorded: Sequence[Sequence[Tensor]] | None = None,
    **optim: float,
) -> Trajectory:
    """Eq. (17) minimised by stochastic gradient descent; with ``recorded``, each step goes on from those targets."""
    descent, out = Descent(net, **optim), Trajectory()
    net.train()
    targets = torch.zeros(len(x), num_classes, dtype=torch.float32)
    for k, batch in enumerate(batches):
        logits = net(x[list(batch)])
        for z, i in zip(logits.detach(), batch, strict=True):
            targets[i] = torch.tensor(new_target(targets[i].tolist(), [p_c.item() for p_c in softmax(z)], beta))
        out.targets.append([targets.clone()])
        if recorded is not None:
            targets = recorded[k][0].clone()
        loss = torch.zeros((), dtype=x.dtype)
        for z, i in zip(logits, batch, strict=True):
            loss = loss + cross_entropy(z, one_hot(int(y[i]), num_classes)) / len(batch)
            loss = loss + lam / len(batch) * cross_entropy(z, targets[i].tolist())
        descent.update(loss)
        out.loss.append(loss.item())
        out.weights.append([w.detach().clone() for w in net.parameters()])
    return out
