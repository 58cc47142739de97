"""Figures A.1 and B.1: the linear model of the theory lab, in B.1 beside the network of Figure 1."""

from collections.abc import Sequence
from typing import Any

from elr.report.curves import Band, draw_bands
from elr.report.theory import draw_figure_a1
from elr.reproduce.experiment import Finished, Shown, View
from elr.reproduce.figures import BLUE, RED, SYM40, band
from elr.theory.check import figure_rows
from elr.theory.lab import Lab
from elr.theory.plan import Plan

Row = dict[str, Any]
FRACTIONS = {"clean_right": "clean labels right", "wrong_right": "wrong labels: true class", "fresh_right": "new data"}


def show_linear(view: View) -> Shown:
    """Figure A.1, both readings of "40 % of the labels are flipped"."""
    rows = figure_rows(Lab(Plan()))
    draw_figure_a1(rows, view.stem)
    last = max(row["step"] for row in rows)
    text = "| labels | | " + " | ".join(FRACTIONS.values()) + " |\n" + "|---" * (len(FRACTIONS) + 2) + "|\n"
    for reading, method in dict.fromkeys((row["reading"], row["method"]) for row in rows):
        (end,) = (r for r in rows if (r["reading"], r["method"], r["step"]) == (reading, method, last))
        text += f"| {reading} | {method} | " + " | ".join(f"{100 * end[key]:.1f}" for key in FRACTIONS) + " |\n"
    return Shown(rows, text + f"\nIn percent after {last:,} steps, mean over {end['draws']} data sets.\n")


def show_entries(view: View) -> Shown:
    """Figure B.1: p - y at the true class and its magnitude, linear model above, network below."""
    linear = [r for r in figure_rows(Lab(Plan())) if (r["method"], r["reading"]) == ("ce", "flipped")]
    run = next(iter(view.results["CE", SYM40]), None)
    panels = {
        "linear model: p - y at the true class": _pair(linear, magnitude=False),
        "linear model: magnitude": _pair(linear, magnitude=True),
    }
    if run is not None:
        panels |= {
            "network: p - y at the true class": _network(run, "ce"),
            "network: magnitude": _network(run, "size"),
        }
    times = ["step" if title.startswith("linear") else "epoch" for title in panels]
    draw_bands(panels, view.stem, times, columns=2)
    rows = [{"model": "linear", "time": r["step"], **{k: r[k] for k in ("clean_pull", "wrong_pull")}} for r in linear]
    if run is None:
        return Shown(rows, "Linear model drawn; network: not run.\n")
    swept = [record for record in run.records if "clean_ce" in record]
    rows += [
        {"model": "network", "time": r["epoch"], "clean_pull": r["clean_ce"], "wrong_pull": r["wrong_ce"]}
        for r in swept
    ]
    turn = next((r["epoch"] for r in swept if r["wrong_size"] > r["clean_size"]), None)
    when = f"from epoch {turn} on" if turn is not None else "in no epoch"
    last = swept[-1]
    return Shown(
        rows,
        f"Network: the mean magnitude is larger for wrong labels than for clean ones {when}; at the end it is "
        f"{last['clean_size']:.3f} for clean and {last['wrong_size']:.3f} for wrong labels. The signs of the means are "
        f"{'opposite' if last['clean_ce'] * last['wrong_ce'] < 0 else 'the same'}.\n",
    )


def _network(run: Finished, term: str) -> list[Band]:
    groups = {"clean": BLUE, "wrong": RED}
    return [band(run, f"{group}_{term}", f"{group} labels", colour) for group, colour in groups.items()]


def _pair(rows: Sequence[Row], *, magnitude: bool) -> list[Band]:
    """Mean over data sets of the mean over examples, and of the deviation over examples."""
    steps = [row["step"] for row in rows]
    return [
        Band(
            f"{group} labels",
            colour,
            steps,
            # With two classes the entry has one sign for all clean labels and the other for all wrong ones.
            [abs(row[f"{group}_pull"]) if magnitude else row[f"{group}_pull"] for row in rows],
            [row[f"{group}_pull_sd"] for row in rows],
        )
        for group, colour in (("clean", BLUE), ("wrong", RED))
    ]
