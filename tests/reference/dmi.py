"""Xu et al. 2019 in the form of the authors' code, the determinant written out as a sum over permutations."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot, softmax
from reference.descent import Descent


def determinant(rows: Sequence[Sequence[Tensor]]) -> Tensor:
    """Leibniz's formula."""
    size = len(rows)
    total = torch.zeros((), dtype=rows[0][0].dtype)
    for order in itertools.permutations(range(size)):
        exchanged = sum(order[a] > order[b] for a in range(size) for b in range(a + 1, size))
        total = total + (-1) ** exchanged * math.prod(rows[c][order[c]] for c in range(size))
    return total


def loss(logits: Tensor, labels: Sequence[int]) -> Tensor:
    """-log(|det U| + .001), U the sum over the batch of label times prediction."""
    size = logits.shape[1]
    U = [[torch.zeros((), dtype=logits.dtype) for _ in range(size)] for _ in range(size)]
    for z, label in zip(logits, labels, strict=True):
        for j, p_j in enumerate(softmax(z)):
            U[label][j] = U[label][j] + p_j
    return -torch.log(torch.abs(determinant(U)) + 0.001)


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    stages: Sequence[Sequence[Sequence[int]]],
    num_classes: int,
    *,
    lr_scale: float,
    **optim: float,
) -> Trajectory:
    """Batches of two stages: cross entropy; then L_DMI with a smaller learning rate, and no momentum of the first."""
    out = Trajectory()
    net.train()
    for stage, batches in enumerate(stages):
        descent = Descent(net, **{**optim, "lr": optim["lr"] * (lr_scale if stage == 1 else 1.0)})
        for batch in batches:
            logits, labels = net(x[list(batch)]), [int(y[i]) for i in batch]
            if stage == 0:
                value = sum(cross_entropy(z, one_hot(c, num_classes)) for z, c in zip(logits, labels, strict=True))
                value = value / len(batch)
            else:
                value = loss(logits, labels)
            descent.update(value)
            out.loss.append(value.item())
            out.weights.append([w.detach().clone() for w in net.parameters()])
    return out
