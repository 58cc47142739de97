"""MixMatch (Berthelot et al. 2019, Algorithm 1) in loops, on the low-loss part of a network's own mixture.

Draws are arguments. Guesses come from the network in training mode and leave its statistics alone, as in the authors'
code; the averaged weights share the statistics of the network.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot, softmax
from reference.descent import Descent
from reference.dividemix import clean_probability, scaled


@dataclass
class Visit:
    """One batch: labelled rows and input, unlabelled rows and views, coefficient and partner of each mixed row."""

    rows: list[int]
    x: Tensor
    beside_rows: list[int]
    beside_views: list[Tensor]
    weight: list[float]
    partner: list[int]
    ramp_place: float


@dataclass
class Settings:
    num_classes: int
    warm_epochs: int
    threshold: float
    temperature: float
    lambda_u: float
    ramp_epochs: float
    gamma: float | None = None  # None: no averaged weights


def guess(net: nn.Module, views: Sequence[Tensor], temperature: float) -> list[list[float]]:
    """Sharpened mean prediction over the views of each example."""
    with torch.no_grad():
        logits = [copy.deepcopy(net)(view) for view in views]
    out = []
    for i in range(len(views[0])):
        p = [sum(float(softmax(z[i])[c]) for z in logits) / len(views) for c in range(logits[0].shape[1])]
        powers = [value ** (1.0 / temperature) for value in p]
        out.append([power / sum(powers) for power in powers])
    return out


def labelled_rows(net: nn.Module, x: Tensor, y: Tensor, s: Settings) -> set[int]:
    """Rows whose loss belongs to the lower of two Gaussians with more than the threshold's probability."""
    judge = copy.deepcopy(net).eval()
    with torch.no_grad():
        losses = [float(cross_entropy(z, one_hot(int(c), s.num_classes))) for z, c in zip(judge(x), y, strict=True)]
    return {i for i, p in enumerate(clean_probability(scaled(losses))) if p > s.threshold}


def semi_loss(net: nn.Module, visit: Visit, y: Tensor, s: Settings) -> Tensor:
    inputs = visit.x.tolist()
    targets = [one_hot(int(y[row]), s.num_classes) for row in visit.rows]
    if visit.beside_rows:
        guesses = guess(net, visit.beside_views, s.temperature)
        for view in visit.beside_views:
            inputs += view.tolist()
            targets += guesses

    def mix(rows: list[list[float]]) -> list[list[float]]:
        return [
            [weight * a + (1 - weight) * b for a, b in zip(rows[i], rows[j], strict=True)]
            for i, (weight, j) in enumerate(zip(visit.weight, visit.partner, strict=True))
        ]

    mixed_inputs, mixed_targets = mix(inputs), mix(targets)
    logits = net(torch.tensor(mixed_inputs, dtype=torch.float64))
    count = len(visit.rows)
    loss = torch.zeros((), dtype=torch.float64)
    for i, (z, t) in enumerate(zip(logits, mixed_targets, strict=True)):
        if i < count:
            loss = loss + cross_entropy(z, t) / count
        else:
            error = sum((p_c - t_c) ** 2 for p_c, t_c in zip(softmax(z), t, strict=True)) / s.num_classes
            ramp = min(visit.ramp_place / s.ramp_epochs, 1.0)
            loss = loss + s.lambda_u * ramp * error / (len(mixed_targets) - count)
    return loss


def train(
    net: nn.Module, x: Tensor, y: Tensor, epochs: Sequence[Sequence[Visit]], settings: Settings, **optim: float
) -> tuple[Trajectory, list[set[int]]]:
    """All epochs; also the labelled rows of each epoch after the warm-up."""
    s, out, splits = settings, Trajectory(), []
    descent, average = Descent(net, **optim), copy.deepcopy(net)
    net.train()
    for t, visits in enumerate(epochs):
        if t >= s.warm_epochs:
            splits.append(labelled_rows(net if s.gamma is None else average, x, y, s))
            assert sorted(row for visit in visits for row in visit.rows) == sorted(splits[-1])
        for visit in visits:
            if t < s.warm_epochs:
                loss = torch.zeros((), dtype=torch.float64)
                for z, row in zip(net(visit.x), visit.rows, strict=True):
                    loss = loss + cross_entropy(z, one_hot(int(y[row]), s.num_classes)) / len(visit.rows)
            else:
                loss = semi_loss(net, visit, y, s)
            descent.update(loss)
            if s.gamma is not None:
                with torch.no_grad():
                    for w_bar, w in zip(average.parameters(), net.parameters(), strict=True):
                        w_bar.copy_(s.gamma * w_bar + (1 - s.gamma) * w)
                    for b_bar, b in zip(average.buffers(), net.buffers(), strict=True):
                        b_bar.copy_(b)
            out.loss.append(loss.item())
            out.weights.append([w.detach().clone() for w in net.parameters()])
            out.averages.append([w.detach().clone() for w in average.parameters()] if s.gamma is not None else [])
            out.statistics.append([b.clone() for b in net.buffers()])
    return out, splits
