"""The paper's Figure 1: what is predicted for examples with clean and with wrong labels, epoch by epoch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elr.report.drawing import label_epochs, new_figure, plain, write_figure
from elr.report.records import Record

CORRECT, MEMORIZED, OTHER = "#2a9d4a", "#d1342f", "#3b6fb6"


def draw_figure1(runs: Mapping[str, Sequence[Record]], stem: Path) -> list[Path]:
    """Draw a row for each run (name -> records) and write ``stem``.png and ``stem``.svg."""
    figure = new_figure(8.4, 2.5 * len(runs) + 0.5)
    axes = figure.subplots(len(runs), 2, sharex=True, sharey=True, squeeze=False)
    for row, (name, records) in zip(axes, runs.items(), strict=True):
        swept = [record for record in records if "clean_correct" in record]
        epochs = [record["epoch"] for record in swept]
        _bands(row[0], epochs, _clean(swept))
        _bands(row[1], epochs, _wrong(swept))
        row[0].set_ylabel(f"{name}\nfraction of examples")
    axes[0][0].set_title("clean labels")
    axes[0][1].set_title("wrong labels")
    for axis in axes[-1]:
        label_epochs(axis)
    handles, labels = axes[0][1].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize="small", columnspacing=1.5
    )
    return write_figure(figure, stem)


def _clean(records: Sequence[Record]) -> dict[str, tuple[str, list[float]]]:
    correct = [record["clean_correct"] for record in records]
    return {"predicted correctly": (CORRECT, correct), "incorrect": (OTHER, [1.0 - value for value in correct])}


def _wrong(records: Sequence[Record]) -> dict[str, tuple[str, list[float]]]:
    series = {
        "predicted correctly": (CORRECT, "wrong_correct"),
        "memorized (the wrong label is predicted)": (MEMORIZED, "wrong_memorized"),
        "incorrect, neither true class nor label": (OTHER, "wrong_other"),
    }
    return {label: (colour, [r.get(key, 0.0) for r in records]) for label, (colour, key) in series.items()}


def _bands(axis: Any, epochs: list[int], series: Mapping[str, tuple[str, list[float]]]) -> None:
    for label, (colour, values) in series.items():
        axis.plot(epochs, values, color=colour, label=label, linewidth=1.8)
    axis.set_ylim(-0.02, 1.02)
    plain(axis)
