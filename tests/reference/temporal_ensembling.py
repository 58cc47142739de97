"""Algorithm 2 of Laine and Aila: predictions of an epoch are collected, and join the ensemble when it is over."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot, softmax
from reference.descent import Descent


def weight_at(epoch: int, weight: float, ramp_epochs: float) -> float:
    """w(t), t counted from 0: nothing in the first epoch, then exp(-5 (1 - t/L)^2) until L."""
    if epoch == 0:
        return 0.0
    return weight * (math.exp(-5.0 * (1.0 - epoch / ramp_epochs) ** 2) if epoch < ramp_epochs else 1.0)


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    epochs: Sequence[Sequence[Sequence[int]]],  # epochs[t] = batches of rows
    num_classes: int,
    *,
    weight: float,
    alpha: float,
    ramp_epochs: float,
    **optim: float,
) -> Trajectory:
    """``out.targets`` has the ensemble Z and the corrected targets after each epoch."""
    descent, out = Descent(net, **optim), Trajectory()
    net.train()
    ensemble = [[0.0] * num_classes for _ in x]
    targets = [[0.0] * num_classes for _ in x]
    for epoch, batches in enumerate(epochs):
        collected: dict[int, list[float]] = {}
        w = weight_at(epoch, weight, ramp_epochs)
        for rows in batches:
            loss = torch.zeros((), dtype=x.dtype)
            for z, i in zip(net(x[list(rows)]), rows, strict=True):
                p = softmax(z)
                collected[i] = [p_c.item() for p_c in p]
                distance = sum((p_c - t_c) ** 2 for p_c, t_c in zip(p, targets[i], strict=True)) / num_classes
                loss = loss + (cross_entropy(z, one_hot(int(y[i]), num_classes)) + w * distance) / len(rows)
            descent.update(loss)
            out.loss.append(loss.item())
            out.weights.append([v.detach().clone() for v in net.parameters()])
        for i in range(len(x)):
            for c in range(num_classes):
                ensemble[i][c] = alpha * ensemble[i][c] + (1.0 - alpha) * collected[i][c]
                targets[i][c] = ensemble[i][c] / (1.0 - alpha ** (epoch + 1))
        out.targets.append([torch.tensor(ensemble), torch.tensor(targets)])
    return out
