"""The claims about what comes later: separability, memorisation, ELR, and labels that are nothing but noise."""

import math
import statistics

from elr.theory.claim import Claim, Found, known
from elr.theory.early import Row
from elr.theory.lab import STRENGTHS, Lab
from elr.theory.separable import crossing, exact_threshold


def _at_base(lab: Lab) -> list[Row]:
    return [row for row in lab.separability if row["delta"] == lab.plan.base.delta]


def _separable(lab: Lab) -> Found:
    delta = lab.plan.base.delta
    inside = [row for row in _at_base(lab) if row["ratio"] > 1.0 - delta / 2]
    values = known(inside, "separable")
    return Found("-> 1", values, [value >= 0.95 for value in values], note=f"sizes with p/n > {1 - delta / 2:g}")


def _tail(lab: Lab) -> Found:
    rows = [row for row in _at_base(lab) if row["tail_bound"] < 1.0]  # a bound of 1 or more cannot be broken
    excess = [1.0 - row["separable"] - row["tail_bound"] for row in rows]
    met = [
        1.0 - row["separable"] <= row["tail_bound"] + 4.0 * math.sqrt(row["tail_bound"] / row["draws"]) for row in rows
    ]
    if not rows:
        return Found("<= 0", [], [], note="the bound is 1 or more at every size of the grid")
    shown = max(rows, key=lambda row: row["tail_bound"])
    values = f"bound {shown['tail_bound']:.2g}, exact value of its programme {shown['sharp_bound']:.2g}"
    note = f"n = {shown['n']}, p = {shown['p']}: {values}"
    return Found("<= 0", excess, met, note=note)


def _threshold(lab: Lab) -> Found:
    delta = lab.plan.base.delta
    exact = exact_threshold(delta, lab.plan.programme_sigma)
    values = []
    for n in sorted({row["n"] for row in _at_base(lab)}):
        rows = [row for row in _at_base(lab) if row["n"] == n]
        place = crossing(known(rows, "ratio"), known(rows, "separable"))
        values += [place] if place is not None else []
    return Found(
        f"<= {1 - delta / 2:g}",
        values,
        [value <= 1 - delta / 2 and abs(value - exact) < 0.06 for value in values] or [False],
        note=f"Theorem 6 is sufficient, not necessary; the exact limit, which a draw has to be near, is {exact:.3f}",
    )


def _memorised(lab: Lab) -> Found:
    first = lab.plan.fit_ratios[0]
    rows = [row for row in lab.fits if row["ratio"] == first and row["separable"]]
    times = [row["memorised_at"] for row in rows if row["memorised_at"] is not None]
    best, last = (statistics.fmean(known(rows, key)) if rows else math.nan for key in ("fresh_best", "fresh_right"))
    note = (
        f"after {statistics.median(times):g} steps (median); new examples: {best:.3f} at best, {last:.3f} at the end"
        if times
        else ""
    )
    met = [row["wrong_right"] == 0.0 and row["clean_right"] == 1.0 for row in rows]
    return Found("1", [1.0 - row["wrong_right"] for row in rows], met, note=note)


def _not_separable(lab: Lab) -> Found:
    rows = [row for row in lab.fits if not row["separable"]]
    met = [row["wrong_right"] > 0.0 for row in rows]
    values = [1.0 - row["wrong_right"] for row in rows]
    return Found("< 1", values, met, note="p/n below the threshold: the same descent, and labels it cannot fit")


def _last(lab: Lab, method: str) -> list[Row]:
    rows = [row for row in lab.figure if row["method"] == method]
    last = max(row["step"] for row in rows)
    return [row for row in rows if row["step"] == last]


def _figure_ce(lab: Lab) -> Found:
    rows = _last(lab, "ce")
    values = [1.0 - row["wrong_right"] for row in rows]
    met = [value >= 0.95 and row["clean_right"] >= 0.95 for value, row in zip(values, rows, strict=True)]
    return Found("1", values, met, note="both readings of the noise; clean labels stay right")


def _figure_elr(lab: Lab) -> Found:
    rows = _last(lab, "elr")
    values = [1.0 - row["wrong_right"] for row in rows]
    met = [value <= 0.05 and row["clean_right"] >= 0.95 for value, row in zip(values, rows, strict=True)]
    note = f"lam = {lab.world.lam:g}, beta = {lab.world.beta:g}; both readings of the noise"
    return Found("0", values, met, note=note)


def _strength(lab: Lab) -> Found:
    """Data sets on which the middle strength is better than the least and no worse than the greatest."""
    low, middle, high = ([row["fresh_right"] for row in lab.strengths if row["lam"] == lam] for lam in STRENGTHS)
    lost = sum(value < 0.05 for value in high)
    turned = f"turned round in {lost} of {len(high)}"
    note = f"lam 1: {statistics.fmean(low):.3f}; lam 10: {statistics.fmean(high):.3f}, {turned}"
    better = statistics.fmean(middle) > max(statistics.fmean(low), statistics.fmean(high))
    return Found("lam neither small nor large", middle, [better and min(middle) >= 0.95], note=note)


def _caption(lab: Lab) -> Found:
    rows = [row for row in lab.figure if row["reading"] == "replaced" and row["step"] == 0 and row["method"] == "ce"]
    values = known(rows, "wrong_share")
    near = [abs(statistics.fmean(values) - wanted) < 0.04 for wanted in (0.4, 0.2)]
    return Found(".4", values, near[:1], ".2", near[1:], "the lab draws the figure under both readings")


def _nothing(lab: Lab) -> Found:
    rows = [row for row in lab.levels if row["delta"] == max(lab.plan.levels)]
    values = known(rows, "fresh_4")
    clean = [row["fresh_4"] for row in lab.levels if row["delta"] == min(lab.plan.levels)]
    error = statistics.stdev(values) / math.sqrt(len(values))
    met = abs(statistics.fmean(values) - 0.5) <= 4.0 * error
    note = f"Delta = {min(lab.plan.levels):g}: {statistics.fmean(clean):.3f}"
    return Found(".5", values, [met], note=note)


CLAIMS = (
    Claim("separable", "Thm 6, P:778", "share of draws with separable noisy labels", _separable),
    Claim("tail", "Thm 6, P:822", "share of draws not separable, minus 2 P[Bin(n, Delta/2) <= n - p]", _tail),
    Claim("threshold", "Thm 6, P:778", "p/n where half of the draws are separable", _threshold),
    Claim("memorised", "Thm 1, P:225", "share of wrong labels memorised as t grows, separable data", _memorised),
    Claim("not_separable", "P:774", "the same where the linear programme says no", _not_separable),
    Claim("figure_ce", "Fig. A.1, P:934", "share of wrong labels memorised at the end, cross entropy", _figure_ce),
    Claim("figure_elr", "Fig. A.1, P:934", "share of wrong labels memorised at the end, ELR", _figure_elr),
    Claim("strength", "P:1179", "ELR's accuracy on new examples at the end, 40 % flipped, lam = 3", _strength),
    Claim("caption", "Fig. A.1, P:934", "share of wrong labels when Eq. 1 has Delta = .4", _caption),
    Claim("nothing", "P:556", "accuracy on new examples after early learning with Delta = 1", _nothing),
)  # fmt: skip
