"""Tanno et al. 2019 with one annotator, an entry at a time; and descent with rates of its own for each parameter."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, softmax


class ScaledDescent:
    """Momentum and weight decay with (rate, decay) multipliers; a parameter without a gradient is left alone."""

    def __init__(self, groups: Sequence[tuple[Sequence[nn.Parameter], float, float]], *, lr, momentum, weight_decay):
        self.rows = [[w, lr * rate, weight_decay * decay, None] for ws, rate, decay in groups for w in ws]
        self.momentum = momentum

    def update(self, loss: Tensor, lr_scale: float = 1.0) -> None:
        gradients = torch.autograd.grad(loss, [row[0] for row in self.rows], allow_unused=True)
        with torch.no_grad():
            for row, gradient in zip(self.rows, gradients, strict=True):
                w, lr, decay, velocity = row
                if gradient is None:
                    continue
                force = gradient + decay * w
                row[3] = force if velocity is None else self.momentum * velocity + force
                w -= lr_scale * lr * row[3]


def noisy(p: Sequence[Tensor], matrix: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """(pT)_j = sum_i p_i T_ij."""
    return [sum(p[i] * matrix[i][j] for i in range(len(p))) for j in range(len(p))]


def stochastic(w: Tensor) -> list[list[Tensor]]:
    """softplus, then each row divided by its sum."""
    rows = [[torch.log(1.0 + torch.exp(value)) for value in row] for row in w]
    return [[value / sum(row) for value in row] for row in rows]


def train(
    net: nn.Module, x: Tensor, y: Tensor, batches: Sequence[Sequence[int]], num_classes: int, *, lam, matrix_lr, **optim
) -> tuple[Trajectory, Tensor]:
    """Network and matrix together; returns the matrix too."""
    start = [[1.0 if i == j else -5.0 for j in range(num_classes)] for i in range(num_classes)]
    w = nn.Parameter(torch.tensor(start, dtype=torch.float32))
    descent = ScaledDescent([(list(net.parameters()), 1.0, 1.0), ([w], matrix_lr, 0.0)], **optim)
    out = Trajectory()
    net.train()
    for batch in batches:
        matrix = stochastic(w)
        loss = lam * sum(matrix[c][c] for c in range(num_classes))
        for z, i in zip(net(x[list(batch)]), batch, strict=True):
            loss = loss - torch.log(noisy(softmax(z), matrix)[int(y[i])]) / len(batch)
        descent.update(loss)
        out.loss.append(loss.item())
        out.weights.append([parameter.detach().clone() for parameter in net.parameters()])
    return out, torch.tensor([[value.item() for value in row] for row in stochastic(w)])
