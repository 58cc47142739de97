"""What the lab runs: the sizes and noise levels of every experiment, at full length or in a few seconds."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from elr.theory.dynamics import Form

RATIO = 0.9  # p/n where only one of the two is given: inside the theorem's (1 - Delta/2, 1) for every Delta > .2


class Setting(NamedTuple):
    """One point of the grid of the early stage."""

    n: int
    p: int
    sigma: float
    delta: float
    eta: float
    form: Form = "loss"


@dataclass(frozen=True)
class Plan:
    """The grid. The first value of each list is the point that claims are judged at; others vary one at a time."""

    sizes: tuple[tuple[int, int], ...] = ((4444, 4000), (139, 125), (278, 250), (556, 500), (1111, 1000), (2222, 2000))
    sigma: tuple[float, ...] = (0.01, 0.0005, 0.03, 0.1, 0.5)
    delta: tuple[float, ...] = (0.4, 0.2, 0.5)
    eta: tuple[float, ...] = (0.05, 0.4, 0.2, 0.1, 0.025)
    seeds: int = 12
    largest_norm: int = 1000  # spectral norms are taken up to this p
    programme_sizes: tuple[int, ...] = (60, 120, 240)  # n of the linear programmes
    programme_draws: int = 24
    programme_ratios: tuple[float, ...] = (0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.85, 0.9, 0.95)
    programme_sigma: float = 0.1
    fit_n: int = 100  # memorisation
    fit_ratios: tuple[float, ...] = (0.9, 0.5, 0.25)
    fit_sigma: float = 0.5
    fit_steps: int = 20_000
    fit_draws: int = 16
    figure_draws: int = 50  # Figure A.1: n = 50, p = 100, sigma = .1
    figure_steps: int = 3_000
    level_draws: int = 80  # from no noise to nothing but noise
    levels: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)

    @property
    def base(self) -> Setting:
        """Where claims are judged."""
        return Setting(*self.sizes[0], self.sigma[0], self.delta[0], self.eta[0])

    def settings(self) -> Iterator[Setting]:
        """The base point, then one thing at a time changed."""
        base = self.base
        yield base
        yield base._replace(form="softmax")
        yield base._replace(form="printed")
        # how T grows with 1/eta cannot be seen at one eta
        yield from (base._replace(eta=eta) for eta in self.eta[1:] or (base.eta / 2,))
        yield from (base._replace(sigma=sigma) for sigma in self.sigma[1:])
        yield from (base._replace(delta=delta) for delta in self.delta[1:])
        yield from (base._replace(n=n, p=p) for n, p in self.sizes[1:])


QUICK = Plan(
    sizes=((2222, 2000), (111, 100), (333, 300)),
    sigma=(0.01, 0.1),
    delta=(0.4,),
    eta=(0.05, 0.4, 0.1),
    seeds=4,
    largest_norm=300,
    programme_sizes=(60,),
    programme_draws=12,
    fit_n=40,
    fit_steps=6_000,
    fit_draws=6,
    figure_draws=12,
    figure_steps=1_000,
    level_draws=30,
    levels=(0.0, 0.5, 1.0),
)


def check_plan(plan: Plan) -> None:
    """Refuse numbers for which the model is not defined, one clear line each."""
    for n, p in plan.sizes:
        if n < 10 or p < 2:
            raise ValueError(f"need at least 10 examples in 2 dimensions, got n = {n} and p = {p}")
        if n * p > 2e8:
            raise ValueError(f"n x p = {n} x {p} needs {n * p * 4 / 1e9:.1f} GB for one data set; at most .8 GB here")
    for name, values, low, high in (
        ("sigma", plan.sigma, 0.0, math.inf),
        ("delta", plan.delta, 0.0, 1.0),
        ("eta", plan.eta, 0.0, 1.0),
    ):
        for value in values:
            if not (low < value < high or (name == "delta" and value == high)):
                raise ValueError(f"{name} must lie between {low:g} and {high:g}, got {value:g}")
    if plan.seeds < 2:
        raise ValueError(f"need at least 2 seeds for a spread, got {plan.seeds}")


def sizes_from(n: Sequence[int], p: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Pairs (n, p); where one is missing, p/n = .9; where one is a single number, it goes with all of the other."""
    return tuple(dict.fromkeys(_pairs(n, p)))


def _pairs(n: Sequence[int], p: Sequence[int]) -> Iterable[tuple[int, int]]:
    if not n and not p:
        return Plan().sizes
    if not p:
        return [(count, max(2, round(RATIO * count))) for count in n]
    if not n:
        return [(round(dimension / RATIO), dimension) for dimension in p]
    if len(n) != len(p) and 1 not in (len(n), len(p)):
        raise ValueError(f"--n has {len(n)} values and --p has {len(p)}: give as many, or one of either")
    longest = max(len(n), len(p))
    return zip(list(n) * (longest // len(n)), list(p) * (longest // len(p)), strict=True)
