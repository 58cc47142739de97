"""Write the generated parts of the pages: README's file tree and tables, fastnet's curve, methods. ``make docs``."""

import ast
import csv
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from elr.bench.table import overview, provenance, read_csv, tables, title
from elr.methods import FAMILIES, METHODS
from elr.report.comparison import draw_comparison
from elr.reproduce.catalogue import EXPERIMENTS
from elr.theory.claim import measured
from elr.theory.separable import crossing

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


def ranking() -> str:
    """Kinds of odds under both transition matrices, from results/audit."""
    path = ROOT / "results" / "audit" / "ranking.csv"
    if not path.exists():
        return "not run\n"
    rows = read_csv(path)
    groups = list(dict.fromkeys((row["data"], row["noise"], row["method"]) for row in rows))
    kinds = list(
        dict.fromkeys((row["odds"], row["T"]) for row in rows if row["T"] == "surest" or row["odds"] in FITTED)
    )
    heads = [f"{odds}, {T} T" for odds, T in kinds] + ["rate, error", "ECE"]
    head = "| data, noise, method | " + " | ".join(heads) + " |\n" + "|---" * (len(heads) + 1) + "|\n"
    lines = []
    for group in groups:
        own = [row for row in rows if (row["data"], row["noise"], row["method"]) == group]
        cells = [_mean_of(own, kind, "average_precision", ".4f") for kind in kinds]
        last = [
            _mean_of(own, ("margin", "surest"), key, form) for key, form in (("rate_error", "+.3f"), ("ece", ".3f"))
        ]
        lines.append(f"| {', '.join(map(str, group))} | {' | '.join([*cells, *last])} |\n")
    note = "Average precision of the ranking, mean over seeds; the margin with T of the surest rows is used, and the"
    return head + "".join(lines) + f"\n{note} rate's error and the ECE are its.\n"


FITTED = ("targets", "margin")  # kinds that are shown with a fitted T too


def _mean_of(rows: Sequence[dict[str, Any]], kind: tuple[str, str], key: str, form: str) -> str:
    return format(statistics.fmean(float(row[key]) for row in rows if (row["odds"], row["T"]) == kind), form)


AUDITED = {  # column -> heading, form
    "average_precision": ("average precision", ".4f"),
    "auroc": ("AUROC", ".4f"),
    "precision": ("precision", ".3f"),
    "recall": ("recall", ".3f"),
    "suggestions": ("suggestions right", ".3f"),
    "rate_error": ("noise rate, error", "+.3f"),
    "ece": ("ECE", ".3f"),
}


def audit_bench() -> str:
    """Ours against cleanlab, setting by setting, from results/audit: means over seeds."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((ROOT / "results" / "audit").glob("*seed*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(result["setting"].rpartition(", ")[0], []).append(result)
    if not found:
        return "Not run.\n"
    return "\n".join(_audited(setting, results) for setting, results in found.items())


def _audited(setting: str, results: Sequence[dict[str, Any]]) -> str:
    wrong = statistics.fmean(result["wrong"] for result in results)
    head = f"**{setting}** ({100 * wrong:.1f} % wrong, {len(results)} seed{'s' * (len(results) > 1)})\n\n"
    head += "| | " + " | ".join(heading for heading, _ in AUDITED.values()) + " | cost |\n" + "|---" * 9 + "|\n"
    lines = []
    for arm in results[0]["arms"]:
        own = [result["arms"][arm] for result in results]
        cells = [_mean([row.get(key) for row in own], form) for key, (_, form) in AUDITED.items()]
        lines.append(f"| {arm} | {' | '.join(cells)} | {_mean([row['cost']['passes'] for row in own], '.2f')} |\n")
    accuracies = ", ".join(
        f"{name} {_mean([100 * result['test_accuracy'][name] for result in results], '.1f')}"
        for name in results[0]["test_accuracy"]
    )
    facts = results[0]["facts"]
    return f"{head}{''.join(lines)}\nTest accuracy: {accuracies}. ({facts['cpu']}, torch {facts['torch']})\n"


def _mean(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return format(statistics.fmean(known), form) if known else ""


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


def marks() -> str:
    """Runs against the marks, from results/marks."""
    rows = []
    for path in sorted(
        (ROOT / "results" / "marks").glob("*.json"), key=lambda path: int(path.stem.removesuffix("min"))
    ):
        found = json.loads(path.read_text(encoding="utf-8"))
        ours = 100 * found["test_accuracy"]
        missed = [f"{found['mark'] - ours:.2f} points"] if ours < found["mark"] else []
        if found["minutes"] > found["minutes_allowed"]:
            missed.append(f"{found['minutes'] - found['minutes_allowed']:.1f} minutes")
        settings, facts = found["settings"], found["facts"]
        rows.append(
            (
                f"{found['mark']:g} ({found['mark_source']}) in {found['minutes_allowed']}",
                f"`recipes/{found['recipe']}`: {settings['method']['name']}, "
                f"{'/'.join(map(str, settings['model']['widths']))} channels, {settings['epochs']} epochs",
                f"{ours:.2f}",
                f"{found['minutes']:.1f} + {found['evaluate_minutes']:.1f}",
                f"missed by {' and '.join(missed)}" if missed else "reached",
                f"{facts['cpu']}, {found['threads']} threads, torch {facts['torch']}, seed {found['seed']}",
            )
        )
    head = ("mark, minutes", "run", "test accuracy, last epoch, %", "minutes of training + evaluation", "", "machine")
    return _table(head, rows) if rows else "not run\n"


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


def _theory() -> dict[str, Any] | None:
    path = ROOT / "results" / "theory" / "theory.json"
    found: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return found


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def theory_claims() -> str:
    """Every claim of the theory with its bounds, what was measured and the verdict, from results/theory."""
    if (found := _theory()) is None:
        return "not run\n"
    head = (
        "claim",
        "where",
        "what is measured",
        "printed",
        "corrected",
        "measured (draws that meet the bound)",
        "verdict",
    )
    rows = [
        (f"`{row['name']}`", row["where"], _plain(row["says"] + (f"; {row['note']}" if row["note"] else "")),
         _plain(row["printed"]), _plain(row["corrected"] or "-"), measured(row), f"**{row['verdict']}**")
        for row in found["claims"]
    ]  # fmt: skip
    facts, base = found["facts"], {key: found["plan"][key][0] for key in ("sigma", "delta", "eta")}
    n, p = found["plan"]["sizes"][0]
    point = (
        f"Judged at n = {n:,}, p = {p:,}, sigma = {base['sigma']:g}, Delta = {base['delta']:g}, eta = {base['eta']:g}"
    )
    source = f"`results/theory/theory.json` (`{found['command']}`, {found['cpu_seconds']:.0f} s of one core; "
    return (
        _table(head, rows)
        + f"\n{point}; {source}{facts['cpu']}, {found['threads']} thread(s), torch {facts['torch']}).\n"
    )


def theory_settings() -> str:
    """The early stage at every setting of the grid."""
    if (found := _theory()) is None:
        return "not run\n"
    head = (
        "n", "p", "sigma", "sigma sqrt(p)", "Delta", "eta", "descent", "T", "least correlation", "moved at T",
        "wrong labels right at 0", "Phi at 0", "at T", "Phi at T", "clean square", "wrong square", "changes",
    )  # fmt: skip
    rows = [
        (f"{row['n']:,}", f"{row['p']:,}", f"{row['sigma']:g}", f"{row['sigma_sqrt_p']:.3g}", f"{row['delta']:g}",
         f"{row['eta']:g}", row["form"], _pm(row, "T", 1), _pm(row, "correlation", 4), _pm(row, "moved_T", 2),
         _pm(row, "accuracy_0", 3), _pm(row, "phi_0", 3), _pm(row, "accuracy_T", 3), _pm(row, "phi_T", 3),
         f"{row['clean_square_0']:.3f} → {row['clean_square_T']:.3f}",
         f"{row['wrong_square_0']:.3f} → {row['wrong_square_T']:.3f}", f"{row['prop_5_share']:.2f}")
        for row in found["settings"]
    ]  # fmt: skip
    return _table(head, rows)


def _pm(row: dict[str, Any], key: str, digits: int) -> str:
    return "-" if row[key] is None else f"{row[key]:.{digits}f} ± {row[f'{key}_spread']:.{digits}f}"


def theory_starts() -> str:
    """Accuracy on wrong labels at the start for growing p."""
    if (found := _theory()) is None:
        return "not run\n"
    head = ("n", "sigma sqrt(p)", "accuracy on wrong labels at the start", "draws with at most .5001")
    rows = [
        (
            f"10^{len(str(row['n'])) - 1}",
            f"{row['sigma_sqrt_p']:.3g}",
            _pm(row, "accuracy_0", 5),
            f"{row['share_below']:.3f}",
        )
        for row in found["starts"]
    ]
    return _table(head, rows)


def theory_thresholds() -> str:
    """Theorem 6 beside the exact limit."""
    if (found := _theory()) is None:
        return "not run\n"
    head = ("Delta", "p/n sufficient by Theorem 6", "exact limit", "half of the draws separable at")
    table = read_rows(ROOT / "results" / "theory" / "separability.csv")
    rows = []
    for limit in found["thresholds"]:
        own = [row for row in table if float(row["delta"]) == limit["delta"]]
        places = []
        for n in sorted({int(row["n"]) for row in own}):
            curve = [row for row in own if int(row["n"]) == n]
            place = crossing([float(row["ratio"]) for row in curve], [float(row["separable"]) for row in curve])
            places.append(f"{place:.3f} (n = {n})" if place is not None else f"not seen (n = {n})")
        rows.append((f"{limit['delta']:g}", f"{limit['sufficient']:.3f}", f"{limit['exact']:.3f}", ", ".join(places)))
    return _table(head, rows)


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file as they are written."""
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def between(text: str, name: str, body: str) -> str:
    """Replace what stands between the two marks of this name."""
    before, mark, rest = text.partition(f"<!-- {name}:begin -->\n")
    _, end, after = rest.partition(f"<!-- {name}:end -->")
    if not mark or not end:
        raise ValueError(f"there are no marks for {name}")
    return before + mark + body + end + after


def experiments() -> str:
    """Every figure and table of the paper, from results/reproduce."""
    return "\n".join(_experiment(name) for name in EXPERIMENTS)


def _experiment(name: str) -> str:
    experiment = EXPERIMENTS[name]
    head = f"## {name}: {experiment.title}\n\n{experiment.place[0].upper()}{experiment.place[1:]}.\n\n"
    folder = ROOT / "results" / "reproduce" / name
    if not (folder / f"{name}.json").exists():
        return head + "Not run.\n"
    about = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    _, _, text = (folder / f"{name}.md").read_text(encoding="utf-8").partition("\n\n")
    picture = f"![{experiment.title}](../results/reproduce/{name}/{name}.png)\n\n"
    picture = picture if (folder / f"{name}.png").exists() else ""
    facts = about["facts"]
    source = f"`results/reproduce/{name}` (`{about['command']}`, {about['scale']} scale; {facts['cpu']}, torch "
    return head + text.rstrip("\n") + f"\n\n{picture}{source}{facts['torch']}).\n"


def paper_scale() -> str:
    """Which networks and methods were built at the paper's scale, from results/paper_scale.json."""
    path = ROOT / "results" / "paper_scale.json"
    if not path.exists():
        return "not run\n"
    found = json.loads(path.read_text(encoding="utf-8"))
    cells: dict[str, list[str]] = {}
    for row in found["rows"]:
        source, network, method = row["cell"].split(" ", 2)
        cells.setdefault(f"{source}, {network}", []).append(f"`{method}`")
    rows = [(_plain(what), ", ".join(methods)) for what, methods in cells.items()]
    facts = found["facts"]
    return (
        _table(("data set, network", "methods built and trained for two steps"), rows)
        + f"\n{len(found['rows'])} programs, random pictures, small batches; `results/paper_scale.json` "
        + f"(`{found['command']}`; {facts['cpu']}, torch {facts['torch']}).\n"
    )


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"digits": digits, "tree": tree},
    "docs/audit.md": {"ranking": ranking, "audit_bench": audit_bench},
    "docs/fastnet.md": {"curve": curve},
    "docs/marks.md": {"marks": marks},
    "docs/methods.md": {"registry": registry, "bench_digits": bench_digits, "bench_cifar10": bench_cifar10},
    "docs/reproduction.md": {"paper_scale": paper_scale, "experiments": experiments},
    "docs/theory.md": {
        "claims": theory_claims,
        "settings": theory_settings,
        "starts": theory_starts,
        "thresholds": theory_thresholds,
    },
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
