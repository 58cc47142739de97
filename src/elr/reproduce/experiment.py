"""What a figure or table is made of: runs by row and column, and a way to show them."""

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from elr.config import Config, read_toml, resolve
from elr.report.records import Record, read_json, read_lines
from elr.reproduce.scale import UNWATCHED, Scale, Settings


class Spec(NamedTuple):
    """One run of an experiment, but for its seed."""

    row: str
    column: str
    settings: Settings

    @property
    def label(self) -> str:
        """``cifar10 symmetric 0.4/ELR``: what --only is matched with."""
        return f"{self.column}/{self.row}"


@dataclass(frozen=True)
class Trial:
    """One run. Its folder is named by what it is, so that two figures made of the same run share it."""

    spec: Spec
    seed: int
    given: Mapping[str, Any]  # where data are, how to compute: nothing that changes what is run

    @cached_property
    def config(self) -> Config:
        """The resolved configuration."""
        return resolve({"runtime.threads": 1, **UNWATCHED, **self.spec.settings, **self.given, "seed": self.seed})

    @cached_property
    def name(self) -> str:
        """Folder below ``OUT/runs``."""
        config = self.config
        noise = config.noise.kind if config.noise.kind == "none" else f"{config.noise.kind}{config.noise.rate:g}"
        return f"{config.data.source}-{noise}-{config.method.name}-seed{self.seed}-{config.digest()[:10]}"

    @property
    def epochs(self) -> int:
        """Epochs that will be recorded."""
        return self.config.planned_epochs

    @property
    def work(self) -> float:
        """Epochs of cross entropy that cost as much, by arithmetic."""
        return self.config.work


class Finished(NamedTuple):
    """What a run left on disk."""

    trial: Trial
    summary: Mapping[str, Any]
    records: Sequence[Record]
    precision: str  # it was run in, which is not part of what it is: another machine may have another

    @classmethod
    def read(cls, out: Path, trial: Trial) -> "Finished | None":
        """The run of this trial, if it is finished."""
        path = out / "runs" / trial.name
        if not (path / "summary.json").is_file():
            return None
        precision = str(read_toml(path / "config.toml").get("runtime.precision", "float32"))
        return cls(trial, dict(read_json(path / "summary.json")), read_lines(path / "records.jsonl"), precision)

    @property
    def network(self) -> str:
        """The network in a word, with its widths if it has such."""
        model = self.trial.config.model
        widths = model.arguments.get("widths")
        return model.name + (f" {'/'.join(map(str, widths))}" if widths else "")


# By row and column; a run that is not there is missing from its list.
Results = Mapping[tuple[str, str], Sequence[Finished]]


class Shown(NamedTuple):
    """A figure or table in words and numbers. Pictures are written beside it."""

    rows: list[dict[str, Any]]  # tidy, for CSV
    text: str  # Markdown


class View(NamedTuple):
    """What there is to show, and where to."""

    name: str
    results: Results
    folder: Path  # for pictures
    scale: Scale
    given: Mapping[str, Any]
    out: Path  # where runs are
    measure: bool = True  # what has to be measured first may be

    @property
    def stem(self) -> Path:
        """Pictures without their suffix."""
        return self.folder / self.name


Show = Callable[[View], Shown]


def spread(values: Sequence[float | None], digits: int = 2) -> str:
    """Mean, and standard deviation if there are several; a dash for nothing."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    text = f"{statistics.fmean(known):.{digits}f}"
    return text + (f" ± {statistics.stdev(known):.{digits}f}" if len(known) > 1 else "")


def _one(scale: Scale) -> int:
    # PAPER lines 350 and 488: five noise realisations in Tables 1 and 5. Of Table 2 it does not say how many.
    return 1 if scale == "laptop" else 5


@dataclass(frozen=True)
class Experiment:
    """A figure or table of the paper."""

    name: str
    title: str
    place: str  # in the paper
    specs: Callable[[Scale], Sequence[Spec]]
    show: Show
    seeds: Callable[[Scale], int] = field(default=_one)
    measured: Callable[[Path], float] = field(default=lambda place: 0.0)  # epochs of CE to train when it is shown

    def trials(self, scale: Scale, given: Mapping[str, Any], seeds: int | None = None) -> list[Trial]:
        """Every run; all of the first seed before the second, so that a queue cut short compares like with like."""
        specs = self.specs(scale)
        return [Trial(spec, seed, given) for seed in range(seeds or self.seeds(scale)) for spec in specs]


def made_of(results: Results) -> dict[str, Any]:
    """Networks, epochs, seeds, arithmetic, machines and minutes of these runs, with how many runs have each."""
    runs = {run.trial.name: run for runs in results.values() for run in runs}.values()
    machines = (f"{facts['cpu']}, torch {facts['torch']}" for facts in (run.summary["facts"] for run in runs))
    return {
        "runs": len(runs),
        "networks": Counter(run.network for run in runs),
        "epochs": Counter(str(run.summary["epochs"]) for run in runs),
        "seeds": Counter(str(run.trial.seed) for run in runs),
        "precision": Counter(run.precision for run in runs),
        "machines": Counter(machines),
        "minutes": round(sum(run.summary["seconds"] for run in runs) / 60, 1),
    }


def collect(out: Path, trials: Sequence[Trial]) -> dict[tuple[str, str], list[Finished]]:
    """What is finished, by row and column."""
    found: dict[tuple[str, str], list[Finished]] = {(t.spec.row, t.spec.column): [] for t in trials}
    for trial in trials:
        finished = Finished.read(out, trial)
        if finished is not None:
            found[trial.spec.row, trial.spec.column].append(finished)
    return found
