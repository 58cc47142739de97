"""INCV (Chen et al. 2019, Algorithms 1-3) with sets and loops.

Draws (halves, order of batches) are arguments. Both halves of a round are trained in turn, epoch by epoch, which is the
same as one after the other, since they share nothing but the initial weights. As in the code here and not in the
authors': the noise rate is read off both halves, and asymmetric noise has one alternative class in every formula.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot
from reference.descent import Descent


@dataclass
class Settings:
    num_classes: int
    pattern: str
    rounds: int
    last_warmup: float | None  # epochs of the last stage on selected rows only; None: the authors' choice
    last_ramp: float  # epochs
    batch: int


@dataclass
class State:
    """Which rows are what, after the rounds."""

    selected: set[int]
    candidates: set[int]
    removed: set[int]
    rate: float


def cross_entropies(net: nn.Module, x: Tensor, y: Tensor, rows: Sequence[int], num_classes: int) -> list[float]:
    """In evaluation mode."""
    judge = copy.deepcopy(net).eval()
    with torch.no_grad():
        logits = judge(x[list(rows)])
    return [float(cross_entropy(z, one_hot(int(y[row]), num_classes))) for z, row in zip(logits, rows, strict=True)]


def predictions(net: nn.Module, x: Tensor, rows: Sequence[int]) -> list[int]:
    judge = copy.deepcopy(net).eval()
    with torch.no_grad():
        return [max(range(len(z)), key=lambda c, z=z: float(z[c])) for z in judge(x[list(rows)])]


def estimated_rate(agreement: float, others: int) -> float:
    """Search in small steps for the first e with (1-e)^2 + e^2/k <= agreement, up to the minimum of the left side."""
    e, least = 0.0, others / (others + 1)
    while (1 - e) ** 2 + e**2 / others > agreement and e < least:
        e += 1e-5
    return min(e, least)


def round_factor(epoch: int) -> float:
    """The authors' INCV_lr_schedule, epochs counted from 0."""
    if epoch > 40:
        return 0.1
    if epoch > 30:
        return 0.25
    if epoch > 20:
        return 0.5
    return 1.0


def batch_loss(net: nn.Module, x: Tensor, y: Tensor, rows: Sequence[int], num_classes: int) -> Tensor:
    loss = torch.zeros((), dtype=torch.float64)
    for z, row in zip(net(x[list(rows)]), rows, strict=True):
        loss = loss + cross_entropy(z, one_hot(int(y[row]), num_classes)) / len(rows)
    return loss


def train(
    initial: nn.Module,
    last: Sequence[nn.Module],
    x: Tensor,
    y: Tensor,
    round_epochs: Sequence[Sequence[Sequence[Sequence[Sequence[int]]]]],  # [round][epoch][network] = batches of rows
    last_epochs: Sequence[
        Sequence[tuple[Sequence[int], Sequence[int]]]
    ],  # [epoch] = (selected rows, candidates beside)
    halves: Callable[[int, list[int]], tuple[set[int], set[int]]],
    settings: Settings,
    **optim: float,
) -> tuple[Trajectory, State]:
    s, out = settings, Trajectory()
    n, others = len(x), (settings.num_classes - 1 if settings.pattern == "symmetric" else 1)
    selected: set[int] = set()
    candidates = set(range(n))
    removed: set[int] = set()
    rate = 0.0

    def note(nets: Sequence[nn.Module], loss: float) -> None:
        out.loss.append(loss)
        out.weights.append([w.detach().clone() for net in nets for w in net.parameters()])

    for r in range(s.rounds):
        half = halves(r, sorted(candidates))
        nets = [copy.deepcopy(initial).train() for _ in range(2)]
        descents = [Descent(net, **optim) for net in nets]
        if r == 0:
            best_epoch = True
        elif s.pattern == "asymmetric" or rate > 0.6:
            best_epoch = False
        else:
            best_epoch = r < (2 if rate > 0.3 else 4)
        best: list[tuple[float, list[bool], list[float]]] = [(-1.0, [], []), (-1.0, [], [])]
        held = [sorted(half[1]), sorted(half[0])]  # network k has not seen these
        for e, passes in enumerate(round_epochs[r]):
            for k, batches in enumerate(passes):
                assert {row for rows in batches for row in rows} == selected | half[k]
                for b, rows in enumerate(batches):
                    # Epochs of the authors' fifty, counted from 0.
                    place = 50 * (e * len(batches) + b) // (len(round_epochs[r]) * len(batches))
                    descents[k].lr = optim["lr"] * round_factor(place)
                    loss = batch_loss(nets[k], x, y, rows, s.num_classes)
                    descents[k].update(loss)
                    note(nets, loss.item())
            for k in range(2):
                agrees = [p == int(y[row]) for p, row in zip(predictions(nets[k], x, held[k]), held[k], strict=True)]
                accuracy = sum(agrees) / len(agrees) if agrees else 0.0
                if not best_epoch or accuracy > best[k][0]:
                    best[k] = accuracy, agrees, cross_entropies(nets[k], x, y, held[k], s.num_classes)
        if r == 0:
            rate = estimated_rate(sum(sum(agrees) for _, agrees, _ in best) / n, others)
        for k in range(2):
            _, agrees, losses = best[k]
            chosen = {row for row, agree in zip(held[k], agrees, strict=True) if agree}
            if s.pattern == "symmetric":
                count = int(min(2.0, rate / (1 - rate)) * len(chosen))
                worst = sorted(range(len(held[k])), key=lambda i, losses=losses: -losses[i])[:count]
                gone = {held[k][i] for i in worst} - chosen
                removed |= gone
                candidates -= gone
            selected |= chosen
            candidates -= chosen
    nets = [net.train() for net in last]
    descents = [Descent(net, **optim) for net in nets]
    wrong_among_selected = rate**2 / (rate**2 + others * (1 - rate) ** 2)
    warm = s.last_warmup
    if warm is None:
        warm = (0.4 if s.pattern == "asymmetric" or rate > 0.6 else 0.2) * len(last_epochs)
    for t, batches in enumerate(last_epochs):
        assert {row for rows, _ in batches for row in rows} == selected
        size = min(int(len(candidates) * s.batch / len(selected)), s.batch // 2)
        for rows, beside in batches:
            assert set(beside) <= candidates
            assert bool(beside) == (t >= warm and size > 0)
            assert len(beside) <= size + 1
            every = [*rows, *beside]
            keep = round(len(rows) * (1 - wrong_among_selected * min(1.0, t / s.last_ramp)))
            keep = max(keep, 2)
            ranked = []
            for net in nets:
                losses = cross_entropies(net, x, y, every, s.num_classes)
                ranked.append([every[i] for i in sorted(range(len(every)), key=lambda i, v=losses: v[i])[:keep]])
            loss_0 = batch_loss(nets[0], x, y, ranked[1], s.num_classes)
            loss_1 = batch_loss(nets[1], x, y, ranked[0], s.num_classes)
            descents[0].update(loss_0)
            descents[1].update(loss_1)
            note(nets, (loss_0 + loss_1).item())
    assert math.isfinite(out.loss[-1])
    return out, State(selected, candidates, removed, rate)
