"""The results of a comparison: one tidy row a cell, and tables of means and spreads made from them."""

import csv
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elr.bench.grid import Cell, Grid, folder, is_done, setting_name
from elr.report.comparison import noises_of, result_of
from elr.report.records import read_json, read_lines, write_text

Row = dict[str, Any]
NOT_RUN = "not run"
COLUMNS = (
    "noise",
    "rate",
    "method",
    "seed",
    "budget",
    "status",  # done, failed, not run
    "result",  # whose numbers are the method's: the last epoch's, or those of the epoch selected on noisy validation
    "epochs",
    "gradients",  # gradient evaluations of the run for a training example: what cross entropy takes in so many epochs
    "test_accuracy",
    "selected_test_accuracy",
    "selected_epoch",
    "val_accuracy",
    "selected_val_accuracy",
    "clean_correct",
    "wrong_correct",
    "wrong_memorized",
    "selected_wrong_memorized",
    "flip_rate",
    "seconds",  # of the whole run by itself, from timed epochs
    "cost",  # epoch relative to cross entropy, measured
    "arithmetic",  # the same by counting forwards and backwards
    "backwards",
)
LEGEND = (
    "Mean ± standard deviation over seeds, in %. *Last*: after the last epoch; *chosen*: at the epoch that is best on "
    "noisy validation (without a test part, an optimistic number); with an asterisk: a method whose result is the "
    "chosen epoch, and stands in the order by it. *Memorised*: part of the wrong training labels that the result "
    "predicts. *Gradients*: gradient evaluations for a training example in the whole run, counted. *Seconds* of a run "
    "by itself; *cost* of an epoch relative to cross entropy, measured, and by *arithmetic*, counting forwards and "
    "backwards."
)
BUDGETS = {
    "equal": "same network, batch, augmentation and optimizer, and the same number of gradient evaluations: a method "
    "that takes k of them for an example in an epoch has 1/k of the epochs. For methods that select examples k is what "
    "is usual; the column of gradients says what they took. The learning rate is the same function of the part of a "
    "stage that is done; methods whose authors give a stage a rate of its own keep it, relative to the run's. "
    "Forward passes without a gradient are free under this budget; the column of cost counts them.",
    "authors": "each method has the epochs, optimizer, batch and learning-rate schedule of its authors on CIFAR-10, as "
    "far as they are known; network and data are the same for all. Methods differ in gradients and in cost: compare "
    "both.",
}


def tidy(grid: Grid, out: Path, timing: Mapping[str, Mapping[str, Any]], failures: Mapping[str, str]) -> list[Row]:
    """A row for each cell, from the run directories."""
    return [_row(cell, grid.budget, out, timing.get(cell.method, {}), failures) for cell in grid.cells]


def _row(cell: Cell, budget: str, out: Path, timed: Mapping[str, Any], failures: Mapping[str, str]) -> Row:
    method = cell.config.make_method()
    row: Row = {"noise": cell.noise, "rate": cell.rate, "method": cell.method, "seed": cell.seed, "budget": budget}
    row |= {"result": method.keeps, "epochs": cell.epochs, "arithmetic": method.cost, "backwards": method.backwards}
    row["cost"] = timed.get("cost")
    row["seconds"] = timed["epoch_seconds"] * cell.epochs if timed else None
    if not is_done(out, cell):
        return row | {"status": "failed" if cell.name in failures else NOT_RUN}
    run = folder(out, cell)
    summary = read_json(run / "summary.json")
    row |= {"status": "done", **{key: summary[key] for key in COLUMNS if key in summary and key not in row}}
    row["flip_rate"] = (summary["noise"] or {}).get("flip_rate")
    if summary["selected_epoch"] is not None:
        chosen = read_lines(run / "records.jsonl")[summary["selected_epoch"] - 1]
        row["selected_val_accuracy"] = chosen.get("val_accuracy")
    return row


def read_csv(path: Path) -> list[Row]:
    """Rows as ``write_csv`` left them, numbers as numbers."""
    with open(path, newline="", encoding="utf-8") as file:
        return [{key: _value(text) for key, text in row.items()} for row in csv.DictReader(file)]


def _value(text: str) -> Any:
    if text == "":
        return None
    try:
        return float(text) if any(c in text for c in ".en") else int(text)
    except ValueError:
        return text


def write_table(path: Path, rows: Sequence[Row], about: Mapping[str, Any], failures: Mapping[str, str]) -> None:
    """The page of a comparison."""
    write_text(path, page(rows, about, failures))


def page(rows: Sequence[Row], about: Mapping[str, Any], failures: Mapping[str, str]) -> str:
    """Title, tables, what failed, and all that the numbers need beside them."""
    parts = [f"# {about['data']}: {len({row['method'] for row in rows})} methods compared\n\n", tables(rows)]
    if failures:
        parts.append("\nFailed:\n\n" + "".join(f"- {name}: {reason}\n" for name, reason in failures.items()))
    return "".join([*parts, f"\n{LEGEND}\n\n", provenance(about)])


def provenance(about: Mapping[str, Any]) -> str:
    """Budget, command, versions, machine: without these a number means nothing."""
    facts, timing = about["facts"], next(iter((about["timing"] or {}).values()), None)
    versions = ", ".join(f"{name} {facts[name]}" for name in ("elr", "torch", "numpy", "scikit-learn") if name in facts)
    timed = (
        f"times: {timing['epochs']} epochs of at most {timing['rows']:,} examples with noise {timing['noise']}, "
        f"{timing['rounds']} rounds, one at a time in turns with cross entropy, {timing['threads']} thread(s)"
        if timing
        else "times: not measured"
    )
    return (
        f"Budget `{about['budget']}`: {BUDGETS[about['budget']]}\n\n"
        f"`{about['command']}`\n\n"
        f"{about['model']}; {about['jobs']} process(es) of {about['threads']} thread(s); {timed}. "
        f"Python {facts['python']}, {versions}; {facts['cpu']}, {facts['cores']} cores; commit {facts['commit']}.\n"
    )


def tables(rows: Sequence[Row]) -> str:
    """A table for each noise setting, best result first."""
    settings = noises_of(rows)
    return "\n".join(
        _table(kind, rate, [r for r in rows if (r["noise"], r["rate"]) == (kind, rate)]) for kind, rate in settings
    )


def overview(rows: Sequence[Row]) -> str:
    """Accuracy at the last epoch (at the chosen one) of every method at every noise: best mean result first."""
    settings = noises_of(rows)
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = []
    for name in methods:
        cells, levels = [_shown(rows, name)], []
        for kind, rate in settings:
            own = [row for row in rows if (row["noise"], row["rate"], row["method"]) == (kind, rate, name)]
            done = [row for row in own if row["status"] == "done"]
            last, chosen = percent(done, "test_accuracy"), percent(done, "selected_test_accuracy")
            cells.append(f"{last} ({chosen.partition(' ')[0]})" if done else NOT_RUN)
            levels.append(result_of(own, name))
        lines.append((statistics.mean(levels), cells))
    heads = ["test, last (chosen)", *(setting_name(kind, rate).replace("-", " ") for kind, rate in settings)]
    return aligned([heads, *(cells for _, cells in sorted(lines, key=lambda line: -line[0]))])


def _table(kind: str, rate: float, rows: Sequence[Row]) -> str:
    methods = sorted(dict.fromkeys(row["method"] for row in rows), key=lambda name: -result_of(rows, name))
    measure = "test" if any(row.get("test_accuracy") is not None for row in rows) else "noisy validation"
    prefix = "test" if measure == "test" else "val"
    heads = ["method", "epochs", "gradients", f"{measure}, last", f"{measure}, chosen", "memorised"]
    heads += ["seconds", "cost / CE", "arithmetic", "seeds"]
    lines = [heads]
    for name in methods:
        own = [row for row in rows if row["method"] == name]
        done = [row for row in own if row["status"] == "done"]
        planned = [row for row in own if row.get("seed") is not None]
        taken = [row["gradients"] for row in done if row.get("gradients") is not None]
        cells = [_shown(rows, name), str(own[0]["epochs"]), _number(statistics.mean(taken) if taken else None, ".0f")]
        cells += [percent(done, f"{prefix}_accuracy"), percent(done, f"selected_{prefix}_accuracy")]
        cells.append(percent(done, "selected_wrong_memorized" if own[0]["result"] == "selected" else "wrong_memorized"))
        cells += [_number(own[0]["seconds"], ".0f"), _number(own[0]["cost"], ".2f"), f"{own[0]['arithmetic']:.2f}"]
        cells.append(f"{len(done)}" if len(done) == len(planned) else f"{len(done)} of {len(planned)}")
        lines.append(cells)
    return f"### {title(kind, rate, rows)}\n\n{aligned(lines)}"


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table that can be read as it stands, on a terminal say; the first line is its head."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    head, *body = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["-" * width for width in widths], *body))


def title(kind: str, rate: float, rows: Sequence[Row]) -> str:
    """``symmetric noise, 40 % (36 % of the labels wrong)``."""
    flips = [row["flip_rate"] for row in rows if row.get("flip_rate") is not None]
    wrong = f" ({100 * statistics.mean(flips):.0f} % of the labels wrong)" if flips else ""
    return f"{kind} noise, {100 * rate:g} %{wrong}" if setting_name(kind, rate) != kind else f"noise: {kind}{wrong}"


def _shown(rows: Sequence[Row], method: str) -> str:
    """Its name, with an asterisk if its result is the chosen epoch."""
    return f"{method} \\*" if any(r["method"] == method and r["result"] == "selected" for r in rows) else method


def percent(rows: Sequence[Row], key: str) -> str:
    """Mean ± standard deviation over seeds, in percent."""
    values = [100.0 * row[key] for row in rows if row.get(key) is not None]
    if not values:
        return NOT_RUN if not rows else "-"
    mean = f"{statistics.mean(values):.1f}"
    return f"{mean} ± {statistics.stdev(values):.1f}" if len(values) > 1 else mean


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
