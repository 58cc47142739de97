"""Cross entropy, Eq. (4), one example and one class at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from reference.descent import Descent


@dataclass
class Trajectory:
    """What is compared after every update."""

    loss: list[float] = field(default_factory=list)
    targets: list[list[Tensor]] = field(default_factory=list)  # per network
    weights: list[list[Tensor]] = field(default_factory=list)
    averages: list[list[Tensor]] = field(default_factory=list)  # averaged weights, per network
    statistics: list[list[Tensor]] = field(default_factory=list)  # batch-norm buffers of networks, then of averages


def softmax(z: Tensor) -> list[Tensor]:
    """Eq. (3) for one example."""
    e = [torch.exp(z_c - z.max().detach()) for z_c in z]
    return [e_c / sum(e) for e_c in e]


def cross_entropy(z: Tensor, y: Sequence[float]) -> Tensor:
    """- sum_c y_c log p_c for one example; classes the label does not name cost nothing."""
    p = softmax(z)
    return -sum(y_c * torch.log(p_c) for y_c, p_c in zip(y, p, strict=True) if y_c != 0)


def one_hot(label: int, num_classes: int) -> list[float]:
    return [1.0 if c == label else 0.0 for c in range(num_classes)]


def train(
    net: nn.Module, x: Tensor, y: Tensor, batches: Sequence[Sequence[int]], num_classes: int, **optim: float
) -> Trajectory:
    """Plain training on noisy labels."""
    descent, out = Descent(net, **optim), Trajectory()
    net.train()
    for batch in batches:
        logits = net(x[list(batch)])
        loss = torch.zeros((), dtype=x.dtype)
        for z, i in zip(logits, batch, strict=True):
            loss = loss + cross_entropy(z, one_hot(int(y[i]), num_classes)) / len(batch)
        descent.update(loss)
        out.loss.append(loss.item())
        out.weights.append([w.detach().clone() for w in net.parameters()])
    return out
