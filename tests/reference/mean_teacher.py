"""Mean teacher: the student descends, the teacher's weights follow, each sees a view of its own."""

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot, softmax
from reference.descent import Descent


def distance(p: Sequence[Tensor], taught: Sequence[Tensor], kind: str) -> Tensor:
    """Squared difference over C, or the divergence KL(taught || p), of one example."""
    if kind == "mse":
        return sum((p_c - t_c) ** 2 for p_c, t_c in zip(p, taught, strict=True)) / len(p)
    return sum(t_c * (torch.log(t_c) - torch.log(p_c)) for p_c, t_c in zip(p, taught, strict=True))


def train(
    net: nn.Module,
    y: Tensor,
    epochs: Sequence[Sequence[tuple[list[int], Tensor, Tensor]]],  # epochs[t] = (rows, student's x, teacher's x)
    num_classes: int,
    *,
    weight: float,
    gamma: float,
    kind: str,
    ramp_epochs: float,
    **optim: float,
) -> Trajectory:
    """The teacher normalises by its batch, and gathers running statistics from what it sees itself."""
    descent, out = Descent(net, **optim), Trajectory()
    teacher = copy.deepcopy(net).requires_grad_(False)
    net.train()
    teacher.train()
    step = 0
    for epoch, batches in enumerate(epochs):
        w = weight * (math.exp(-5.0 * (1.0 - epoch / ramp_epochs) ** 2) if epoch < ramp_epochs else 1.0)
        for rows, x, view in batches:
            taught = teacher(view)
            loss = torch.zeros((), dtype=x.dtype)
            for z, z_taught, i in zip(net(x), taught, rows, strict=True):
                loss = loss + cross_entropy(z, one_hot(int(y[i]), num_classes)) / len(rows)
                loss = loss + w * distance(softmax(z), softmax(z_taught), kind) / len(rows)
            descent.update(loss)
            step += 1
            memory = min(1.0 - 1.0 / (step + 1), gamma)
            for mean, value in zip(teacher.parameters(), net.parameters(), strict=True):
                mean.copy_(memory * mean + (1.0 - memory) * value.detach())
            out.loss.append(loss.item())
            out.weights.append([value.detach().clone() for value in net.parameters()])
            out.averages.append([value.clone() for value in teacher.parameters()])
            out.statistics.append([b.clone() for network in (net, teacher) for b in network.buffers()])
    return out
