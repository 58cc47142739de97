"""Which runs an order consists of, in which order they are run, and what is written when they are done."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from elr.bench.grid import folder, is_done
from elr.config import nearest
from elr.job.claim import claim
from elr.report.machine import facts
from elr.report.records import read_lines, write_csv, write_json, write_text
from elr.reproduce.catalogue import EXPERIMENTS, PRIORITY
from elr.reproduce.experiment import Experiment, Shown, Trial, View, collect, made_of
from elr.reproduce.scale import SCALES, Scale

MOST_SEEDS = 5  # that are looked for when a table is shown: the paper's noise realisations


class Order(NamedTuple):
    """A figure or table, or a part of it."""

    experiment: Experiment
    trials: list[Trial]  # those that are wanted
    everything: list[Trial]  # those that it has: what is not run is shown as "not run"


def as_scale(word: str) -> Scale:
    """A scale by name."""
    for scale in SCALES:
        if word == scale:
            return scale
    raise ValueError(f"--scale must be one of {', '.join(SCALES)}, got {word!r}")


def orders(
    names: Sequence[str], scale: Scale, given: Mapping[str, Any], *, only: str = "*", seeds: int | None = None
) -> list[Order]:
    """What these names ask for, in order of priority; ``all`` is everything."""
    found: list[Order] = []
    wanted = _wanted(names)
    for name, pattern in wanted:
        experiment = EXPERIMENTS[name]
        if name == "human" and "data.labels" not in given:
            if "human" in names:
                raise ValueError("human labels are in a file of their own: give --labels FILE (CIFAR-10N as .npz)")
            warnings.warn("human is left out: its labels are in a file of their own, --labels FILE", stacklevel=2)
            continue
        everything = experiment.trials(scale, own_settings(experiment, given), seeds)
        trials = [t for t in everything if _matches(t, pattern) and _matches(t, only)]
        if trials or (not everything and only == "*"):
            found.append(Order(experiment, trials, everything))
    if not found:
        labels = [spec.label for name, _ in wanted for spec in EXPERIMENTS[name].specs(scale)]
        hint = f"a name is {labels[0]!r}, say" if labels else f"{', '.join(names)} cannot be divided"
        raise ValueError(f"--only {only!r} matches nothing; {hint}")
    return found


def _wanted(names: Sequence[str]) -> list[tuple[str, str]]:
    wanted: list[tuple[str, str]] = []
    for name in names:
        if name == "all":
            wanted += PRIORITY
            if rest := [other for other in EXPERIMENTS if other not in {known for known, _ in PRIORITY} | {*names}]:
                warnings.warn(f"{', '.join(rest)} are left out: name them if their data are here", stacklevel=3)
        elif name in EXPERIMENTS:
            wanted.append((name, "*"))
        else:
            raise ValueError(f"there is no figure or table {name!r}; {nearest(name, EXPERIMENTS)}")
    return wanted


def _matches(trial: Trial, pattern: str) -> bool:
    return fnmatchcase(trial.spec.label, pattern) or fnmatchcase(trial.spec.column, pattern)


def own_settings(experiment: Experiment, given: Mapping[str, Any]) -> dict[str, Any]:
    """Files of labels and of weights belong to the one experiment that is about them."""
    owners = {"data.labels": "human", "model.weights": "table3"}
    return {key: value for key, value in given.items() if owners.get(key, experiment.name) == experiment.name}


def runs(found: Iterable[Order]) -> list[Trial]:
    """Every run once, in order: figures that need the same run share it."""
    return list({trial.name: trial for order in found for trial in order.trials}.values())


def refuse_unfinished(out: Path, trials: Sequence[Trial], *, resume: bool) -> None:
    """Finished runs are used as they are; one that stopped in the middle is gone on with only if that is asked for."""
    for trial in trials:
        path = folder(out, trial)
        claim(path, trial.config, resume=True)
        if not resume and (path / "config.toml").exists() and not is_done(out, trial):
            epochs = len(read_lines(path / "records.jsonl"))
            raise ValueError(
                f"{out} holds an unfinished run of {trial.spec.label} ({epochs} of {trial.epochs} epochs); "
                "go on with --resume, or choose another --out"
            )


def write_report(
    order: Order, out: Path, scale: Scale, given: Mapping[str, Any], command: str, *, measure: bool = True
) -> Shown:
    """Numbers as CSV, words as Markdown, pictures, and how they came about, in ``OUT/NAME``."""
    experiment = order.experiment
    place = out / experiment.name
    place.mkdir(parents=True, exist_ok=True)
    trials = [*order.everything, *_further(order, out, scale, given)]
    own = own_settings(experiment, given)
    results = collect(out, trials)
    view = View(experiment.name, results, place, scale, own, out, measure)
    shown = experiment.show(view)
    write_csv(place / f"{experiment.name}.csv", shown.rows)
    write_text(place / f"{experiment.name}.md", f"# {_heading(experiment)}\n\n{shown.text}")
    about = {
        "experiment": experiment.name,
        "title": experiment.title,
        "place": experiment.place,
        "scale": scale,
        "command": command,
        "settings": _shared([trial.config.identity() for trial in trials]),
        "made_of": made_of(results),
        "facts": facts(),  # of the machine that shows it
    }
    write_json(place / f"{experiment.name}.json", about)
    return shown


def _further(order: Order, out: Path, scale: Scale, given: Mapping[str, Any]) -> list[Trial]:
    """Finished runs of seeds that an earlier command asked for and this one did not: they go on being shown."""
    known = {trial.name for trial in order.everything}
    every = order.experiment.trials(scale, own_settings(order.experiment, given), MOST_SEEDS)
    return [trial for trial in every if trial.name not in known and is_done(out, trial)]


def _heading(experiment: Experiment) -> str:
    return f"{experiment.name}: {experiment.title} ({experiment.place})"


def _shared(identities: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Settings that all runs have in common."""
    if not identities:
        return {}
    first, *rest = identities
    return {k: v for k, v in first.items() if all(other.get(k) == v for other in rest) and k != "data.labels"}
