"""Write the generated parts of the pages: README's file tree and tables, fastnet's curve, methods. ``make docs``."""

import ast
import json
import statistics
from pathlib import Path
from typing import Any

from elr.bench.table import overview, provenance, read_csv, tables, title
from elr.methods import FAMILIES, METHODS
from elr.report.comparison import draw_comparison

ROOT = Path(__file__).resolve().parent.parent
TITLES = {"ce": "cross entropy", "elr": "ELR", "elr_plus": "ELR+"}
COLUMNS = {
    "test_accuracy": "test, last epoch",
    "selected_test_accuracy": "test, chosen on noisy validation",
    "clean_correct": "clean labels right",
    "wrong_correct": "wrong labels right",
    "wrong_memorized": "wrong labels memorised",
    "seconds": "seconds",
}
# What results/bench_digits and results/bench_cifar10 are to hold.
DIGITS_NOISE = (("symmetric", 0.2), ("symmetric", 0.4), ("symmetric", 0.6), ("symmetric", 0.8), ("pair", 0.4))
CIFAR_NOISE = (("symmetric", 0.4), ("asymmetric", 0.4))


def tree() -> str:
    """A line for each source file: the first line of its docstring."""
    lines = []
    for path in sorted((ROOT / "src" / "elr").rglob("*.py")):
        doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        lines.append(f"{path.relative_to(ROOT).as_posix():<42}{doc.partition(chr(10))[0].rstrip('.')}")
    return "```\n" + "\n".join(lines) + "\n```\n"


def digits() -> str:
    """The demo over seeds, from results/digits.json."""
    path = ROOT / "results" / "digits.json"
    if not path.exists():
        return "not run\n"
    found = json.loads(path.read_text(encoding="utf-8"))
    head = "| | " + " | ".join(COLUMNS.values()) + " |\n|---" + "|---" * len(COLUMNS) + "|\n"
    rows = "".join(
        f"| {title} | " + " | ".join(_cell(found["rows"][arm], key) for key in COLUMNS) + " |\n"
        for arm, title in TITLES.items()
        if arm in found["rows"]
    )
    facts = found["facts"]
    source = f"Mean ± standard deviation in %; `results/digits.json` (`{found['command']}`; {facts['cpu']}, "
    return head + rows + f"\n{source}{found['threads']} thread(s), torch {facts['torch']}).\n"


def _cell(results: list[dict[str, Any]], key: str) -> str:
    scale = 1.0 if key == "seconds" else 100.0
    values = [scale * result[key] for result in results]
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def curve() -> str:
    """Accuracy against minutes, from results/fastnet_curve.json."""
    path = ROOT / "results" / "fastnet_curve.json"
    if not path.exists():
        return "not run\n"
    found = json.loads(path.read_text(encoding="utf-8"))
    rows = "".join(
        f"| {'/'.join(map(str, row['widths']))} | {row['epochs']} | {row['seed']} | {100 * row['test_accuracy']:.2f} "
        f"| {row['minutes']:.1f} | {row['facts']['commit']} |\n"
        for row in sorted(found["rows"], key=lambda row: row["minutes"])
    )
    facts = found["facts"]
    source = f"`results/fastnet_curve.json` (`{found['command']}`; {facts['cpu']}, {found['threads']} threads, "
    head = "| channels | epochs | seed | test accuracy at the last epoch, % | training minutes | commit |\n"
    head += "|---|---|---|---|---|---|\n"
    return head + rows + f"\n45,000 training images; {source}torch {facts['torch']}).\n"


def registry() -> str:
    """Every method with its one line, its cost and its source, family by family."""
    head = "| name | what it does | cost / CE | kept per example | reference |\n|---|---|---|---|---|\n"
    return head + "".join(
        f"| *{title}* | | | | |\n"
        + "".join(
            f"| `{name}` | {_plain(_first_line(cls))} | {cls().cost:.2f} | {_plain(cls.per_example)} "
            f"| {_plain(cls.reference)} |\n"
            for name, cls in family.items()
        )
        for title, family in FAMILIES.items()
    )


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0]


def _plain(text: str) -> str:
    """Text that Markdown leaves alone."""
    return text.replace("<", "&lt;").replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


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
    for path in _tables(name):
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


def _tables(name: str) -> list[Path]:
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
    return f"`{shown}`. " + provenance(json.loads(about.read_text(encoding="utf-8")))


def between(text: str, name: str, body: str) -> str:
    """Replace what stands between the two marks of this name."""
    before, mark, rest = text.partition(f"<!-- {name}:begin -->\n")
    _, end, after = rest.partition(f"<!-- {name}:end -->")
    if not mark or not end:
        raise ValueError(f"there are no marks for {name}")
    return before + mark + body + end + after


PARTS = {
    "README.md": {"digits": digits, "tree": tree},
    "docs/fastnet.md": {"curve": curve},
    "docs/methods.md": {"registry": registry, "bench_digits": bench_digits, "bench_cifar10": bench_cifar10},
}


def render(name: str) -> str:
    """A page with its generated parts up to date."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for mark, part in PARTS[name].items():
        text = between(text, mark, part())
    return text


if __name__ == "__main__":
    for found in ("bench_digits", "bench_cifar10"):
        rows = [row for path in _tables(found) for row in read_csv(path)]
        draw_comparison(rows, ROOT / "docs" / "figures" / found)
    for name in PARTS:
        (ROOT / name).write_text(render(name), encoding="utf-8")
