"""The claims of the theory and what was measured."""

from typing import Any

from docs.render.markdown import ROOT, plain, table
from elr.bench.table import read_csv
from elr.report.records import read_json
from elr.theory.claim import measured
from elr.theory.separable import crossing


def claims() -> str:
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
        (f"`{row['name']}`", row["where"], plain(row["says"] + (f"; {row['note']}" if row["note"] else "")),
         plain(row["printed"]), plain(row["corrected"] or "-"), measured(row), f"**{row['verdict']}**")
        for row in found["claims"]
    ]  # fmt: skip
    facts, base = found["facts"], {key: found["plan"][key][0] for key in ("sigma", "delta", "eta")}
    n, p = found["plan"]["sizes"][0]
    point = (
        f"Judged at n = {n:,}, p = {p:,}, sigma = {base['sigma']:g}, Delta = {base['delta']:g}, eta = {base['eta']:g}"
    )
    took = f"{found['seconds']:.0f} s, {found['cpu_seconds']:.0f} s of processor time"
    source = f"`results/theory/theory.json` (`{found['command']}`, {took}; "
    return (
        table(head, rows)
        + f"\n{point}; {source}{facts['cpu']}, {found['threads']} thread(s), torch {facts['torch']}).\n"
    )


def settings() -> str:
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
    return table(head, rows)


def starts() -> str:
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
    return table(head, rows)


def thresholds() -> str:
    """Theorem 6 beside the exact limit."""
    if (found := _theory()) is None:
        return "not run\n"
    head = ("Delta", "p/n sufficient by Theorem 6", "exact limit", "half of the draws separable at")
    seen = read_csv(ROOT / "results" / "theory" / "separability.csv")
    rows = []
    for limit in found["thresholds"]:
        own = [row for row in seen if row["delta"] == limit["delta"]]
        places = []
        for n in sorted({row["n"] for row in own}):
            curve = [row for row in own if row["n"] == n]
            place = crossing([row["ratio"] for row in curve], [row["separable"] for row in curve])
            places.append(f"{place:.3f} (n = {n})" if place is not None else f"not seen (n = {n})")
        rows.append((f"{limit['delta']:g}", f"{limit['sufficient']:.3f}", f"{limit['exact']:.3f}", ", ".join(places)))
    return table(head, rows)


def _theory() -> dict[str, Any] | None:
    path = ROOT / "results" / "theory" / "theory.json"
    found: dict[str, Any] | None = read_json(path) if path.exists() else None
    return found


def _pm(row: dict[str, Any], key: str, digits: int) -> str:
    return "-" if row[key] is None else f"{row[key]:.{digits}f} ± {row[f'{key}_spread']:.{digits}f}"
