"""The laboratory: each experiment is run once, when a claim first asks for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import torch

from elr.losses.elr import cross_entropy
from elr.theory.dynamics import Fit, coefficients, descend_to_t, train, weighted_mean
from elr.theory.early import Row, early_rows
from elr.theory.lemmas import lemma_rows
from elr.theory.limit import start_rows
from elr.theory.mixture import Mixture, Reading, draw_mixture, draw_start
from elr.theory.plan import Plan, Setting
from elr.theory.separable import is_separable, separability_row

READINGS: tuple[Reading, ...] = ("replaced", "flipped")
PULLS = ("clean_pull", "wrong_pull", "clean_pull_sd", "wrong_pull_sd")
STRENGTHS = (1.0, 3.0, 10.0)  # lam
LONG_ETA = 0.5


@dataclass(frozen=True)
class World:
    """What the lab is made of. A test puts a broken part in and sees that the claims notice."""

    draw: Callable[..., Mixture] = draw_mixture
    start: Callable[..., torch.Tensor] = draw_start
    sign: float = 1.0  # of every step; -1 climbs
    lam: float = 3.0  # ELR's strength in Figure A.1
    beta: float = 0.7


class Lab:
    """Experiments by name, each a list of tidy rows; a row is one data set, or one size.

    Args:
        plan: sizes.
        world: data and dynamics.
        say: called with a line when an experiment begins.
    """

    def __init__(self, plan: Plan, world: World | None = None, say: Callable[[str], None] = lambda line: None) -> None:
        self.plan = plan
        self.world = world or World()
        self.say = say

    def _data(self, setting: Setting, seeds: Sequence[int], dtype: torch.dtype) -> tuple[Mixture, torch.Tensor]:
        data = self.world.draw(setting.n, setting.p, setting.sigma, setting.delta, seeds, dtype=dtype)
        return data, self.world.start(setting.p, seeds, dtype=dtype)

    @cached_property
    def early(self) -> list[Row]:
        """From theta_0 to theta_T at every setting of the plan, a row for each data set."""
        rows: list[Row] = []
        base = self.plan.base
        settings = sorted(self.plan.settings(), key=_same_data)
        for key, group in groupby(settings, key=_same_data):
            here = list(group)
            n, p, sigma, delta = key
            large = (n, p) == (base.n, base.p) and key != _same_data(base)
            seeds = max(2, self.plan.seeds // 2) if large else self.plan.seeds
            self.say(f"early stage: n = {n}, p = {p}, sigma = {sigma:g}, Delta = {delta:g}, {seeds} data sets")
            dtype = torch.float32 if p >= 2000 else torch.float64
            for seed in range(seeds):  # one at a time: at p = 4,000 a data set is 70 MB
                data, theta0 = self._data(here[0], [seed], dtype)
                for setting in here:
                    rows += early_rows(data, theta0, setting.eta, setting.form, delta, [seed], sign=self.world.sign)
        return rows

    def early_at(self, setting: Setting) -> list[Row]:
        """The rows of one setting."""
        return [row for row in self.early if all(row[key] == value for key, value in setting._asdict().items())]

    @cached_property
    def norms(self) -> list[Row]:
        """Lemmas 8 to 10 at every size that is small enough, at sigma = .1: three rows for each data set."""
        rows: list[Row] = []
        for n, p in sorted(size for size in self.plan.sizes if size[1] <= self.plan.largest_norm) or [(333, 300)]:
            self.say(f"norms: n = {n}, p = {p}")
            for seed in range(self.plan.seeds):
                data, theta0 = self._data(Setting(n, p, 0.1, self.plan.base.delta, 0.1), [seed], torch.float64)
                rows += lemma_rows(data, theta0, self.plan.base.delta, [seed])
        return rows

    @cached_property
    def lengths(self) -> list[float]:
        """p E|theta_0^T v|^2, each a mean over 2,000 starts in R^200 (Lemma 7)."""
        p, count = 200, 2_000
        v = torch.zeros(p, dtype=torch.float64)
        v[0] = 1.0
        batches = (range(batch * count, (batch + 1) * count) for batch in range(10))
        return [p * float((self.world.start(p, batch) @ v).square().mean()) for batch in batches]

    @cached_property
    def starts(self) -> list[Row]:
        """Eq. 12 for p up to 10^13, a row for each draw."""
        base = self.plan.base
        sizes = [(10**k, round(0.9 * 10**k)) for k in range(2, 14)]
        self.say("accuracy at the start: p up to 10^13")
        return [row for n, p in sizes for row in start_rows(n, p, base.sigma, base.delta, 400)]

    @cached_property
    def gradients(self) -> list[Row]:
        """Eq. 10 and the speed of theta against autograd, a row for each small data set."""
        rows = []
        for seed in range(self.plan.seeds):
            data, theta0 = self._data(Setting(40, 20, 0.5, 0.4, 0.1), [seed], torch.float64)
            rows.append({"seed": seed, **_compare(data, theta0, self.world.sign)})
        return rows

    @cached_property
    def separability(self) -> list[Row]:
        """Share of draws with separable noisy labels, a row for each (n, p, Delta)."""
        plan = self.plan
        middle = plan.programme_sizes[len(plan.programme_sizes) // 2]
        deltas = [(n, plan.base.delta) for n in plan.programme_sizes] + [(middle, d) for d in (*plan.delta[1:], 1.0)]
        rows = []
        for n, delta in dict.fromkeys(deltas):
            self.say(f"linear programmes: n = {n}, Delta = {delta:g}, {plan.programme_draws} draws at each p")
            inside = {1.0 - delta / 4} if delta == plan.base.delta else set()  # within the range of Theorem 6
            for ratio in sorted({*plan.programme_ratios, *inside}):
                p = round(ratio * n)
                data = self.world.draw(n, p, plan.programme_sigma, delta, range(plan.programme_draws))
                pairs = zip(data.x.numpy(), data.labels.numpy(), strict=True)
                decided = [is_separable(x, labels) for x, labels in pairs]
                rows.append(separability_row(n, p, plan.programme_sigma, delta, decided))
        return rows

    @cached_property
    def fits(self) -> list[Row]:
        """Gradient descent for a long time, a row for each data set, with the verdict of the linear programme."""
        plan, rows = self.plan, []
        for ratio in plan.fit_ratios:
            p = round(ratio * plan.fit_n)
            self.say(f"memorisation: n = {plan.fit_n}, p = {p}, {plan.fit_steps:,} steps")
            seeds = range(plan.fit_draws)
            data, theta0 = self._data(Setting(plan.fit_n, p, plan.fit_sigma, plan.base.delta, LONG_ETA), seeds,
                                      torch.float64)  # fmt: skip
            fit = train(data, theta0, LONG_ETA, looks(plan.fit_steps), sign=self.world.sign)
            pairs = zip(data.x.numpy(), data.labels.numpy(), strict=True)
            separable = [is_separable(x, labels) for x, labels in pairs]
            rows += [
                {"n": plan.fit_n, "p": p, "ratio": ratio, "sigma": plan.fit_sigma, "seed": seed,
                 "separable": separable[seed], **_end(fit, seed)}
                for seed in seeds
            ]  # fmt: skip
        return rows

    @cached_property
    def figure(self) -> list[Row]:
        """Figure A.1 with cross entropy and ELR, both readings of the noise: a row for each look at a data set."""
        rows: list[Row] = []
        for reading in READINGS:
            for method, lam in (("ce", 0.0), ("elr", self.world.lam)):
                self.say(f"Figure A.1: {method}, labels {reading}, {self.plan.figure_draws} data sets")
                rows += [{"method": method, **row} for row in self._figure_run(reading, lam, self.plan.figure_steps)]
        return rows

    @cached_property
    def strengths(self) -> list[Row]:
        """The end of Figure A.1, labels flipped, for several strengths of the penalty: a row for each data set."""
        rows = []
        steps = min(1000, self.plan.figure_steps)
        for lam in STRENGTHS:
            self.say(f"strength of the penalty: lam = {lam:g}")
            found = self._figure_run("flipped", lam, steps)
            rows += [{"lam": lam, **row} for row in found if row["step"] == steps]
        return rows

    def _figure_run(self, reading: Reading, lam: float, steps: int) -> list[Row]:
        seeds = range(self.plan.figure_draws)
        data = self.world.draw(50, 100, 0.1, 0.4, seeds, reading=reading)
        fit = train(data, self.world.start(100, seeds), LONG_ETA, looks(steps), lam=lam, beta=self.world.beta,
                    sign=self.world.sign)  # fmt: skip
        return [
            {"reading": reading, "seed": seed, "step": step, "wrong_share": float(data.wrong[seed].double().mean()),
             **{key: float(values[place, seed]) for key, values in _curves(fit).items()}}
            for place, step in enumerate(fit.steps) for seed in seeds
        ]  # fmt: skip

    @cached_property
    def levels(self) -> list[Row]:
        """Accuracy on new examples early and late, from Delta = 0 to 1: a row for each data set."""
        rows = []
        seeds = range(self.plan.level_draws)
        self.say("from clean labels to nothing but noise")
        for delta in self.plan.levels:
            data, theta0 = self._data(Setting(111, 100, 0.1, delta, 0.1), seeds, torch.float64)
            early = descend_to_t(data, theta0, 0.1, "loss", sign=self.world.sign)
            fit = train(data, theta0, LONG_ETA, (0, 4, 300), sign=self.world.sign)
            rows += [
                {"delta": delta, "seed": seed, "correlation_0": float(early.correlation[0, seed]),
                 **{f"fresh_{step}": float(fit.fresh_right[place, seed]) for place, step in enumerate(fit.steps)}}
                for seed in seeds
            ]  # fmt: skip
        return rows


def _same_data(setting: Setting) -> tuple[int, int, float, float]:
    return setting.n, setting.p, setting.sigma, setting.delta


def looks(last: int) -> list[int]:
    """Numbers of steps, evenly spaced in their logarithm, from 0 to the last."""
    count = 12 * len(str(last))
    return sorted({0, *(round(last ** (k / count)) for k in range(count + 1))})


def _curves(fit: Fit) -> dict[str, torch.Tensor]:
    names = ("clean_right", "wrong_right", "fresh_right", *PULLS)
    return {name: getattr(fit, name) for name in names}


def _end(fit: Fit, seed: int) -> Row:
    """The last look, the best accuracy on new examples, and when the last wrong label was memorised."""
    wrong = fit.wrong_right[:, seed]
    held = [step for place, step in enumerate(fit.steps) if bool((wrong[place:] == 0).all())]
    return {
        "clean_right": float(fit.clean_right[-1, seed]), "wrong_right": float(wrong[-1]),
        "fresh_best": float(fit.fresh_right[:, seed].max()), "fresh_right": float(fit.fresh_right[-1, seed]),
        "memorised_at": held[0] if held else None,
    }  # fmt: skip


def _compare(data: Mixture, theta0: torch.Tensor, sign: float) -> Row:
    """Formulas of the gradient against autograd, and one step on Theta against one step on theta."""
    theta = theta0.clone().requires_grad_()
    # The loss as displayed at P:537
    loss = torch.nn.functional.softplus(-data.labels * (data.x @ theta[:, :, None]).squeeze(2)).mean()
    (exact,) = torch.autograd.grad(loss, theta)
    rows = torch.stack([theta0, -theta0], dim=1)[0].div(2).requires_grad_()  # (2, p)
    softmax = cross_entropy(data.x[0] @ rows.T, (data.labels[0] < 0).long()).mean()
    (by_rows,) = torch.autograd.grad(softmax, rows)
    formulas = {form: sign * weighted_mean(data, coefficients(data, theta0, form)) for form in ("loss", "printed")}
    moved = by_rows[0] - by_rows[1]  # theta = Theta_1 - Theta_2 moves by minus eta times this
    half = sign * weighted_mean(data, coefficients(data, theta0 / 2, "printed"))  # theta = (Theta_1 - Theta_2) / 2
    return {
        "printed_error": float((formulas["printed"] - exact).norm() / exact.norm()),
        "corrected_error": float((formulas["loss"] - exact).norm() / exact.norm()),
        "speed": float((moved * formulas["loss"][0]).sum() / formulas["loss"].square().sum()),
        "half_error": float((half[0] - moved / 2).norm() / moved.norm()),
    }
