"""Pictures of the theory lab: the linear model's Figure A.1, and every limit beside what was measured."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elr.report.drawing import new_figure, plain, write_figure

Row = Mapping[str, Any]
RIGHT, WRONG, THIRD, GREY = "#2a9d4a", "#d1342f", "#3b6fb6", "#777777"
READINGS = {"replaced": "Eq. 1: 40 % replaced by a coin", "flipped": "caption: 40 % flipped"}
METHODS = {"ce": "cross entropy", "elr": "ELR"}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _spread(values: Sequence[float]) -> float:
    middle = _mean(values)
    return math.sqrt(_mean([(value - middle) ** 2 for value in values])) if values else math.nan


def _band(axis: Any, x: Sequence[float], mean: Sequence[float], spread: Sequence[float], **style: Any) -> None:
    """A line with a band of one standard deviation."""
    axis.plot(x, mean, linewidth=1.8, **style)
    low, high = ([m + side * s for m, s in zip(mean, spread, strict=True)] for side in (-1.0, 1.0))
    axis.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


def _legend(figure: Any, axis: Any, columns: int = 3) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize="small")


def _ticks(axis: Any, places: Sequence[float]) -> None:
    """A logarithmic axis with a label at each place measured, and no others."""
    axis.set_xscale("log")
    axis.set_xticks(places, [f"{place:g}" for place in places], fontsize="small")
    axis.set_xticks([], minor=True)


def draw_figure_a1(rows: Sequence[Row], stem: Path) -> list[Path]:
    """Figure A.1 under both readings: how clean and wrong labels are predicted, step by step."""
    figure = new_figure(11.0, 4.9)
    axes = figure.subplots(2, 4, sharex=True, sharey=True)
    for column, (reading, title) in enumerate(READINGS.items()):
        for line, (method, name) in enumerate(METHODS.items()):
            found = [row for row in rows if row["reading"] == reading and row["method"] == method]
            for side, key in enumerate(("clean_right", "wrong_right")):
                axis = axes[line][2 * column + side]
                _fractions(axis, found, key)
                if line == 0:
                    axis.set_title(f"{title}\n{'clean' if side == 0 else 'wrong'} labels", fontsize="medium")
            axes[line][0].set_ylabel(f"{name}\nfraction of examples")
    for axis in axes[-1]:
        axis.set_xlabel("step (leftmost: the start)")
    _legend(figure, axes[0][0], 2)
    return write_figure(figure, stem)


def _fractions(axis: Any, rows: Sequence[Row], key: str) -> None:
    steps = [max(row["step"], 0.7) for row in rows]  # step 0 has no place on a logarithmic axis
    means, spreads = [row[key] for row in rows], [row[f"{key}_spread"] for row in rows]
    _band(axis, steps, means, spreads, color=RIGHT, label="true class predicted")
    _band(
        axis,
        steps,
        [1 - m for m in means],
        spreads,
        color=WRONG,
        label="other class predicted (wrong label: memorised)",
    )
    axis.set_xscale("log")
    axis.set_ylim(-0.03, 1.03)
    plain(axis)


def draw_pull(rows: Sequence[Row], stem: Path) -> list[Path]:
    """The linear row of Figure B.1: (p - y) at the true class, and its magnitude, for cross entropy."""
    figure = new_figure(8.4, 3.4)
    axes = figure.subplots(1, 2, sharex=True)
    found = [row for row in rows if row["reading"] == "flipped" and row["method"] == "ce"]
    steps = [max(row["step"], 0.7) for row in found]
    for key, colour, label in (("clean_pull", THIRD, "clean labels"), ("wrong_pull", WRONG, "wrong labels")):
        means, spreads = [row[key] for row in found], [row[f"{key}_sd"] for row in found]  # over examples
        _band(axes[0], steps, means, spreads, color=colour, label=label)
        _band(axes[1], steps, [abs(value) for value in means], spreads, color=colour, label=label)
    for axis, title in zip(axes, ("(p - y) at the true class", "magnitude"), strict=True):
        axis.set_xscale("log")
        axis.set_xlabel("step (leftmost: the start)")
        axis.set_title(title, fontsize="medium")
        plain(axis)
    _legend(figure, axes[0])
    return write_figure(figure, stem)


def draw_separability(rows: Sequence[Row], limits: Sequence[Row], delta: float, stem: Path) -> list[Path]:
    """Share of separable draws by p/n, for growing n and for several noise levels."""
    figure = new_figure(9.6, 4.4)
    axes = figure.subplots(1, 2, sharey=True)
    sizes = sorted({row["n"] for row in rows if row["delta"] == delta})
    for shade, n in enumerate(sizes):
        found = [row for row in rows if row["delta"] == delta and row["n"] == n]
        ratios = [row["ratio"] for row in found]
        light = 0.65 - 0.6 * shade / max(1, len(sizes) - 1)
        axes[0].plot(
            ratios,
            [row["separable"] for row in found],
            "o-",
            color=(light, light, 0.9),
            markersize=3.5,
            label=f"n = {n}",
        )
    last = [row for row in rows if row["delta"] == delta and row["n"] == sizes[-1]]
    ratios = [row["ratio"] for row in last]
    axes[0].plot(
        ratios, [1 - row["tail_bound"] for row in last], ":", color=WRONG, label=f"1 - binomial tail, n = {sizes[-1]}"
    )
    axes[0].plot(
        ratios, [row["cover_share"] for row in last], ":", color=GREY, label="Schlaefli's share of all labellings"
    )
    limit = next(row for row in limits if row["delta"] == delta)
    axes[0].axvline(
        limit["sufficient"], color=WRONG, linewidth=1.2, label=f"sufficient (Theorem 6): {limit['sufficient']:.3g}"
    )
    axes[0].axvline(limit["exact"], color=RIGHT, linewidth=1.2, label=f"exact limit: {limit['exact']:.3f}")
    axes[0].set_title(f"Delta = {delta:g}", fontsize="medium")
    axes[0].set_ylabel("share of draws that are separable")
    _legend(figure, axes[0], 4)
    n = sizes[len(sizes) // 2]
    colours = ("#1b4f8a", THIRD, "#8e5ea2", WRONG, "#e08b2e")
    for colour, limit in zip(colours, limits, strict=False):
        found = [row for row in rows if row["delta"] == limit["delta"] and row["n"] == n]
        label = f"Delta = {limit['delta']:g}; limit {limit['exact']:.2f}, Theorem 6 {limit['sufficient']:.2f}"
        ratios, shares = [row["ratio"] for row in found], [row["separable"] for row in found]
        axes[1].plot(ratios, shares, "o-", color=colour, markersize=3.5, label=label)
        axes[1].axvline(limit["exact"], color=colour, linewidth=0.8, linestyle="--")
    axes[1].set_title(f"n = {n}; dashed: exact limits", fontsize="medium")
    axes[1].legend(fontsize="x-small", framealpha=0.95, edgecolor="none", loc="lower right")
    for axis in axes:
        axis.set_xlabel("p / n")
        plain(axis)
    return write_figure(figure, stem)


def _whole(rows: Sequence[Row]) -> list[Row]:
    """Data sets that reached T and have a wrong label."""
    return [row for row in rows if row["T"] is not None and row["accuracy_T"] is not None]


def _same(row: Row, base: Row, *free: str) -> bool:
    return all(row[key] == value for key, value in base.items() if key not in free)


def draw_time(rows: Sequence[Row], base: Row, stem: Path) -> list[Path]:
    """T against 1/eta, with the least T that Lemma 8 allows."""
    figure = new_figure(5.2, 3.8)
    axis = figure.subplots()
    found = [row for row in rows if _same(row, base, "eta") and row["T"] is not None]
    etas = sorted({row["eta"] for row in found})
    for key, colour, label in (("T", THIRD, "T"), ("least_T", GREY, "least T by Lemmas 7 and 8")):
        groups = [[row[key] for row in found if row["eta"] == eta] for eta in etas]
        means, spreads = [_mean(group) for group in groups], [_spread(group) for group in groups]
        axis.errorbar([1 / eta for eta in etas], means, yerr=spreads, fmt="o-", color=colour, markersize=4, label=label)
    if base["delta"] < 1:
        line = [0.2 / ((1 - base["delta"]) * eta) for eta in etas]
        axis.plot([1 / eta for eta in etas], line, "--", color=RIGHT, label=".2 / ((1 - Delta) eta)")
    _ticks(axis, [1 / eta for eta in etas])
    axis.set_yscale("log")
    axis.set_xlabel("1 / eta")
    axis.set_ylabel("steps")
    axis.legend(fontsize="small", frameon=False)
    plain(axis)
    return write_figure(figure, stem)


PANELS = (
    ("start", "rms of theta_0^T v", "limit 0: dashed is 2 / sqrt(p)"),
    ("noise", "rms of |W|/n - Delta/2", "limit 0: dashed is its standard deviation"),
    ("correlation", "1 - least correlation with v, t < T", "printed: at most 5/6; dashed: formula"),
    ("clean", "change of mean squared coefficient", "printed: beyond +-.05"),
    ("share", "share of draws with both changes > .05", "limit 1"),
    ("norms", "norms of Lemma 10", "dotted: printed bounds, dashed: limits"),
)


def draw_convergence(rows: Sequence[Row], norms: Sequence[Row], base: Row, stem: Path) -> list[Path]:
    """What the claims say in the limit, as n grows."""
    figure = new_figure(10.5, 5.8)
    axes = dict(zip((name for name, _, _ in PANELS), figure.subplots(2, 3).flat, strict=True))
    found = _whole([row for row in rows if _same(row, base, "n", "p")])
    sizes = sorted({row["n"] for row in found})
    groups = [[row for row in found if row["n"] == n] for n in sizes]
    _rms(
        axes["start"], sizes, [[row["start"] for row in g] for g in groups], [2 / math.sqrt(g[0]["p"]) for g in groups]
    )
    q = base["delta"] / 2
    gaps = [[row["wrong_share"] - q for row in g] for g in groups]
    _rms(axes["noise"], sizes, gaps, [math.sqrt(q * (1 - q) / n) for n in sizes])
    _bars(axes["correlation"], sizes, [[1 - row["correlation"] for row in g] for g in groups], THIRD, "measured")
    signal, noises = 1 - base["delta"], [base["sigma"] * math.sqrt(g[0]["p"] / g[0]["n"]) for g in groups]
    axes["correlation"].plot(sizes, [1 - signal / math.hypot(signal, noise) for noise in noises], "--", color=RIGHT)
    axes["correlation"].set_ylim(bottom=0)
    axes["correlation"].ticklabel_format(axis="y", style="sci", scilimits=(-3, 3))
    for kind, colour in (("clean", THIRD), ("wrong", WRONG)):
        changes = [[row[f"{kind}_square_T"] - row[f"{kind}_square_0"] for row in g] for g in groups]
        _bars(axes["clean"], sizes, changes, colour, f"{kind} labels")
    for value in (-0.05, 0.05):
        axes["clean"].axhline(value, color=GREY, linestyle=":")
    axes["share"].plot(sizes, [_mean([_both(row) for row in g]) for g in groups], "o-", color=THIRD, markersize=4)
    axes["share"].set_ylim(-0.03, 1.05)
    _norm_panel(axes["norms"], norms, base["delta"])
    for name, title, below in PANELS:
        axes[name].set_title(title, fontsize="medium")
        axes[name].set_xlabel(f"n ({below})", fontsize="small")
        measured = sorted({row["n"] for row in norms}) if name == "norms" else sizes
        _ticks(axes[name], measured)
        plain(axes[name])
    for name in ("clean", *(["norms"] if norms else [])):
        axes[name].legend(fontsize="x-small", frameon=False)
    return write_figure(figure, stem)


def _both(row: Row) -> float:
    fell = row["clean_square_T"] < row["clean_square_0"] - 0.05
    return float(fell and row["wrong_square_T"] > row["wrong_square_0"] + 0.05)


def _rms(axis: Any, sizes: Sequence[int], groups: Sequence[Sequence[float]], expected: Sequence[float]) -> None:
    axis.plot(sizes, [math.sqrt(_mean([v * v for v in group])) for group in groups], "o-", color=THIRD, markersize=4)
    axis.plot(sizes, expected, "--", color=RIGHT)
    axis.set_yscale("log")


def _bars(axis: Any, sizes: Sequence[int], groups: Sequence[Sequence[float]], colour: str, label: str) -> None:
    means, spreads = [_mean(group) for group in groups], [_spread(group) for group in groups]
    axis.errorbar(sizes, means, yerr=spreads, fmt="o-", color=colour, markersize=4, label=label)


def _norm_panel(axis: Any, rows: Sequence[Row], delta: float) -> None:
    shares = {"all": 1.0, "clean": 1 - delta / 2, "wrong": delta / 2}
    for (name, share), colour in zip(shares.items(), (GREY, THIRD, WRONG), strict=True):
        found = [row for row in rows if row["set"] == name]
        if not found or not share:
            continue
        sizes = sorted({row["n"] for row in found})
        _bars(axis, sizes, [[row["z_norm"] for row in found if row["n"] == n] for n in sizes], colour, f"Z on {name}")
        limits = [1 + math.sqrt(next(row["p"] for row in found if row["n"] == n) / (share * n)) for n in sizes]
        axis.plot(sizes, limits, "--", color=colour, linewidth=0.8)
        axis.axhline(2 / math.sqrt(share), color=colour, linestyle=":", linewidth=0.8)
    axis.set_ylabel("spectral norm / sqrt(|I|)")


def draw_accuracy(rows: Sequence[Row], starts: Sequence[Row], base: Row, stem: Path) -> list[Path]:
    """Theorem 4 as two limits: the start needs sigma sqrt(p) large, T needs sigma small."""
    figure = new_figure(9.6, 3.9)
    axes = figure.subplots(1, 2)
    _start_panel(axes[0], rows, starts)
    _end_panel(axes[1], _whole([row for row in rows if _same(row, base, "sigma")]), base)
    for axis in axes:
        axis.set_xscale("log")
        axis.legend(fontsize="x-small", frameon=False)
        plain(axis)
    return write_figure(figure, stem)


def _start_panel(axis: Any, rows: Sequence[Row], starts: Sequence[Row]) -> None:
    own = {(row["p"], row["sigma"], row["seed"]): row for row in rows if row["accuracy_0"] is not None}.values()
    x = [row["sigma"] * math.sqrt(row["p"]) for row in own]
    axis.plot(
        x, [row["accuracy_0"] for row in own], "o", color=THIRD, markersize=3, alpha=0.5, label="data sets of the grid"
    )
    if starts:
        widths = [row["sigma_sqrt_p"] for row in starts]
        means, spreads = [row["accuracy_0"] for row in starts], [row["accuracy_0_spread"] for row in starts]
        _band(axis, widths, means, spreads, color=RIGHT, label="exact law, mean and one standard deviation")
    axis.axhline(0.5001, color=WRONG, linewidth=0.8, label="Eq. 12: at most .5001")
    axis.set_xlabel("sigma sqrt(p)")
    axis.set_ylabel("accuracy on wrong labels at theta_0")
    axis.set_title("start: one half needs sigma sqrt(p) large", fontsize="medium")


def _end_panel(axis: Any, rows: Sequence[Row], base: Row) -> None:
    sigmas = sorted({row["sigma"] for row in rows})
    for key, colour, style, label in (
        ("accuracy_T", THIRD, "o-", "measured"),
        ("phi_T", RIGHT, "x--", "Phi(theta^T v / (sigma ||theta||))"),
    ):
        groups = [[row[key] for row in rows if row["sigma"] == sigma] for sigma in sigmas]
        means, spreads = [_mean(group) for group in groups], [_spread(group) for group in groups]
        axis.errorbar(sigmas, means, yerr=spreads, fmt=style, color=colour, markersize=5, label=label)
    if sigmas:
        grid = [sigmas[0] * (sigmas[-1] / sigmas[0]) ** (k / 60) for k in range(61)]
        bound = [0.5 * math.erfc(-1 / (50 * sigma) / math.sqrt(2)) for sigma in grid]
        axis.plot(grid, bound, ":", color=GREY, label="Phi(1 / (50 sigma)), from the printed bounds")
    axis.set_xlabel("sigma")
    axis.set_ylabel("accuracy on wrong labels at theta_T")
    axis.set_title(f"T: .9999 needs sigma small (p = {base['p']:,})", fontsize="medium")
