"""Which trial to believe: the best on noisy validation, or the default if that cannot be told from the best."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from elr.tune.space import Point, Space


class Scored(NamedTuple):
    """A trial that has run to its end. There is no place here for test accuracy, and so it cannot choose."""

    number: int
    point: Point
    value: float  # accuracy on noisy validation, mean over seeds
    error: float  # its standard error


class Choice(NamedTuple):
    """What was found."""

    best: Scored
    near: tuple[Scored, ...]  # within one standard error of the best, the best included
    chosen: Scored
    reason: str


def standard_error(values: Sequence[float], sizes: Sequence[int]) -> float:
    """Standard error of a mean of accuracies, each on a validation set of its own.

    By the binomial law, or by the spread over seeds if that is larger: it also has the luck of training in it.

    Args:
        values: accuracies, one a seed.
        sizes: examples of the validation set of each.
    """
    seeds = len(values)
    binomial = math.sqrt(sum(p * (1.0 - p) / n for p, n in zip(values, sizes, strict=True))) / seeds
    return max(binomial, statistics.stdev(values) / math.sqrt(seeds)) if seeds > 1 else binomial


def choose(scored: Sequence[Scored], default: Mapping[str, Any], space: Space) -> Choice | None:
    """The one-standard-error rule of Breiman et al. (1984), with the defaults as the simplest model.

    Of the trials within one standard error of the best: the one that leaves most options at their default, then the
    better one, then the earlier one.
    """
    if not scored:
        return None
    best = min(scored, key=lambda trial: (-trial.value, trial.number))
    near = tuple(trial for trial in scored if trial.value >= best.value - best.error)
    kept = {trial.number: sum(trial.point[key] == default[key] for key in default) for trial in near}
    chosen = min(near, key=lambda trial: (-kept[trial.number], -trial.value, trial.number))
    return Choice(best, near, chosen, _reason(best, near, chosen, len(scored), default, space))


def _reason(
    best: Scored, near: Sequence[Scored], chosen: Scored, total: int, default: Mapping[str, Any], space: Space
) -> str:
    found = f"Best on validation: {space.title(best.point)}, {100 * best.value:.1f} ± {100 * best.error:.1f} %"
    if len(near) == 1:
        return f"{found}; no other of the {total} trials is within one standard error of it. It is chosen."
    close = (
        f"{found}. {len(near)} of the {total} trials are within one standard error of it: this validation set cannot"
    )
    close += " tell them apart."
    kept = [space.names[key] for key in default if chosen.point[key] == default[key]]
    whole = len(kept) == len(default)
    if chosen == best:
        why = "which is the default" if whole else "since none of the others is nearer to the defaults"
        return f"{close} The best is chosen, {why}."
    what = "the default" if whole else f"the best that leaves {' and '.join(kept)} at the default"
    return f"{close} Chosen: {space.title(chosen.point)}, {100 * chosen.value:.1f} %, {what}."
