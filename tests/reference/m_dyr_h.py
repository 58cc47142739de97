"""M-DYR-H (Arazo et al. 2019): two Beta distributions by expectation maximisation, and four cross entropies a step.

The random draws (order of batches, mixup coefficients and partners) are arguments.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot, softmax
from reference.descent import Descent


@dataclass
class Draws:
    """One batch: its rows, the mixing coefficient, and for each row the position of its partner."""

    rows: list[int]
    weight: float
    partner: list[int]


def percentile(values: Sequence[float], percent: float) -> float:
    """With linear interpolation between the values on either side."""
    ordered = sorted(values)
    place = percent / 100.0 * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def density(x: float, a: float, b: float) -> float:
    return math.exp(
        (a - 1) * math.log(x) + (b - 1) * math.log(1 - x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    )


def inside(value: float) -> float:
    """Off 0 and 1, where densities are 0 or infinite, as the authors do it: outside at .001, inside at 1e-4."""
    if value <= 0:
        return 0.001
    if value >= 1:
        return 0.999
    return min(max(value, 1e-4), 1 - 1e-4)


class Mixture:
    """w, a, b of both components; component 1 has the higher mean."""

    def __init__(self, losses: Sequence[float]) -> None:
        first, last = percentile(losses, 5), percentile(losses, 95)
        self.low, self.high = first + 1e-5, last + 1e-6
        kept = [loss for loss in losses if first <= loss <= last]
        x = [inside(self.scaled(loss)) for loss in kept]
        self.w, self.a, self.b = [0.5, 0.5], [1.0, 2.0], [2.0, 1.0]
        for _ in range(10):
            shares = []
            for value in x:
                joint = [max(self.w[k] * density(value, self.a[k], self.b[k]), 1e-12) for k in (0, 1)]
                shares.append([j / sum(joint) for j in joint])
            for k in (0, 1):
                total = sum(share[k] for share in shares)
                mean = sum(share[k] * value for share, value in zip(shares, x, strict=True)) / total
                variance = sum(share[k] * (value - mean) ** 2 for share, value in zip(shares, x, strict=True)) / total
                self.a[k] = mean * (mean * (1 - mean) / variance - 1)
                self.b[k] = self.a[k] * (1 - mean) / mean
                self.w[k] = total / len(x)
        means = [self.a[k] / (self.a[k] + self.b[k]) for k in (0, 1)]
        if means[0] > means[1]:
            for pair in (self.w, self.a, self.b):
                pair.reverse()
        self.table = []
        for k in range(100):
            value = 1e-4 + k * (1 - 2e-4) / 99
            joint = [self.w[c] * density(value, self.a[c], self.b[c]) for c in (0, 1)]
            self.table.append(joint[1] / sum(joint))
        peak = self.table.index(max(self.table))
        self.table[peak:] = [self.table[peak]] * (100 - peak)

    def scaled(self, loss: float) -> float:
        return (loss - self.low) / (self.high - self.low)

    def wrong(self, loss: float) -> float:
        value = min(max(self.scaled(loss), 1e-4), 1 - 1e-4)
        return min(max(self.table[int(value * 100)], 1e-4), 1 - 1e-4)


def losses_of(net: nn.Module, x: Tensor, y: Tensor, num_classes: int) -> list[float]:
    """In evaluation mode."""
    net.eval()
    with torch.no_grad():
        losses = [cross_entropy(z, one_hot(int(label), num_classes)).item() for z, label in zip(net(x), y, strict=True)]
    net.train()
    return losses


def balance(predictions: Sequence[Sequence[Tensor]]) -> Tensor:
    """KL from the mean prediction to the uniform distribution."""
    num_classes = len(predictions[0])
    return sum(
        1 / num_classes * torch.log(1 / num_classes / (sum(p[c] for p in predictions) / len(predictions)))
        for c in range(num_classes)
    )


def mixed_inputs(x: Tensor, draws: Draws, weights: Sequence[float]) -> Tensor:
    rows = x[draws.rows]
    return torch.stack([w * rows[i] + (1 - w) * rows[draws.partner[i]] for i, w in enumerate(weights)])


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    epochs: Sequence[Sequence[Draws]],
    num_classes: int,
    *,
    start: int,
    reg: float,
    **optim: float,
) -> tuple[Trajectory, list[Mixture]]:
    descent, out, mixtures = Descent(net.train(), **optim), Trajectory(), []
    for epoch, batches in enumerate(epochs):
        correcting = epoch >= start
        if correcting:
            mixtures.append(Mixture(losses_of(net, x, y, num_classes)))
        for draws in batches:
            size, rows, ell = len(draws.rows), draws.rows, draws.weight
            guess, wrong = [0] * size, [0.0] * size
            if correcting:
                with torch.no_grad():
                    guess = net(x[rows]).argmax(dim=1).tolist()
                wrong = [mixtures[-1].wrong(loss) for loss in losses_of(net, x[rows], y[rows], num_classes)]
            logits = net(mixed_inputs(x, draws, [ell] * size))
            loss = torch.zeros((), dtype=x.dtype)
            for i, z in enumerate(logits):
                for weight, k in ((ell, i), (1 - ell, draws.partner[i])):
                    given = cross_entropy(z, one_hot(int(y[rows[k]]), num_classes))
                    own = cross_entropy(z, one_hot(guess[k], num_classes))
                    loss = loss + weight * ((1 - wrong[k]) * given + wrong[k] * own) / size
            if correcting:
                loss = loss + reg * balance([softmax(z) for z in logits])
            descent.update(loss)
            out.loss.append(loss.item())
            out.weights.append([w.detach().clone() for w in net.parameters()])
    return out, mixtures
