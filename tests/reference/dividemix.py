"""DivideMix (Li et al. 2020, Algorithm 1) in loops over examples and classes.

The random draws (order of batches, views, mixup coefficient and partners) are arguments. Expectation maximisation
starts from the best split of the sorted losses into two heaps, and takes ten steps at most. Where lambda_u is 0, only
the mixed labelled rows go through the network, as in the authors' code for Clothing1M.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot, softmax
from reference.descent import Descent


@dataclass
class Visit:
    """One batch as it came: rows and views of the labelled and the unlabelled part, and mixup's draw."""

    rows: list[int]
    views: list[Tensor]
    beside_rows: list[int] = field(default_factory=list)
    beside_views: list[Tensor] = field(default_factory=list)
    weight: float | list[float] = 1.0  # l', one for the batch or one for each row
    partner: list[int] = field(default_factory=list)  # position among all rows of the mixed batch
    ramp_place: float = 0.0  # epochs since the warm-up


@dataclass
class Settings:
    num_classes: int
    warm_epochs: int
    threshold: float
    temperature: float
    lambda_u: float
    ramp_epochs: float
    confidence_penalty: bool = False
    loss_memory: int = 1


@dataclass
class Split:
    """What a network thinks of all labels at the start of an epoch."""

    clean: list[float]
    labelled: set[int]


def sharpen(p: Sequence[float], temperature: float) -> list[float]:
    powers = [value ** (1.0 / temperature) for value in p]
    return [power / sum(powers) for power in powers]


def probabilities(net: nn.Module, x: Tensor) -> list[list[float]]:
    with torch.no_grad():
        return [[float(p_c) for p_c in softmax(z)] for z in net(x)]


def mean(lists: Sequence[Sequence[float]]) -> list[float]:
    return [sum(values) / len(values) for values in zip(*lists, strict=True)]


def scaled(values: Sequence[float]) -> list[float]:
    low, high = min(values), max(values)
    return [(value - low) / (high - low) for value in values]


def losses_of(net: nn.Module, x: Tensor, y: Tensor, num_classes: int) -> list[float]:
    """Cross entropy of every example in evaluation mode."""
    net.eval()
    with torch.no_grad():
        values = [float(cross_entropy(z, one_hot(int(label), num_classes))) for z, label in zip(net(x), y, strict=True)]
    net.train()
    return values


def heaps(x: Sequence[float]) -> list[tuple[float, float, float]]:
    """Weight, mean and variance of the two heaps with the least sum of squares: every cut of the sorted list tried."""
    ordered, best = sorted(x), None
    for cut in range(1, len(x)):
        parts, squares = [], 0.0
        for heap in (ordered[:cut], ordered[cut:]):
            centre = sum(heap) / len(heap)
            spread = sum((value - centre) ** 2 for value in heap)
            parts.append((len(heap) / len(x), centre, spread / len(heap)))
            squares += spread
        if best is None or squares < best[0]:
            best = squares, parts
    return best[1]


def clean_probability(
    losses: Sequence[float], *, steps: int = 10, tol: float = 1e-2, extra: float = 5e-4
) -> list[float]:
    """Posterior of the lower of two Gaussians, for losses in [0, 1]; ``extra`` is added to variances."""
    x = list(losses)
    components = [(weight, centre, variance + extra) for weight, centre, variance in heaps(x)]

    def posterior(value: float) -> tuple[list[float], float]:
        joint = [
            weight * math.exp(-((value - centre) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
            for weight, centre, variance in components
        ]
        return [part / sum(joint) for part in joint], math.log(sum(joint))

    before = -math.inf
    for _ in range(steps):
        shares = [posterior(value) for value in x]
        likelihood = sum(log for _, log in shares) / len(x)
        fitted = []
        for c in range(2):
            mass = sum(share[c] for share, _ in shares)
            centre = sum(share[c] * value for (share, _), value in zip(shares, x, strict=True)) / mass
            spread = sum(share[c] * (value - centre) ** 2 for (share, _), value in zip(shares, x, strict=True))
            fitted.append((mass / len(x), centre, spread / mass + extra))
        components = fitted
        if abs(likelihood - before) < tol:
            break
        before = likelihood
    lower = 0 if components[0][1] < components[1][1] else 1
    return [posterior(value)[0][lower] for value in x]


def divide(net: nn.Module, x: Tensor, y: Tensor, s: Settings, history: list[list[float]]) -> Split:
    history.append(scaled(losses_of(net, x, y, s.num_classes)))
    clean = clean_probability(mean(history[-s.loss_memory :]))
    return Split(clean, {i for i, w in enumerate(clean) if w > s.threshold})


def mixed(rows: Sequence[Sequence[float]], visit: Visit) -> list[list[float]]:
    """l' a_i + (1 - l') a_j."""
    out = []
    for i, j in enumerate(visit.partner):
        weight = visit.weight if isinstance(visit.weight, float) else visit.weight[i]
        out.append([weight * a + (1.0 - weight) * b for a, b in zip(rows[i], rows[j], strict=True)])
    return out


def warm_up_loss(net: nn.Module, visit: Visit, y: Tensor, s: Settings) -> Tensor:
    loss = torch.zeros((), dtype=torch.float64)
    for z, row in zip(net(visit.views[0]), visit.rows, strict=True):
        loss = loss + cross_entropy(z, one_hot(int(y[row]), s.num_classes)) / len(visit.rows)
        if s.confidence_penalty:
            p = softmax(z)
            entropy = -sum(p_c * torch.log(p_c) for p_c in p)
            loss = loss - entropy / len(visit.rows)
    return loss


def semi_loss(net: nn.Module, other: nn.Module, visit: Visit, y: Tensor, clean: Sequence[float], s: Settings) -> Tensor:
    """Co-refinement, co-guessing, MixMatch and the penalty, for the network that is trained."""
    guesses = [probabilities(net, view) for view in visit.beside_views]  # in training mode, one view after the other
    own = [probabilities(net, view) for view in visit.views]
    other.eval()
    guesses += [probabilities(other, view) for view in visit.beside_views]
    other.train()
    refined = []
    for i, row in enumerate(visit.rows):
        w, label = clean[row], one_hot(int(y[row]), s.num_classes)
        p = mean([view[i] for view in own])
        refined.append(sharpen([w * y_c + (1 - w) * p_c for y_c, p_c in zip(label, p, strict=True)], s.temperature))
    guessed = [sharpen(mean([view[i] for view in guesses]), s.temperature) for i in range(len(visit.beside_rows))]
    inputs = [row for view in (*visit.views, *visit.beside_views) for row in view.tolist()]
    targets = refined * 2 + guessed * 2
    inputs, targets = mixed(inputs, visit), mixed(targets, visit)
    labelled = 2 * len(visit.rows)
    if s.lambda_u == 0:
        inputs, targets = inputs[:labelled], targets[:labelled]
    logits = net(torch.tensor(inputs, dtype=torch.float64))
    predictions = [softmax(z) for z in logits]
    loss_x = sum(cross_entropy(z, t) for z, t in zip(logits[:labelled], targets[:labelled], strict=True)) / labelled
    loss_u = torch.zeros((), dtype=torch.float64)
    for p, t in zip(predictions[labelled:], targets[labelled:], strict=True):
        error = sum((p_c - t_c) ** 2 for p_c, t_c in zip(p, t, strict=True)) / s.num_classes
        loss_u = loss_u + error / (len(targets) - labelled)
    prior = 1.0 / s.num_classes
    penalty = torch.zeros((), dtype=torch.float64)
    for c in range(s.num_classes):
        average = sum(p[c] for p in predictions) / len(predictions)
        penalty = penalty + prior * torch.log(prior / average)
    ramp = min(visit.ramp_place / s.ramp_epochs, 1.0)
    return loss_x + s.lambda_u * ramp * loss_u + penalty


def train(
    nets: Sequence[nn.Module],
    x: Tensor,
    y: Tensor,
    epochs: Sequence[Sequence[Sequence[Visit]]],  # epochs[t][k] = batches of network k in epoch t
    settings: Settings,
    **optim: float,
) -> tuple[Trajectory, list[list[Split]]]:
    """Algorithm 1; also the splits of every epoch after the warm-up, by network 0 and by network 1."""
    out, splits = Trajectory(), []
    descents = [Descent(net, **optim) for net in nets]
    history: list[list[list[float]]] = [[], []]
    for net in nets:
        net.train()
    for t, passes in enumerate(epochs):
        warm = t < settings.warm_epochs
        if not warm:
            splits.append([divide(net, x, y, settings, history[k]) for k, net in enumerate(nets)])
        for k, visits in enumerate(passes):
            for visit in visits:
                if warm:
                    loss = warm_up_loss(nets[k], visit, y, settings)
                else:
                    by_other = splits[-1][1 - k]
                    assert set(visit.rows) <= by_other.labelled
                    assert not set(visit.beside_rows) & by_other.labelled
                    loss = semi_loss(nets[k], nets[1 - k], visit, y, by_other.clean, settings)
                descents[k].update(loss)
                out.loss.append(loss.item())
                out.weights.append([w.detach().clone() for net in nets for w in net.parameters()])
                out.statistics.append([b.clone() for net in nets for b in net.buffers()])
            if not warm:
                assert sorted(row for visit in visits for row in visit.rows) == sorted(splits[-1][1 - k].labelled)
    assert math.isfinite(out.loss[-1])
    return out, splits
