"""What a comparison consists of: noise settings x methods x seeds, each cell an ordinary run with its own folder."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args
from urllib.parse import quote

from elr.config import Config, nearest, options, resolve
from elr.convert import convert
from elr.job.claim import claim
from elr.methods import METHODS
from elr.report.records import read_json

Budget = Literal["equal", "authors"]
BUDGETS: tuple[Budget, ...] = get_args(Budget)
RATELESS = ("none", "file", "matrix")  # kinds of noise that have no rate
BASELINE = "ce"


class Cell(NamedTuple):
    """One run of the comparison."""

    noise: str
    rate: float
    method: str  # an arm of the comparison: ``elr``, or ``elr:lam=7`` with a setting of its own
    seed: int
    config: Config

    @property
    def name(self) -> str:
        """Its folder below ``DIR/runs``."""
        arm = quote(self.method.replace(":", "-"), safe="=")
        return f"{setting_name(self.noise, self.rate)}/{arm}/seed{self.seed}"

    @property
    def epochs(self) -> int:
        """Epochs that will be recorded."""
        return self.config.planned_epochs

    @property
    def work(self) -> float:
        """Epochs of cross entropy that cost as much, by arithmetic."""
        return self.config.work


@dataclass(frozen=True)
class Grid:
    """A whole comparison."""

    settings: Mapping[str, Any]  # dotted, as given: what all cells share
    noises: tuple[tuple[str, float], ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    budget: Budget

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """All of the first seed before the second: a comparison that is cut short still compares like with like."""
        return tuple(
            Cell(kind, rate, method, seed, self.config(method, kind, rate, seed))
            for seed in self.seeds
            for kind, rate in self.noises
            for method in self.methods
        )

    def config(self, method: str, kind: str, rate: float, seed: int) -> Config:
        """Configuration of one cell under the budget."""
        name, own = split_arm(method)
        place = {"method.name": name, "noise.kind": kind, "noise.rate": rate, "seed": seed}
        shared = {"runtime.threads": 1, **self.settings, **place}
        known = options({"method": name})
        shared = {key: value for key, value in shared.items() if not key.startswith("method.") or key in known}
        shared |= own
        return _equal(shared) if self.budget == "equal" else _authors(shared, METHODS[name].authors)

    def baseline(self) -> Config:
        """Cross entropy in the first place of the grid: what costs are relative to."""
        return self.config(BASELINE, *self.noises[0], self.seeds[0])

    def identity(self) -> dict[str, Any]:
        """What must be equal for results to stand in one table, as plain as JSON gives it back."""
        config = self.baseline()
        own = ("method.", "noise.kind", "noise.rate", "seed")
        settings = {key: value for key, value in config.identity().items() if not key.startswith(own)}
        settings |= {key: str(value) for key, value in self.settings.items() if key.startswith("method.")}
        settings["runtime.precision"] = config.runtime.precision  # free for one run, but it moves every number
        whole = {"budget": self.budget, "settings": settings, "cells": sorted(cell.name for cell in self.cells)}
        return dict(json.loads(json.dumps(whole)))


def make_grid(
    settings: Mapping[str, Any], kinds: Sequence[str], rates: Sequence[float], methods: str, seeds: int, budget: str
) -> Grid:
    """A grid from what a user gives; every mistake that can be seen without data is one clear line."""
    if budget not in BUDGETS:
        raise ValueError(f"--budget must be one of {', '.join(BUDGETS)}, got {budget!r}")
    if seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    arms = method_arms(methods)
    for key in settings:
        if key.startswith("method.") and not any(key in options({"method": split_arm(arm)[0]}) for arm in arms):
            raise ValueError(f"none of the methods compared has {key!r}")
    first = convert(settings.get("seed", 0), int, "seed")
    settings = {key: value for key, value in settings.items() if key != "seed"}
    grid = Grid(settings, noise_settings(kinds, rates), arms, tuple(range(first, first + seeds)), budget)
    names = [cell.name for cell in grid.cells]  # resolves every configuration
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two cells have the same name, {twice}: rates are told apart by six digits")
    return grid


def method_arms(words: str) -> tuple[str, ...]:
    """``all``, or names separated by commas; a name may bring settings of its own: ``elr:lam=7:beta=0.9``."""
    arms: list[str] = []
    for word in filter(None, map(str.strip, words.split(","))):
        name, colon, own = word.partition(":")
        name = name.replace("-", "_")
        if name not in METHODS and word != "all":
            raise ValueError(f"unknown method {name!r}; {nearest(name, METHODS)}")
        arms += METHODS if word == "all" else [name + colon + own]
        split_arm(arms[-1])
    if not arms:
        raise ValueError("--methods is empty; give all, or names separated by commas")
    return tuple(dict.fromkeys(arms))


def split_arm(arm: str) -> tuple[str, dict[str, str]]:
    """Name of the method, and the settings that this arm alone has."""
    name, *pairs = arm.split(":")
    own: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (equals and key and value):
            raise ValueError(f"cannot read {arm!r}; write a method with its settings as {name}:NAME=VALUE")
        if (full := f"method.{key}") not in (known := options({"method": name})) or key == "name":
            own_names = [k.removeprefix("method.") for k in known if k.startswith("method.") and k != "method.name"]
            raise ValueError(f"{name} has no argument {key!r}; {nearest(key, own_names)}")
        own[full] = value
    return name, own


def noise_settings(kinds: Sequence[str], rates: Sequence[float]) -> tuple[tuple[str, float], ...]:
    """Every kind of noise at every rate; a kind without a rate once."""
    kinds = [kind.strip().replace("-", "_") for kind in kinds if kind.strip()] or ["none"]
    if rates and all(kind in RATELESS for kind in kinds):
        raise ValueError(f"--noise.rate has no meaning for noise {kinds[0]!r}; give --noise symmetric, say")
    if not rates and (needy := [kind for kind in kinds if kind not in RATELESS]):
        raise ValueError(f"noise {needy[0]!r} needs --noise.rate: 0.2,0.4, say")
    return tuple(
        dict.fromkeys((kind, rate) for kind in kinds for rate in ((0.0,) if kind in RATELESS else rates))
    )  # in the order given, none twice


def setting_name(kind: str, rate: float) -> str:
    """``symmetric-0.4``."""
    return kind if kind in RATELESS else f"{kind}-{rate:g}"


def _equal(settings: Mapping[str, Any]) -> Config:
    """As many gradient evaluations of an example as cross entropy has epochs, along the same learning-rate curve."""
    config = resolve(settings)
    method = config.make_method()
    epochs = max(1, round(config.epochs / method.backwards))
    if epochs == config.epochs and len(method.plan(epochs)) == 1:
        return config
    # A schedule's epochs count from the start of a stage: in fewer of them it would end high up on its curve.
    return resolve({"schedule.epochs": config.epochs, **settings, "epochs": epochs})


def _authors(settings: Mapping[str, Any], authors: Mapping[str, Any]) -> Config:
    """Epochs, optimizer and schedule of the authors; data, noise, network and what is set for the method as given."""
    if authors:
        settings = {key: value for key, value in settings.items() if not is_schedule(key)}
    return resolve({**authors, **settings})


def is_schedule(key: str) -> bool:
    """Whether ``--budget authors`` decides this option."""
    return key in ("epochs", "optim", "schedule") or key.startswith(("optim.", "schedule."))


def claim_grid(out: Path, grid: Grid) -> None:
    """Make sure that ``out`` is new, empty, or holds this comparison or a part of it. Changes nothing."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file, not a folder; choose another --out")
    if out.is_dir() and any(not path.name.startswith(".") for path in out.iterdir()):
        if not (out / "bench.json").is_file():
            raise ValueError(f"{out} is not empty and holds no comparison; choose another --out")
        _compare(out, dict(read_json(out / "bench.json")).get("grid", {}), grid.identity())
    for cell in grid.cells:
        claim(folder(out, cell), cell.config, resume=True)


def _compare(out: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    if theirs.get("budget") != ours["budget"]:
        raise ValueError(
            f"{out} holds another comparison: its budget is {theirs.get('budget')!r}, here it is {ours['budget']!r}"
        )
    a, b = theirs.get("settings", {}), ours["settings"]
    for key in {**b, **a}:
        if a.get(key) != b.get(key):
            raise ValueError(f"{out} holds another comparison: its {key} is {a.get(key)!r}, here it is {b.get(key)!r}")
    if gone := [name for name in theirs.get("cells", ()) if name not in ours["cells"]]:
        raise ValueError(f"{out} holds a comparison with more in it ({gone[0]}); choose another --out")


class Named(Protocol):
    """Whatever has a folder of its own below ``DIR/runs``."""

    @property
    def name(self) -> str:
        """The folder."""
        ...


def folder(out: Path, cell: Named) -> Path:
    """Run directory of a cell."""
    return out / "runs" / cell.name


def is_done(out: Path, cell: Named) -> bool:
    """Whether a cell has run to its end."""
    return (folder(out, cell) / "summary.json").is_file()
