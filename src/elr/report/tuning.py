"""The picture of a search: a heat map of two listed options, otherwise a panel for each option."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elr.report.drawing import new_figure, plain, write_figure

POINT, CHOSEN = "#3b6fb6", "#d1342f"
Row = Mapping[str, Any]
Axis = Mapping[str, Any]  # key, name, values (a list, or None for a range), log
DEPTH = 5  # standard errors below the best at which colours end


def draw_search(rows: Sequence[Row], axes: Sequence[Axis], title: str, label: str, stem: Path) -> list[Path]:
    """Draw the trials that are done and write ``stem``.png and ``stem``.svg; nothing where none is.

    Args:
        rows: point, val_accuracy, standard_error, best, chosen, near, default and status of every trial.
        axes: what was searched.
        title: above the picture.
        label: what the accuracy is of.
        stem: path without suffix.
    """
    done = [row for row in rows if row["status"] == "done"]
    if not done:
        return []
    heat = len(axes) == 2 and all(axis["values"] for axis in axes) and min(len(axis["values"]) for axis in axes) > 1
    figure = _heat_map(done, axes, label) if heat else _panels(done, axes, label)
    figure.suptitle(title, fontsize="medium")
    return write_figure(figure, stem)


def _heat_map(rows: Sequence[Row], axes: Sequence[Axis], label: str) -> Any:
    import numpy as np

    # The longer list runs from left to right: cells are wider than high.
    down, across = sorted(axes, key=lambda axis: len(axis["values"]))
    height, width = len(down["values"]), len(across["values"])
    grid = np.full((height, width), np.nan)
    for row in rows:
        grid[_place(row, down), _place(row, across)] = 100.0 * row["val_accuracy"]
    figure = new_figure(2.6 + 0.85 * width, 1.7 + 0.55 * height)
    axis = figure.subplots()
    best = next(row for row in rows if row["best"])
    # One point that learnt nothing would make all others look alike.
    floor = 100.0 * (best["val_accuracy"] - DEPTH * best["standard_error"])
    lowest, top = float(np.nanmin(grid)), float(np.nanmax(grid))
    image = axis.imshow(
        np.ma.masked_invalid(grid), aspect="auto", origin="lower", cmap="viridis", vmin=max(lowest, floor), vmax=top
    )
    axis.set_facecolor("#eeeeee")  # a cell that was not run, or has no value
    middle = (image.norm.vmin + image.norm.vmax) / 2.0
    for row in rows:
        value = 100.0 * row["val_accuracy"]
        place = _place(row, across), _place(row, down)
        words = [word for word in ("best", "default") if row[word]]
        text = "\n".join([f"{value:.1f}", *([", ".join(words)] if words else [])])
        # Yellow is light and blue is dark; with one value only, the colour is the dark end.
        colour = "black" if value > middle else "white"
        weight = "bold" if row["near"] else "normal"
        axis.text(*place, text, ha="center", va="center", color=colour, fontsize="small", fontweight=weight)
        if row["chosen"]:
            from matplotlib.patches import Rectangle

            corner = place[0] - 0.5, place[1] - 0.5
            axis.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=CHOSEN, linewidth=3, zorder=3, clip_on=False))
    axis.set_xticks(range(width), [_text(value) for value in across["values"]])
    axis.set_yticks(range(height), [_text(value) for value in down["values"]])
    axis.set_xlabel(across["name"])
    axis.set_ylabel(down["name"])
    figure.colorbar(image, ax=axis, label=label, extend="min" if lowest < floor else "neither")
    note = f"frame: chosen; bold: within one standard error ({100 * best['standard_error']:.1f}) of the best"
    figure.supxlabel(note, fontsize="small")
    return figure


def _panels(rows: Sequence[Row], axes: Sequence[Axis], label: str) -> Any:
    figure = new_figure(1.0 + 2.9 * len(axes), 3.2)
    panels = figure.subplots(1, len(axes), sharey=True, squeeze=False)[0]
    best = next(row for row in rows if row["best"])
    top = 100.0 * best["val_accuracy"]
    for panel, axis in zip(panels, axes, strict=True):
        panel.axhspan(top - 100.0 * best["standard_error"], top, color=POINT, alpha=0.12)
        for row in rows:
            chosen = row["chosen"]
            panel.errorbar(
                _place(row, axis) if axis["values"] else row["point"][axis["key"]],
                100.0 * row["val_accuracy"],
                yerr=100.0 * row["standard_error"],
                fmt="s" if row["default"] else "o",
                color=CHOSEN if chosen else POINT,
                markersize=6 if chosen else 4,
                linewidth=0.8,
                zorder=3 if chosen else 2,
            )
        if axis["values"]:
            panel.set_xticks(range(len(axis["values"])), [_text(value) for value in axis["values"]])
            panel.set_xlim(-0.5, len(axis["values"]) - 0.5)
        elif axis["log"]:
            panel.set_xscale("log")
        panel.set_xlabel(axis["name"])
        plain(panel)
    panels[0].set_ylabel(label)
    figure.supxlabel("red: chosen; square: default; shaded: within one standard error of the best", fontsize="small")
    return figure


def _place(row: Row, axis: Axis) -> int:
    return int(list(axis["values"]).index(row["point"][axis["key"]]))


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
