"""How well wrong labels are found."""

import statistics
from collections.abc import Sequence
from typing import Any

from docs.render.markdown import ROOT, mean
from elr.bench.table import read_csv
from elr.report.records import read_json

FITTED = ("targets", "margin")  # kinds that are shown with a fitted T too
AUDITED = {  # column -> heading, form
    "average_precision": ("average precision", ".4f"),
    "auroc": ("AUROC", ".4f"),
    "precision": ("precision", ".3f"),
    "recall": ("recall", ".3f"),
    "suggestions": ("suggestions right", ".3f"),
    "rate_error": ("noise rate, error", "+.3f"),
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


def _mean_of(rows: Sequence[dict[str, Any]], kind: tuple[str, str], key: str, form: str) -> str:
    return format(statistics.fmean(float(row[key]) for row in rows if (row["odds"], row["T"]) == kind), form)


def audit_bench() -> str:
    """Ours against cleanlab, setting by setting, from results/audit: means over seeds."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((ROOT / "results" / "audit").glob("*seed*.json")):
        result = read_json(path)
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
        cells = [mean([row.get(key) for row in own], form) for key, (_, form) in AUDITED.items()]
        lines.append(f"| {arm} | {' | '.join(cells)} | {mean([row['cost']['passes'] for row in own], '.2f')} |\n")
    accuracies = ", ".join(
        f"{name} {mean([100 * result['test_accuracy'][name] for result in results], '.1f')}"
        for name in results[0]["test_accuracy"]
    )
    facts = results[0]["facts"]
    return f"{head}{''.join(lines)}\nTest accuracy: {accuracies}. ({facts['cpu']}, torch {facts['torch']})\n"
