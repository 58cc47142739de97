"""Curves with bands, and points with bars: how the paper draws its figures."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from elr.report.drawing import label_epochs, new_figure, plain, write_figure


class Band(NamedTuple):
    """A curve, shaded within one standard deviation if there is one."""

    label: str
    colour: str
    x: Sequence[float]
    mean: Sequence[float]
    sd: Sequence[float] | None


def draw_bands(
    panels: Mapping[str, Sequence[Band]],
    stem: Path,
    xlabel: str | Sequence[str],
    *,
    ylabel: str = "",
    ylim: tuple[float, float] | None = None,
    columns: int | None = None,
    xscale: str = "linear",
) -> list[Path]:
    """Draw a panel for each title, ``columns`` in a row, and write ``stem``.png and ``stem``.svg.

    ``xlabel`` is one for all panels, or one for each.
    """
    columns = columns or len(panels)
    lines = -(-len(panels) // columns)
    figure = new_figure(3.6 * columns + 0.4, 2.9 * lines)
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    below = [xlabel] * len(panels) if isinstance(xlabel, str) else xlabel
    for axis, (title, bands), what in zip(axes, panels.items(), below, strict=True):
        for band in bands:
            axis.plot(band.x, band.mean, color=band.colour, label=band.label, linewidth=1.8)
            if band.sd is not None:
                low = [mean - sd for mean, sd in zip(band.mean, band.sd, strict=True)]
                high = [mean + sd for mean, sd in zip(band.mean, band.sd, strict=True)]
                axis.fill_between(band.x, low, high, color=band.colour, alpha=0.18, linewidth=0)
        axis.set_title(title, fontsize="medium")
        axis.set_ylabel(ylabel)
        axis.set_xscale(xscale)
        if what == "epoch":
            label_epochs(axis)
        else:
            axis.set_xlabel(what)
        if ylim is not None:
            axis.set_ylim(*ylim)
        else:
            axis.axhline(0.0, color="#888888", linewidth=0.8)
        plain(axis)
        axis.legend(frameon=False, fontsize="small")
    return write_figure(figure, stem)


def draw_points(panels: Mapping[str, Sequence[tuple[float, Sequence[float]]]], stem: Path, ylabel: str) -> list[Path]:
    """Draw means against values, with bars of one standard deviation where there are several; values evenly spaced.

    All panels have one scale: a parameter that hardly matters is to look like one.
    """
    figure = new_figure(3.4 * len(panels) + 0.4, 2.9)
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axis, (title, points) in zip(axes, panels.items(), strict=True):
        places = range(len(points))
        means = [statistics.fmean(values) for _, values in points]
        bars = [statistics.stdev(values) if len(values) > 1 else 0.0 for _, values in points]
        axis.errorbar(places, means, yerr=bars, marker="o", color="#1f4e9c", capsize=3)
        axis.set_xticks(list(places), [f"{value:g}" for value, _ in points])
        axis.set_xlabel(title)
        plain(axis)
    axes[0].set_ylabel(ylabel)
    return write_figure(figure, stem)
