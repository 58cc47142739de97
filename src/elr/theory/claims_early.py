"""The claims about the early stage: Proposition 3, Theorem 4, Proposition 5, and the time they take."""

import math
from collections.abc import Callable

import numpy as np

from elr.theory.claim import ENOUGH, Claim, Found, each, known, share
from elr.theory.early import CONSTANT, Row
from elr.theory.lab import Lab

NEAR = 0.1  # how far a fitted slope may lie from the true one


def _base(lab: Lab) -> list[Row]:
    return lab.early_at(lab.plan.base)


def _bounded(key: str, printed: str, test: Callable[[float], bool]) -> Callable[[Lab], Found]:
    """A claim that a column of the early stage meets a bound in every draw."""
    return lambda lab: Found(printed, known(_base(lab), key), each(_base(lab), key, test))


def _noise_share(lab: Lab) -> Found:
    q, rows = lab.plan.base.delta / 2, _base(lab)
    room = 4.0 * math.sqrt(q * (1.0 - q) / lab.plan.base.n)
    return Found(f"-> {q:g}", known(rows, "wrong_share"), each(rows, "wrong_share", lambda w: abs(w - q) <= room))


def _wrong_count(lab: Lab) -> Found:
    q, rows = lab.plan.base.delta / 2, _base(lab)
    room = 4.0 * math.sqrt(q * (1.0 - q) / lab.plan.base.n)
    return Found(
        f">= {q:g}",
        known(rows, "wrong_share"),
        each(rows, "wrong_share", lambda w: w >= q),
        f">= {q:g} - o(1)",
        each(rows, "wrong_share", lambda w: w >= q - room),
        "the mean is the bound, so half of all draws lie below it",
    )


def _time(lab: Lab) -> Found:
    rows = _base(lab)
    met = [row["T"] is not None and row["T"] >= row["least_T"] for row in rows]
    fast = known(lab.early_at(lab.plan.base._replace(form="softmax")), "T")
    note = f"gradient descent on Theta: {np.mean(fast):.1f} steps" if fast else ""
    return Found(">= (.1 - theta_0^T v) / (eta (1 + 2 sigma))", known(rows, "T"), met, note=note)


def _growth(lab: Lab) -> Found:
    plan = lab.plan
    etas = [setting.eta for setting in plan.settings() if setting == plan.base._replace(eta=setting.eta)]
    tables = [lab.early_at(plan.base._replace(eta=eta)) for eta in etas]
    slopes: list[float] = []
    met: list[bool] = []
    for rows in zip(*tables, strict=True):
        times = [row["crossing"] for row in rows]
        usable = all(time is not None and time > 0 for time in times)
        slope = float(np.polyfit(-np.log(etas), np.log(times), 1)[0]) if usable else math.nan
        slopes += [slope] if usable else []
        met.append(usable and slope > 1.0 - NEAR)
    linear = bool(slopes) and all(abs(slope - 1.0) < NEAR for slope in slopes)
    note = "T grows like 1/eta, no faster: the paper's Omega is a Theta" if linear else ""
    return Found("log T against log 1/eta: slope >= 1", slopes, met, note=note)


def _recursion(lab: Lab) -> Found:
    rows = _base(lab)
    raw = max(known(rows, "constant_unnormalised"), default=math.nan)
    note = f"before the division by the gradient's norm: c >= {raw:.2f}"
    met = each(rows, "constant", lambda c: c <= CONSTANT)
    return Found(f"some c; the proof gives c <= {CONSTANT:g}", known(rows, "constant"), met, note=note)


def _start_accuracy(lab: Lab) -> Found:
    rows, base = _base(lab), lab.plan.base
    width = base.sigma * math.sqrt(base.p)
    extreme = ": at this size anything from 0 to 1" if width < 1.0 else ""
    return Found(
        "<= .5001",
        known(rows, "accuracy_0"),
        each(rows, "accuracy_0", lambda a: a <= 0.5001),
        "= Phi(theta_0^T v / (2 sigma))",
        [_agrees(row, "0") for row in rows],
        f"sigma sqrt(p) = {width:.3g}{extreme}",
    )


def _agrees(row: Row, when: str) -> bool:
    """Whether the accuracy on wrong labels is what |W| independent coins with P = Phi would give."""
    accuracy, phi = row[f"accuracy_{when}"], row[f"phi_{when}"]
    count = row["wrong_share"] * row["n"]
    if accuracy is None or phi is None or count == 0:
        return False
    return bool(abs(accuracy - phi) <= 4.0 * math.sqrt(phi * (1.0 - phi) / count) + 3.0 / count)


def _start_limit(lab: Lab) -> Found:
    last = max(row["n"] for row in lab.starts)
    rows = [row for row in lab.starts if row["n"] == last]
    shares = {
        n: np.mean([row["accuracy_0"] <= 0.5001 for row in lab.starts if row["n"] == n])
        for n in sorted({row["n"] for row in lab.starts})
    }
    first = next((n for n, share in shares.items() if share >= 0.9), None)
    note = "never" if first is None else f"in nine draws of ten from n = 10^{round(math.log10(first))} on"
    met = each(rows, "accuracy_0", lambda a: a <= 0.5001)
    return Found("<= .5001", known(rows, "accuracy_0"), met, note=note)


def _end_accuracy(lab: Lab) -> Found:
    base = lab.plan.base
    others = [base._replace(sigma=sigma) for sigma in lab.plan.sigma[1:] if sigma > base.sigma]
    means = ((other.sigma, known(lab.early_at(other), "accuracy_T")) for other in others)
    note = ", ".join(f"sigma = {sigma:g}: {np.mean(values):.3f}" for sigma, values in means if values)
    rows = _base(lab)
    return Found("> .9999", known(rows, "accuracy_T"), each(rows, "accuracy_T", lambda a: a > 0.9999), note=note)


def _exact_end(lab: Lab) -> Found:
    tables = [lab.early_at(lab.plan.base._replace(sigma=sigma)) for sigma in lab.plan.sigma]
    gaps = [row["accuracy_T"] - row["phi_T"] for rows in tables for row in rows if row["accuracy_T"] is not None]
    # Each sigma for itself: many draws that agree at one must not outvote those of another.
    met = [share([_agrees(row, "T") for row in rows]) >= ENOUGH for rows in tables]
    return Found("difference 0", gaps, met, note="each sigma of the grid decided for itself")


def _improves(lab: Lab) -> Found:
    width = max(lab.plan.sigma)  # where sigma sqrt(p) is large, so that there is something to improve
    rows = lab.early_at(lab.plan.base._replace(sigma=width))
    both = [row for row in rows if row["accuracy_T"] is not None]
    gains = [row["accuracy_T"] - row["accuracy_0"] for row in both]
    met = [gain > 0 for gain in gains] + [False] * (len(rows) - len(both))
    return Found("> 0", gains, met, note=f"at sigma = {width:g}, sigma sqrt(p) = {width * lab.plan.base.p**0.5:.3g}")


def _change(kind: str, sign: float) -> Callable[[Lab], Found]:
    """Proposition 5: how much the mean squared coefficient grew, times the sign that it should have."""

    def measure(lab: Lab) -> Found:
        rows, printed = _base(lab), lab.early_at(lab.plan.base._replace(form="printed"))
        values = [_grown(row, kind) for row in rows]
        met = [value is not None and sign * value > 0.05 for value in values]
        # The proof's o_P(1) is |theta_0^T v| (P:731, halved and doubled again by the square): seen at a finite p
        near = [
            value is not None and sign * value > 0.05 - abs(row["start"])
            for value, row in zip(values, rows, strict=True)
        ]
        other = [value for row in printed if (value := _grown(row, kind)) is not None]
        note = f"with Eq. 10 as printed: {np.mean(other):+.3f}" if other else ""
        texts = ("< -.05", "< -.05 + |theta_0^T v|") if sign < 0 else ("> +.05", "> +.05 - |theta_0^T v|")
        return Found(texts[0], [v for v in values if v is not None], met, texts[1], near, note)

    return measure


def _grown(row: Row, kind: str) -> float | None:
    before, after = row[f"{kind}_square_0"], row[f"{kind}_square_T"]
    return None if after is None else float(after - before)


def _each_example(lab: Lab) -> Found:
    width = max(lab.plan.sigma)
    wide = known(lab.early_at(lab.plan.base._replace(sigma=width)), "clean_fell")
    rows = _base(lab)
    grown = [_grown(row, "clean") for row in rows]
    met = [
        row["clean_fell"] == 1.0 and change is not None and change < 0 for row, change in zip(rows, grown, strict=True)
    ]
    note = f"share of clean examples whose coefficient fell; at sigma = {width:g}: {np.mean(wide):.3f}" if wide else ""
    return Found("every clean coefficient falls", known(rows, "clean_fell"), met, note=note)


CLAIMS = (
    Claim("noise_share", "Eq. 1, P:193", "|W|/n tends to Delta/2", _noise_share),
    Claim("wrong_count", "Thm 4, P:700", "|W| >= Delta n/2 with high probability; shown: |W|/n", _wrong_count),
    Claim("time", "P:562", "T, the first step with theta^T v >= 1/10, is not before Lemma 8 allows", _time),
    Claim("time_growth", "Thm 1, P:221", "T = Omega(1/eta)", _growth),
    Claim(
        "correlation", "Prop. 3, P:570", "least correlation of the negative gradient with v over t < T",
        _bounded("correlation", ">= 1/6", lambda c: c >= 1 / 6),
    ),
    Claim("recursion", "Eq. 11, P:590", "least c for which the bound is true at all t < T", _recursion),
    Claim(
        "moved", "Prop. 3, P:568", "largest ||theta_t - theta_0|| over t < T",
        _bounded("moved", "<= 1", lambda d: d <= 1.0),
    ),
    Claim("moved_T", "Prop. 5, P:740", "||theta_T - theta_0||", _bounded("moved_T", "<= 3", lambda d: d <= 3.0)),
    Claim("norm_T", "Thm 4, P:652", "||theta_T||", _bounded("norm_T", "<= 5", lambda d: d <= 5.0)),
    Claim(
        "cosine_T", "Thm 4, P:653", "theta_T^T v / ||theta_T||",
        _bounded("cosine_T", ">= 1/50", lambda c: c >= 0.02),
    ),
    Claim("start_accuracy", "Eq. 12, P:630", "accuracy on wrong labels at the start", _start_accuracy),
    Claim("start_limit", "Eq. 12, P:630", "the same at n = 10^13, where p need not be drawn", _start_limit),
    Claim("end_accuracy", "Eq. 13, P:634", "accuracy on wrong labels at T", _end_accuracy),
    Claim("end_exact", "P:658", "accuracy on wrong labels at T minus Phi(theta^T v / (sigma ||theta||))", _exact_end),
    Claim("improves", "Thm 1, P:223", "accuracy on wrong labels at T minus that at the start", _improves),
    Claim("clean_shrinks", "Prop. 5, P:714", "change of the mean squared coefficient on C", _change("clean", -1)),
    Claim("wrong_grows", "Prop. 5, P:715", "change of the mean squared coefficient on W", _change("wrong", 1)),
    Claim("each_example", "Thm 1, P:224", "coefficients of clean examples decrease", _each_example),
)  # fmt: skip
