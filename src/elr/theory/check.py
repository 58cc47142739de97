"""Claim by claim: which there are, what was found, and the files that keep it."""

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from elr.report.records import write_csv, write_json
from elr.report.theory import draw_accuracy, draw_convergence, draw_figure_a1, draw_pull, draw_separability, draw_time
from elr.theory import claims_early, claims_late, claims_proof
from elr.theory.claim import Claim, known
from elr.theory.early import Row
from elr.theory.lab import PULLS, Lab
from elr.theory.separable import exact_threshold

CLAIMS: dict[str, Claim] = {
    claim.name: claim for part in (claims_early, claims_proof, claims_late) for claim in part.CLAIMS
}
EXPERIMENTS = ("early", "norms", "separability", "fits", "strengths", "levels")
SUMMARY = (
    "wrong_share", "start", "T", "correlation", "moved", "moved_T", "norm_T", "cosine_T", "accuracy_0", "phi_0",
    "accuracy_T", "phi_T", "clean_square_0", "clean_square_T", "wrong_square_0", "wrong_square_T", "clean_fell",
    "wrong_rose",
)  # fmt: skip


def setting_rows(lab: Lab) -> list[Row]:
    """Means and spreads of the early stage, a row for each setting of the grid."""
    rows = []
    for setting in lab.plan.settings():
        found = lab.early_at(setting)
        row: Row = {**setting._asdict(), "draws": len(found), "sigma_sqrt_p": setting.sigma * math.sqrt(setting.p)}
        for key in SUMMARY:
            row[key], row[f"{key}_spread"] = _mean_and_spread(known(found, key))
        shrunk = [r["clean_square_T"] is not None and r["clean_square_T"] < r["clean_square_0"] - 0.05 for r in found]
        grown = [r["wrong_square_T"] is not None and r["wrong_square_T"] > r["wrong_square_0"] + 0.05 for r in found]
        row["prop_5_share"] = sum(a and b for a, b in zip(shrunk, grown, strict=True)) / len(found)
        rows.append(row)
    return rows


def _mean_and_spread(values: Sequence[float]) -> tuple[float | None, float | None]:
    if not values:
        return None, None
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def averaged(rows: Sequence[Row], by: Sequence[str], keys: Sequence[str]) -> list[Row]:
    """One row for each combination of the first columns: mean and standard deviation of the others."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in by), []).append(row)
    found = []
    for place, group in groups.items():
        one: Row = {**dict(zip(by, place, strict=True)), "draws": len(group)}
        for key in keys:
            one[key], one[f"{key}_spread"] = _mean_and_spread([row[key] for row in group if not math.isnan(row[key])])
        found.append(one)
    return found


def figure_rows(lab: Lab) -> list[Row]:
    """Figure A.1, averaged over data sets."""
    keys = ("wrong_share", "clean_right", "wrong_right", "fresh_right", *PULLS)
    return averaged(lab.figure, ("reading", "method", "step"), keys)


def start_summary(lab: Lab) -> list[Row]:
    """Eq. 12 for growing p, averaged over draws."""
    rows = averaged(lab.starts, ("n", "p", "sigma", "delta"), ("accuracy_0",))
    for row in rows:
        below = [r["accuracy_0"] <= 0.5001 for r in lab.starts if r["n"] == row["n"]]
        row |= {"sigma_sqrt_p": row["sigma"] * math.sqrt(row["p"]), "share_below": sum(below) / len(below)}
    return rows


def thresholds(lab: Lab) -> list[Row]:
    """For each noise level of the linear programmes: the sufficient bound and the exact limit."""
    deltas = sorted({row["delta"] for row in lab.separability})
    sigma = lab.plan.programme_sigma
    return [
        {"delta": delta, "sigma": sigma, "sufficient": 1 - delta / 2, "exact": exact_threshold(delta, sigma)}
        for delta in deltas
    ]


def write_results(lab: Lab, results: Sequence[Row], about: Row, out: Path) -> list[Path]:
    """Write theory.json, a CSV for each experiment that was run, and figures; returns what was written."""
    out.mkdir(parents=True, exist_ok=True)
    ran = vars(lab)
    tables: dict[str, Sequence[Row]] = {"claims": results}
    tables |= {name: ran[name] for name in EXPERIMENTS if name in ran}
    extra: dict[str, tuple[str, Callable[[Lab], list[Row]]]] = {
        "settings": ("early", setting_rows),
        "figure_a1": ("figure", figure_rows),
        "starts": ("starts", start_summary),
        "thresholds": ("separability", thresholds),
    }
    tables |= {name: make(lab) for name, (needs, make) in extra.items() if needs in ran}
    written = [out / f"{name}.csv" for name in tables]
    for name, rows in tables.items():
        write_csv(out / f"{name}.csv", rows, digits=9)  # which float32 arithmetic does not fill
    brief = {name: list(tables[name]) for name in ("claims", "settings", "thresholds", "starts") if name in tables}
    write_json(out / "theory.json", {**about, **brief})
    return [out / "theory.json", *written, *_draw(tables, lab, out)]


def _draw(tables: dict[str, Sequence[Row]], lab: Lab, out: Path) -> list[Path]:
    drawn: list[Path] = []
    base = lab.plan.base._asdict()
    if "figure_a1" in tables:
        drawn += draw_figure_a1(tables["figure_a1"], out / "figure_a1")
        drawn += draw_pull(tables["figure_a1"], out / "figure_b1_linear")
    if "separability" in tables:
        drawn += draw_separability(tables["separability"], tables["thresholds"], base["delta"], out / "separability")
    if "early" in tables:
        drawn += draw_time(tables["early"], base, out / "time")
        drawn += draw_convergence(tables["early"], tables.get("norms", ()), base, out / "convergence")
        drawn += draw_accuracy(tables["early"], tables.get("starts", ()), base, out / "accuracy")
    return drawn
