"""What a claim is, and when it is said to hold."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elr.theory.early import Row
from elr.theory.lab import Lab

ENOUGH = 0.9  # "with high probability" at a finite size: in nine draws of ten at least
HOLDS, CORRECTED, FAILS, OPEN = "holds", "holds corrected", "does not hold", "not decided"


@dataclass(frozen=True)
class Found:
    """What was measured for a claim.

    Args:
        printed: the bound as the paper prints it.
        values: one for each draw that gave a value.
        ok: for each draw, whether the printed bound is met.
        corrected: the bound as it should read, where the print is wrong.
        corrected_ok: for each draw, whether the corrected bound is met.
        note: what else a reader should see.
    """

    printed: str
    values: Sequence[float]
    ok: Sequence[bool]
    corrected: str = ""
    corrected_ok: Sequence[bool] | None = None
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper: a short name, where it stands (P: line of the LaTeX source), and how it is measured."""

    name: str
    where: str
    says: str
    measure: Callable[[Lab], Found]


def judge(claim: Claim, lab: Lab) -> Row:
    """Measure a claim and say whether it holds, as a row."""
    found = claim.measure(lab)
    met, corrected_share = share(found.ok), share(found.corrected_ok or ())
    verdict = OPEN if not found.ok else HOLDS if met >= ENOUGH else CORRECTED if corrected_share >= ENOUGH else FAILS
    # The mean over no wrong labels is NaN; such a draw meets no bound and has no value.
    values = [float(value) for value in found.values if not math.isnan(value)]
    return {
        "name": claim.name,
        "where": claim.where,
        "says": claim.says,
        "printed": found.printed,
        "corrected": found.corrected,
        "mean": statistics.fmean(values) if values else None,
        "spread": statistics.stdev(values) if len(values) > 1 else 0.0 if values else None,
        "least": min(values, default=None),
        "greatest": max(values, default=None),
        "draws": len(found.ok),
        "share": met,
        "corrected_share": corrected_share if found.corrected_ok is not None else None,
        "verdict": verdict,
        "note": found.note,
    }


def share(decided: Sequence[bool]) -> float:
    """Of these draws, how many meet the bound; none do where there are none."""
    return sum(decided) / len(decided) if decided else 0.0


def known(rows: Sequence[Row], key: str) -> list[float]:
    """The values of a column that could be measured."""
    return [row[key] for row in rows if row[key] is not None]


def each(rows: Sequence[Row], key: str, test: Callable[[float], bool]) -> list[bool]:
    """For each row, whether its value was measured and passes."""
    return [row[key] is not None and test(row[key]) for row in rows]


def measured(row: Row) -> str:
    """Mean and standard deviation over draws, and in how many of them the bounds are met."""
    if row["mean"] is None:
        return "not reached"
    text = f"{row['mean']:.4g}" + (f" ± {row['spread']:.2g}" if row["spread"] else "")
    share = row["share"] if row["verdict"] != "holds corrected" else row["corrected_share"]
    return text if row["draws"] == 1 else f"{text}; {round(share * row['draws'])} of {row['draws']}"
