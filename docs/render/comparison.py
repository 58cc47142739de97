"""Methods compared by `elr bench`."""

from pathlib import Path
from typing import Any

from docs.render.markdown import ROOT
from elr.bench.table import overview, provenance, read_csv, tables, title
from elr.methods import METHODS
from elr.report.records import read_json

# What results/bench_digits and results/bench_cifar10 are to hold.
DIGITS_NOISE = (("symmetric", 0.2), ("symmetric", 0.4), ("symmetric", 0.6), ("symmetric", 0.8), ("pair", 0.4))
CIFAR_NOISE = (("symmetric", 0.4), ("asymmetric", 0.4))


def bench_digits() -> str:
    """The comparison on digits: every method of the registry has a row, run or not."""
    return _comparison("bench_digits", DIGITS_NOISE, whole=True)


def bench_cifar10() -> str:
    """The comparison on CIFAR-10 of some methods."""
    return _comparison("bench_cifar10", CIFAR_NOISE, whole=False)


def _comparison(name: str, noises: tuple[tuple[str, float], ...], *, whole: bool) -> str:
    """An overview of the result files ``results/NAME/*.csv``, then each of them; what is in none of them is named."""
    found: list[dict[str, Any]] = []
    parts: list[str] = []
    for path in result_files(name):
        rows = read_csv(path)
        rows += _missing(rows) if whole else []
        parts += [tables(rows), _source(path)]
        found += rows
    seen = {(row["noise"], row["rate"]) for row in found}
    missing = [title(kind, rate, []) for kind, rate in noises if (kind, rate) not in seen]
    parts += [f"### {text}\n\nnot run\n" for text in missing]
    picture = f"figures/{name}.svg"
    if (ROOT / "docs" / picture).exists():
        parts.insert(0, f"![every method at its last and at its chosen epoch]({picture})\n")
    for budget in sorted({row["budget"] for row in found}, reverse=True):
        parts.insert(0, f"Budget `{budget}`:\n\n" + overview([row for row in found if row["budget"] == budget]))
    return "\n" + "\n".join(parts) + "\n"


def result_files(name: str) -> list[Path]:
    """The result files of a comparison, symmetric noise first."""
    return sorted((ROOT / "results" / name).glob("*.csv"), key=lambda path: (path.stem != "symmetric", path.stem))


def _missing(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that say "not run" for methods that came after a result file."""
    have = {row["method"] for row in rows}
    empty = {"status": "not run", "epochs": "-", "result": "last", "seconds": None, "cost": None}
    return [
        {"noise": kind, "rate": rate, "budget": rows[0]["budget"], "method": name, "arithmetic": cls().cost, **empty}
        for kind, rate in dict.fromkeys((row["noise"], row["rate"]) for row in rows)
        for name, cls in METHODS.items()
        if name not in have
    ]


def _source(path: Path) -> str:
    """Where the numbers of a file come from: bench.json beside table.csv, NAME.json beside NAME.csv."""
    about = path.with_suffix(".json") if path.stem != "table" else path.with_name("bench.json")
    shown = path.relative_to(ROOT).as_posix()
    if not about.exists():
        return f"`{shown}`\n"
    return f"`{shown}`. " + provenance(read_json(about))
