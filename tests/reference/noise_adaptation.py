"""Goldberger and Ben-Reuven 2017: cross entropy, the confusion of its predictions, then the layer on top."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot, softmax
from reference.forward import predictions
from reference.trace import ScaledDescent, noisy


def start(p: Sequence[Sequence[float]], y: Sequence[int], *, hard: bool) -> list[list[float]]:
    """b_ij = log of the share of label j among the examples predicted as i."""
    num_classes = len(p[0])
    counts = [[0.0] * num_classes for _ in range(num_classes)]
    for row, label in zip(p, y, strict=True):
        for i in range(num_classes):
            counts[i][label] += float(row[i] == max(row)) if hard else row[i]
    for i, row in enumerate(counts):
        if sum(row) == 0:
            counts[i] = [0.54 if i == j else 0.46 / (num_classes - 1) for j in range(num_classes)]
    return [[math.log(value / sum(row) + 1e-8) for value in row] for row in counts]


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    stages: Sequence[Sequence[Sequence[int]]],
    num_classes: int,
    *,
    form: str,
    hard: bool,
    beta: float,
    **optim: float,
) -> tuple[Trajectory, Tensor]:
    """Both stages, the second without momentum of the first; returns b too.

    The complex form reads the features off TinyNet's layers.
    """
    width = net.layers[-1].in_features
    b = nn.Parameter(torch.zeros(num_classes, num_classes, dtype=torch.float32))
    u = nn.Parameter(torch.zeros(num_classes, num_classes, width, dtype=torch.float32))
    out = Trajectory()
    for stage, batches in enumerate(stages):
        descent = ScaledDescent([(list(net.parameters()), 1.0, 1.0), ([b, u], 1.0, 0.0)], **optim)
        if stage == 1:
            with torch.no_grad():
                b.copy_(torch.tensor(start(predictions(net, x), y.tolist(), hard=hard)))
        net.train()
        for batch in batches:
            features = net.layers[:-1](x[list(batch)])
            loss = torch.zeros((), dtype=x.dtype)
            for h, z, i in zip(features, net.layers[-1](features), batch, strict=True):
                label = int(y[i])
                plain = cross_entropy(z, one_hot(label, num_classes))
                if stage == 0:
                    loss = loss + plain / len(batch)
                    continue
                rows = []
                for k in range(num_classes):
                    scores = [b[k][j] for j in range(num_classes)]
                    if form == "complex":
                        scores = [s + sum(u[k][j][d] * h[d] for d in range(width)) for j, s in enumerate(scores)]
                    rows.append(softmax(torch.stack(scores)))
                adapted = -torch.log(noisy(softmax(z), rows)[label])
                loss = loss + ((1.0 - beta) * adapted + beta * plain) / len(batch)
            descent.update(loss)
            out.loss.append(loss.item())
            out.weights.append([w.detach().clone() for w in net.parameters()])
    return out, b.detach()
