"""Patrini et al. 2017, Theorem 1, with the clip of the authors' code."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from reference.ce import softmax


def inverse(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    """By Gauss and Jordan's elimination with pivots."""
    n = len(matrix)
    rows = [[*map(float, row), *(float(i == j) for j in range(n))] for i, row in enumerate(matrix)]
    for k in range(n):
        pivot = max(range(k, n), key=lambda i: abs(rows[i][k]))
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [value / rows[k][k] for value in rows[k]]
        for i in range(n):
            if i != k:
                factor = rows[i][k]
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return [row[n:] for row in rows]


def backward_loss(z: Tensor, y: int, inverted: Sequence[Sequence[float]], clip: float) -> Tensor:
    """Row y of the inverse times the vector of cross entropies."""
    total = 0.0 * z.sum()  # a graph even where all is clipped
    for j, p_j in enumerate(softmax(z)):
        if p_j < clip:
            loss = -math.log(clip)
        elif p_j > 1.0 - clip:
            loss = -math.log(1.0 - clip)
        else:
            loss = -torch.log(p_j)
        total = total + inverted[y][j] * loss
    return total
