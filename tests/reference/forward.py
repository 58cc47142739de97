"""Patrini et al. 2017, Algorithm 1: cross entropy, anchors, then a fresh network with the forward-corrected loss."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from reference import ce
from reference.ce import Trajectory, softmax
from reference.descent import Descent


def anchors(p: Sequence[Sequence[float]], percentile: float) -> list[list[float]]:
    """Row i: the prediction for the example with the largest p_i among those below the percentile of p_i."""
    num_classes, matrix = len(p[0]), []
    for i in range(num_classes):
        column = sorted(row[i] for row in p)
        bound = math.inf
        if percentile < 100:
            bound = column[math.ceil(percentile / 100 * (len(p) - 1))]  # the higher of two neighbours
        below = [row for row in p if row[i] < bound] or list(p)
        best = below[0]
        for row in below:
            if row[i] > best[i]:
                best = row
        matrix.append([value / sum(best) for value in best])
    return matrix


def predictions(net: nn.Module, x: Tensor) -> list[list[float]]:
    """p of every row in evaluation mode."""
    net.eval()
    with torch.no_grad():
        return [[float(value) for value in softmax(z)] for z in net(x)]


def forward_loss(z: Tensor, y: int, matrix: Sequence[Sequence[float]]) -> Tensor:
    """-log of entry y of the row vector p times T."""
    p = softmax(z)
    return -torch.log(sum(p[i] * matrix[i][y] for i in range(len(p))))


def train_with(
    loss_of: Callable[[Tensor, int], Tensor],
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    batches: Sequence[Sequence[int]],
    **optim: float,
) -> Trajectory:
    """Descent on the mean of a loss of one example."""
    descent, out = Descent(net, **optim), Trajectory()
    net.train()
    for batch in batches:
        loss = torch.zeros((), dtype=x.dtype)
        for z, i in zip(net(x[list(batch)]), batch, strict=True):
            loss = loss + loss_of(z, int(y[i])) / len(batch)
        descent.update(loss)
        out.loss.append(loss.item())
        out.weights.append([w.detach().clone() for w in net.parameters()])
    return out


def train(
    nets: Sequence[nn.Module],
    x: Tensor,
    y: Tensor,
    stages: Sequence[Sequence[Sequence[int]]],
    num_classes: int,
    percentile: float,
    **optim: float,
) -> tuple[Trajectory, list[list[float]]]:
    """Both stages; returns T too."""
    first = ce.train(nets[0], x, y, stages[0], num_classes, **optim)
    matrix = anchors(predictions(nets[0], x), percentile)
    second = train_with(lambda z, label: forward_loss(z, label, matrix), nets[1], x, y, stages[1], **optim)
    return Trajectory(first.loss + second.loss, weights=first.weights + second.weights), matrix
