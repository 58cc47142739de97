"""Xia et al. 2019, Algorithm 1: T from anchors, reweighted training, then T + slack learned with the network."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot, softmax
from reference.forward import anchors, predictions
from reference.trace import ScaledDescent, noisy


def revised(matrix: Sequence[Sequence[float]], slack: Tensor) -> list[list[Tensor]]:
    """T + slack, entries at least 1e-6, rows divided by their sums."""
    rows = []
    for i, row in enumerate(matrix):
        entries = [value + slack[i][j] for j, value in enumerate(row)]
        entries = [entry if entry > 1e-6 else torch.tensor(1e-6) for entry in entries]
        rows.append([entry / sum(entries) for entry in entries])
    return rows


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    stages: Sequence[Sequence[Sequence[int]]],
    num_classes: int,
    *,
    objective: str,
    revision_lr: float,
    slack_lr: float,
    percentile: float,
    **optim: float,
) -> tuple[Trajectory, Tensor]:
    """Three stages, each without the momentum of the one before; returns the revised T too."""
    slack = nn.Parameter(torch.zeros(num_classes, num_classes, dtype=torch.float32))
    out, matrix = Trajectory(), []
    for stage, batches in enumerate(stages):
        descent = ScaledDescent([(list(net.parameters()), 1.0, 1.0), ([slack], slack_lr, 0.0)], **optim)
        if stage == 1:
            matrix = anchors(predictions(net, x), percentile)
        net.train()
        for batch in batches:
            used = revised(matrix, slack) if stage == 2 else matrix
            loss = torch.zeros((), dtype=x.dtype)
            for z, i in zip(net(x[list(batch)]), batch, strict=True):
                label, p = int(y[i]), softmax(z)
                one = cross_entropy(z, one_hot(label, num_classes))
                if stage > 0 and objective == "forward":
                    one = -torch.log(noisy(p, used)[label])
                elif stage > 0:
                    weight = p[label] / noisy(p, used)[label]
                    one = one * (weight if stage == 2 else weight.item())
                loss = loss + one / len(batch)
            descent.update(loss, revision_lr if stage == 2 else 1.0)
            out.loss.append(loss.item())
            out.weights.append([w.detach().clone() for w in net.parameters()])
    return out, torch.tensor([[float(value) for value in row] for row in revised(matrix, slack.detach())])
