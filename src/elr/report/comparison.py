"""The picture of a comparison: every method's accuracy at its last and at its chosen epoch, a panel for each noise."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elr.report.drawing import new_figure, plain, write_figure

LAST, CHOSEN = "#3b6fb6", "#d1342f"
BASELINE = "early_stopping"  # or cross entropy, whose chosen epoch is the same
Row = Mapping[str, Any]
Noise = tuple[str, float]


def noises_of(rows: Sequence[Row]) -> list[Noise]:
    """Kinds of noise in the order given, each with its rates from low to high."""
    kinds = list(dict.fromkeys(row["noise"] for row in rows))
    return sorted({(row["noise"], row["rate"]) for row in rows}, key=lambda noise: (kinds.index(noise[0]), noise[1]))


def result_of(rows: Sequence[Row], method: str) -> float:
    """Mean accuracy of what a method gives: of the last epoch, or of the chosen one where that is its result."""
    own = [row for row in rows if row["method"] == method and row["status"] == "done"]
    prefix = "selected_" if own and own[0]["result"] == "selected" else ""
    for key in (f"{prefix}test_accuracy", f"{prefix}val_accuracy"):
        if values := [row[key] for row in own if row.get(key) is not None]:
            return float(statistics.mean(values))
    return -1.0


def draw_comparison(rows: Sequence[Row], stem: Path) -> list[Path]:
    """Draw the rows of ``table.csv`` and write ``stem``.png and ``stem``.svg; nothing where no cell has been tested."""
    rows = [row for row in rows if row["status"] == "done" and row["test_accuracy"] is not None]
    if not rows:
        return []
    noises = noises_of(rows)
    methods = sorted(
        dict.fromkeys(row["method"] for row in rows), key=lambda name: result_of(rows, name)
    )  # best on top
    figure = new_figure(2.2 + 2.3 * len(noises), 1.4 + 0.19 * len(methods))
    axes = figure.subplots(1, len(noises), sharey=True, squeeze=False)[0]
    for axis, noise in zip(axes, noises, strict=True):
        _panel(axis, [row for row in rows if (row["noise"], row["rate"]) == noise], methods)
        kind, rate = noise
        axis.set_title(f"{kind}, {100 * rate:g} %" if rate else kind, fontsize="medium")
        axis.set_xlabel("test accuracy, %")
    axes[0].set_yticks(range(len(methods)), methods, fontsize="small")
    axes[0].set_ylim(-0.7, len(methods) - 0.3)
    handles, labels = axes[0].get_legend_handles_labels()
    columns = min(3, len(noises))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize="small")
    return write_figure(figure, stem)


def _panel(axis: Any, rows: Sequence[Row], methods: Sequence[str]) -> None:
    for key, colour, marker, label in (
        ("test_accuracy", LAST, "o", "last epoch (bar: standard deviation)"),
        ("selected_test_accuracy", CHOSEN, "|", "epoch chosen on noisy validation"),
    ):
        places, means, spreads = [], [], []
        for place, name in enumerate(methods):
            if values := _values(rows, name, key):
                places.append(place)
                means.append(statistics.mean(values))
                spreads.append(statistics.stdev(values) if len(values) > 1 else 0.0)
        bars = spreads if key == "test_accuracy" else None
        axis.errorbar(
            means, places, xerr=bars, fmt=marker, color=colour, markersize=5 if bars else 8, linewidth=1, label=label
        )
    baseline = _values(rows, BASELINE, "selected_test_accuracy") or _values(rows, "ce", "selected_test_accuracy")
    if baseline:
        label = "cross entropy, stopped early"
        axis.axvline(statistics.mean(baseline), color=CHOSEN, linewidth=0.8, linestyle=":", label=label)
    axis.set_xlim(max(0.0, axis.get_xlim()[0]), 101.0)
    plain(axis)


def _values(rows: Sequence[Row], method: str, key: str) -> list[float]:
    return [100.0 * row[key] for row in rows if row["method"] == method and row.get(key) is not None]
