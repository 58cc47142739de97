"""The results of a search: one row a point, the choice, and a page that says all that the numbers need beside them."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elr.bench.table import aligned
from elr.report.records import read_json, write_csv
from elr.tune.choice import Choice, Scored, choose, standard_error
from elr.tune.search import Search, objective, run_folder
from elr.tune.space import Point, shown

Row = dict[str, Any]
LEGEND = (
    "Validation: accuracy in % against the given labels of held-out examples, smoothed over three epochs, at the epoch "
    "that is the method's result (the last one, or the selected one), mean over seeds; ± its standard error (binomial, "
    "or by the spread over seeds if that is larger). Trials of one seed share their validation examples, so that "
    "differences are surer than these errors say. Test accuracy stands here for the record only."
)


def collect(search: Search, out: Path, entries: Sequence[tuple[int, Point, str, str]]) -> list[Row]:
    """A row for each point, from the run directories, best first.

    Args:
        search: the search.
        out: its folder.
        entries: number, point, status and note of every trial.
    """
    rows = [_row(search, out, *entry) for entry in entries]
    order = {"done": 0, "pruned": 1, "failed": 2, "running": 3, "waiting": 4}
    return sorted(rows, key=lambda row: (order[row["status"]], -(row["val_accuracy"] or 0.0), row["trial"]))


def _row(search: Search, out: Path, number: int, point: Point, status: str, note: str) -> Row:
    row: Row = {"trial": number, "point": point, "status": status, "note": note, "val_accuracy": None}
    row |= {"standard_error": None, "seeds": 0, "epochs": None, "seconds": None, "test_accuracy_not_used": None}
    if status != "done":
        return row
    runs = [run_folder(out, search, point, seed) for seed in search.seeds]
    values = [value for value in map(objective, runs) if value is not None]
    if len(values) < len(runs):
        raise ValueError(f"a trial in {out} is done, but its runs are not there; remove the folder and search anew")
    sizes = [int(read_json(run / "data.json")["val_examples"]) for run in runs]
    summaries = [read_json(run / "summary.json") for run in runs]
    key = "selected_test_accuracy" if summaries[0]["result"] == "selected" else "test_accuracy"
    tested = [summary[key] for summary in summaries if summary[key] is not None]
    return row | {
        "val_accuracy": statistics.mean(values),
        "standard_error": standard_error(values, sizes),
        "seeds": len(runs),
        "epochs": summaries[0]["epochs"],
        "seconds": round(sum(summary["seconds"] for summary in summaries), 3),
        "test_accuracy_not_used": statistics.mean(tested) if tested else None,
    }


def choice_of(search: Search, rows: Sequence[Row]) -> Choice | None:
    """What the rows that are done say."""
    done = [row for row in rows if row["status"] == "done"]
    scored = [Scored(row["trial"], row["point"], row["val_accuracy"], row["standard_error"]) for row in done]
    return choose(scored, search.default, search.space)


def mark(search: Search, rows: Sequence[Row], choice: Choice | None) -> None:
    """Say in each row what it is: best, chosen, near, default."""
    near = {trial.number for trial in choice.near} if choice else set()
    for row in rows:
        row["best"] = choice is not None and row["trial"] == choice.best.number
        row["chosen"] = choice is not None and row["trial"] == choice.chosen.number
        row["near"] = row["trial"] in near
        row["default"] = row["point"] == search.default


def write_trials(path: Path, search: Search, rows: Sequence[Row]) -> None:
    """Write the rows as CSV, a column for every option searched."""
    others = [key for key in rows[0] if key not in ("point", "trial")] if rows else []
    flat = [{**row, **row["point"]} for row in rows]
    write_csv(path, flat, ["trial", *search.space.names, *others])


def page(names: Mapping[str, str], rows: Sequence[Row], about: Mapping[str, Any]) -> str:
    """Table, choice, legend and provenance as Markdown that can be read as it stands.

    Args:
        names: short name of every option searched, by its key.
        rows: as ``mark`` left them.
        about: what tune.json holds.
    """
    head = ["trial", *names.values(), f"{about['val_labels']} validation", "test (not used)", ""]
    lines = [
        [str(row["trial"]), *(shown(row["point"][key]) for key in names), *_numbers(row), _note(row)] for row in rows
    ]
    facts = about["facts"]
    versions = ", ".join(
        f"{name} {facts[name]}" for name in ("elr", "torch", "optuna", "numpy", "scikit-learn") if name in facts
    )
    choice = (
        about["choice"]["reason"]
        if about["choice"]
        else "No trial has run to its end: there is nothing to choose from."
    )
    identity = about["identity"]
    return (
        f"# {about['method']} on {about['data']}: {len(rows)} trials\n\n"
        f"{aligned([head, *lines])}\n{choice}\n\n{LEGEND}\n\n`{about['command']}`\n\n"
        f"{about['model']}, {about['epochs']} epochs; {len(identity['seeds'])} seed(s) from {identity['seeds'][0]}; "
        f"{about['val_examples']:,} validation examples; sampler {identity['sampler']}; {about['jobs']} process(es) of "
        f"{about['threads']} thread(s). Python {facts['python']}, {versions}; {facts['cpu']}, {facts['cores']} cores; "
        f"commit {facts['commit']}.\n"
    )


def _numbers(row: Row) -> list[str]:
    if row["val_accuracy"] is None:
        return ["not run" if row["status"] in ("waiting", "running") else row["status"], "-"]
    tested = row["test_accuracy_not_used"]
    value = f"{100 * row['val_accuracy']:.1f} ± {100 * row['standard_error']:.1f}"
    return [value, "-" if tested is None else f"{100 * tested:.1f}"]


def _note(row: Row) -> str:
    words = [word for word in ("chosen", "best", "default") if row[word]]
    if row["near"] and not row["best"]:
        words.append("within one s.e.")
    return ", ".join([*words, *([row["note"]] if row["note"] else [])])
