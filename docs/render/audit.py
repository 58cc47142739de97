"""How well wrong labels are found."""

import statistics
from collections.abc import Sequence
from typing import Any

from docs.render.markdown import ROOT, mean
from elr.bench.table import read_csv
from elr.report.records import read_json

FITTED = ("targets", "margin")  # kinds that are shown with a fitted T too
USED = ("as used", "surest")
AUDITED = {  # column -> heading, form
    "average_precision": ("average precision", ".4f"),
    "auroc": ("AUROC", ".4f"),
    "precision": ("precision", ".3f"),
    "recall": ("recall", ".3f"),
    "suggestions": ("suggestions right", ".3f"),
    "rate_error": ("noise rate, off by", ".3f"),
    "ece": ("ECE", ".3f"),
}


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
    heads = [odds if (odds, T) == USED else f"{odds}, {T} T" for odds, T in kinds] + ["rate, off by", "ECE"]
    head = "| data, noise, method | " + " | ".join(heads) + " |\n" + "|---" * (len(heads) + 1) + "|\n"
    lines = []
    for group in groups:
        own = [row for row in rows if (row["data"], row["noise"], row["method"]) == group]
        cells = [_mean_of(own, kind, "average_precision", ".4f") for kind in kinds]
        off = [abs(value) for value in _values(own, USED, "rate_error")]
        last = [_with_worst(off, ".3f"), _with_worst(_values(own, USED, "ece"), ".3f")]
        lines.append(f"| {', '.join(map(str, group))} | {' | '.join([*cells, *last])} |\n")
    note = "Average precision of the ranking, mean over seeds; how far the rate is off and the ECE are those of what is"
    return head + "".join(lines) + f"\n{note} used (in brackets the worst seed).\n"


def _values(rows: Sequence[dict[str, Any]], kind: tuple[str, str], key: str) -> list[float]:
    return [float(row[key]) for row in rows if (row["odds"], row["T"]) == kind]


def _mean_of(rows: Sequence[dict[str, Any]], kind: tuple[str, str], key: str, form: str) -> str:
    return format(statistics.fmean(_values(rows, kind, key)), form)


def _with_worst(values: Sequence[float | None], form: str) -> str:
    """The mean over seeds, and beside it the largest: errors of both signs must not cancel."""
    known = [value for value in values if value is not None]
    return mean(known, form) + (f" ({max(known):{form}})" if len(known) > 1 else "")


def audit_bench() -> str:
    """Ours against cleanlab, setting by setting, from results/audit: means over seeds."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((ROOT / "results" / "audit").glob("*seed*.json")):
        result = read_json(path)
        found.setdefault(result["setting"].rpartition(", ")[0], []).append(result)
    if not found:
        return "Not run.\n"
    return "\n".join(_audited(setting, results) for setting, results in found.items())


def _audit_cell(rows: Sequence[dict[str, Any]], key: str, form: str) -> str:
    values = [row.get(key) for row in rows]
    if key == "rate_error":
        return _with_worst([None if value is None else abs(value) for value in values], form)
    return _with_worst(values, form) if key == "ece" else mean(values, form)


def _audited(setting: str, results: Sequence[dict[str, Any]]) -> str:
    wrong = statistics.fmean(result["wrong"] for result in results)
    head = f"**{setting}** ({100 * wrong:.1f} % wrong, {len(results)} seed{'s' * (len(results) > 1)})\n\n"
    head += "| | " + " | ".join(heading for heading, _ in AUDITED.values()) + " | cost |\n" + "|---" * 9 + "|\n"
    lines = []
    for arm in results[0]["arms"]:
        own = [result["arms"][arm] for result in results if arm in result["arms"]]
        cells = [_audit_cell(own, key, form) for key, (_, form) in AUDITED.items()]
        lines.append(f"| {arm} | {' | '.join(cells)} | {mean([row['cost']['passes'] for row in own], '.2f')} |\n")
    tested = [result["test_accuracy"] for result in results]
    accuracies = ", ".join(
        f"{name} {mean([100 * accuracy[name] for accuracy in tested if name in accuracy], '.1f')}" for name in tested[0]
    )
    facts = results[0]["facts"]
    machine = f"{facts['cpu']}, torch {facts['torch']}, {results[0].get('precision', 'float32')}"
    return f"{head}{''.join(lines)}\nTest accuracy: {accuracies}. ({machine})\n"
