"""A whole search: what is fixed, what is searched, how, and the folder and configuration of every run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from elr.config import Config, Option, resolve
from elr.convert import convert
from elr.job.claim import claim
from elr.report.records import read_json, read_lines
from elr.tune.space import Point, Space, make_space, spelled

Sampler = Literal["grid", "tpe", "random"]
SAMPLERS: tuple[Sampler, ...] = get_args(Sampler)
TRIALS = 20  # of a search that has no end of its own


@dataclass(frozen=True)
class Search:
    """All that decides what is tried and how it is judged."""

    settings: Mapping[str, Any]  # dotted, as given: what all trials share
    space: Space
    sampler: Sampler
    trials: int  # of the whole search, whoever runs them
    seeds: tuple[int, ...]  # runs of a trial
    prune: bool

    def config(self, point: Mapping[str, Any], seed: int) -> Config:
        """Configuration of a run as ``elr train`` would have it."""
        return resolve({**self.settings, **point, "seed": seed})

    def cell(self, point: Mapping[str, Any], seed: int) -> Config:
        """The same on one thread, for runs side by side, unless the user says otherwise."""
        return resolve({"runtime.threads": 1, **self.settings, **point, "seed": seed})

    @cached_property
    def base(self) -> Config:
        """Everything at its default, or at what was given for all trials."""
        return self.config({}, self.seeds[0])

    @cached_property
    def default(self) -> Point:
        """The point that would be used without a search: the paper's values, where they are the defaults."""
        values = self.base.flat()
        return {key: values[key] for key in self.space.names}

    def points(self) -> list[Point]:
        """What is tried first: all of a grid, otherwise the default, which every other point has to beat."""
        first = [self.default] if self.space.holds(self.default) else []
        return first + [p for p in self.space.grid() if p != self.default] if self.sampler == "grid" else first

    def identity(self) -> dict[str, Any]:
        """What must be equal for results to stand in one table, as plain as JSON gives it back."""
        settings = {key: v for key, v in self.base.identity().items() if key not in self.space.names and key != "seed"}
        settings["runtime.precision"] = self.base.runtime.precision  # free for one run, but it moves every number
        whole = {
            "search": self.space.words(),
            "sampler": self.sampler,
            "seeds": list(self.seeds),
            "default": self.default,
            "settings": settings,
        }
        return dict(json.loads(json.dumps(whole)))


def make_search(
    settings: Mapping[str, Any],
    searches: Sequence[str],
    known: Mapping[str, Option],
    *,
    sampler: str = "grid",
    trials: int | None = None,
    seeds: int = 1,
    prune: str = "none",
) -> Search:
    """A search from what a user gives; every mistake that can be seen without data is one clear line."""
    for name, value, choices in (("sampler", sampler, SAMPLERS), ("prune", prune, ("none", "median"))):
        if value not in choices:
            raise ValueError(f"--{name} must be one of {', '.join(choices)}, got {value!r}")
    for name, number in (("seeds", seeds), ("trials", trials)):
        if number is not None and number < 1:
            raise ValueError(f"--{name} must be at least 1, got {number}")
    space = make_space(searches, resolve(settings).method.name, known)
    points = space.grid()
    if sampler == "grid":
        if space.ranges:
            raise ValueError(
                f"a grid needs lists, but {spelled(space.ranges[0])} is a range; give --sampler tpe or random"
            )
        if trials is not None:
            raise ValueError(
                f"--trials is for --sampler tpe and random: a grid is run whole, here {len(points)} points"
            )
    first = convert(settings.get("seed", 0), int, "seed")
    found = {key: value for key, value in settings.items() if key != "seed"}
    total = len(points) if sampler == "grid" else trials or TRIALS
    search = Search(found, space, _sampler(sampler), total, tuple(range(first, first + seeds)), prune == "median")
    for point in points:
        search.config(point, first)  # refuses values out of range before hours of work
    return search


def _sampler(name: str) -> Sampler:
    return next(sampler for sampler in SAMPLERS if sampler == name)


def claim_search(out: Path, search: Search) -> None:
    """Make sure that ``out`` is new, empty, or holds this search. Changes nothing."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file, not a folder; choose another --out")
    if not out.is_dir() or all(path.name.startswith(".") for path in out.iterdir()):
        claim(out, search.base, resume=True)  # may we write there?
        return
    if not (out / "tune.json").is_file():
        raise ValueError(f"{out} is not empty and holds no search; choose another --out")
    theirs, ours = dict(read_json(out / "tune.json")).get("identity", {}), search.identity()
    for key in ("sampler", "seeds", "search", "default"):
        _same(out, key, theirs.get(key), ours[key])
    a, b = theirs.get("settings", {}), ours["settings"]
    for key in {**b, **a}:
        _same(out, key, a.get(key), b.get(key))


def _same(out: Path, key: str, theirs: Any, ours: Any) -> None:
    if theirs != ours:
        raise ValueError(f"{out} holds another search: its {key} is {theirs!r}, here it is {ours!r}")


def trial_folder(out: Path, search: Search, point: Mapping[str, Any]) -> Path:
    """Folder of a trial: a run directory for each seed."""
    return out / "runs" / search.space.folder(point)


def run_folder(out: Path, search: Search, point: Mapping[str, Any], seed: int) -> Path:
    """An ordinary run directory."""
    return trial_folder(out, search, point) / f"seed{seed}"


def objective(run: Path) -> float | None:
    """What a finished run is judged by: smoothed accuracy on validation (noisy labels) at the epoch that is its result.

    The last epoch, or the selected one for a method whose result that is. Test labels and true labels play no part.
    """
    if not (run / "summary.json").is_file():
        return None
    summary, records = read_json(run / "summary.json"), read_lines(run / "records.jsonl")
    epoch = summary["selected_epoch"] if summary["result"] == "selected" else len(records)
    return float(records[epoch - 1]["val_smoothed"])


def trial_value(out: Path, search: Search, point: Mapping[str, Any]) -> float | None:
    """Mean over the seeds; None before all have ended."""
    found = [objective(run_folder(out, search, point, seed)) for seed in search.seeds]
    values = [value for value in found if value is not None]
    return sum(values) / len(values) if len(values) == len(found) else None
