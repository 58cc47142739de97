"""Small charts as SVG text. Colours are classes of the style sheet, so that they follow the theme and the printer."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from elr.report.markup import clipped, number, percent, text
from elr.report.view import Bin

WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 8, 32
HOVERS = 120  # places along a curve that tell their values
MAP_SIDE = 300  # of a heat map without its names
NUMBERED = 12  # classes up to which cells have room for a number
DEEPEST = 0.7  # opacity at which a number on the colour can still be read, in both themes


class Line(NamedTuple):
    """A curve; None or NaN is a gap. ``look`` is a class of the style sheet."""

    label: str
    look: str
    values: Sequence[float | None]


class _Frame(NamedTuple):
    """From values to places."""

    first: float
    last: float
    low: float
    high: float

    def across(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - self.first) / (self.last - self.first)

    def down(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.high - value) / (self.high - self.low)

    def axes(self, below: dict[float, str], beside: dict[float, str], title: str) -> list[str]:
        parts = [f'<path class="grid" d="M{LEFT} {self.down(value):.1f}H{WIDTH - RIGHT}"/>' for value in beside]
        parts += [_words(LEFT - 6, self.down(value) + 3.5, words, "end") for value, words in beside.items()]
        parts += [_words(self.across(value), HEIGHT - 17, words) for value, words in below.items()]
        return [*parts, _words((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 3, title)]


def line_chart(
    title: str, epochs: Sequence[int], lines: Sequence[Line], *, share: bool = False, mark: int | None = None
) -> str:
    """Curves over epochs; a ``share`` runs from 0 to 100 %. ``mark`` is an epoch with a dashed line."""
    low, high, step = (0.0, 1.0, 0.25) if share else _range([v for line in lines for v in _finite(line.values)])
    show = percent if share else number
    frame = _Frame(epochs[0], max(epochs[-1], epochs[0] + 1), low, high)
    levels = [low + k * step for k in range(round((high - low) / step) + 1)]
    beside = {value: percent(value, 0) if share else f"{value:.6g}" for value in levels}
    parts = frame.axes({epoch: str(epoch) for epoch in _ticks(epochs[0], epochs[-1])}, beside, "epoch")
    if mark is not None and epochs[0] <= mark <= epochs[-1]:
        parts.append(f'<path class="mark" d="M{frame.across(mark):.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
    parts += [f'<path class="line {line.look}" d="{_path(frame, epochs, line.values)}"/>' for line in lines]
    for start, k, end in _stretches(epochs):
        values = [(line.label, line.values[k]) for line in lines]
        told = [f"epoch {epochs[k]}", *(f"{label}: {show(value)}" for label, value in values if value is not None)]
        x, width = frame.across(start), max(frame.across(end) - frame.across(start), 1.0)
        parts.append(
            f'<rect class="hit" x="{x:.1f}" y="{TOP}" width="{width:.1f}" height="{HEIGHT - TOP - BOTTOM}">'
            + _tooltip("\n".join(told))
            + "</rect>"
        )
    ends = [
        f"{line.label}: {show(known[0])} at first, {show(known[-1])} at last"
        for line in lines
        if (known := _finite(line.values))
    ]
    return _svg(WIDTH, HEIGHT, title, f"epochs {epochs[0]} to {epochs[-1]}; " + "; ".join(ends), parts)


def reliability_chart(title: str, bins: Sequence[Bin]) -> str:
    """What probabilities promised (across) against what was so (up), points by size of their bin."""
    bins = [b for b in bins if b.count and math.isfinite(b.mean_predicted + b.observed)]
    frame = _Frame(0.0, 1.0, 0.0, 1.0)
    quarters = {k / 4: percent(k / 4, 0) for k in range(5)}
    parts = frame.axes(quarters, quarters, "predicted")
    parts.append(f'<path class="mark" d="M{frame.across(0)} {frame.down(0)}L{frame.across(1)} {frame.down(1)}"/>')
    places = [(frame.across(b.mean_predicted), frame.down(b.observed)) for b in bins]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts.append(f'<polyline class="line other" points="{points}"/>')
    for b, (x, y) in zip(bins, places, strict=True):
        told = (
            f"{percent(b.low, 0)} to {percent(b.high, 0)}: {b.count:,} predictions\n"
            f"predicted: {percent(b.mean_predicted)}\nobserved: {percent(b.observed)}"
        )
        radius = 3.0 + 5.0 * math.sqrt(b.count / max(other.count for other in bins))
        parts.append(f'<circle class="hit point" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">{_tooltip(told)}</circle>')
    words = "; ".join(f"predicted {percent(b.mean_predicted)}, observed {percent(b.observed)}" for b in bins)
    return _svg(WIDTH, HEIGHT, title, words, parts)


def heat_map(title: str, names: Sequence[str], counts: Sequence[Sequence[float]]) -> str:
    """Expected numbers by given label (down) and true class (across): the diagonal and the rest in two colours."""
    C = len(names)
    side = MAP_SIDE / C
    short = [clipped(label, 12) for label in names]
    longest = max(len(label) for label in short)
    left = 22.0 + 6.4 * longest
    turned = 6.4 * longest > side
    top = left if turned else 34.0
    size = min(11.0, max(6.5, side - 1.0))
    parts = [
        _words(left + MAP_SIDE / 2, 11, "true class"),
        _words(-top - MAP_SIDE / 2, 11, "given label", extra='transform="rotate(-90)"'),
    ]
    for k, label in enumerate(short):
        middle = (k + 0.5) * side
        if turned:
            extra = f'font-size="{size:g}" transform="rotate(-90)"'
            parts.append(_words(6 - top, left + middle + 3.5, label, "start", extra))
        else:
            parts.append(_words(left + middle, top - 6, label, extra=f'font-size="{size:g}"'))
        parts.append(_words(left - 5, top + middle + 3.5, label, "end", f'font-size="{size:g}"'))
    cells = [(j, k, counts[j][k]) for j in range(C) for k in range(C)]
    most = {right: max((value for j, k, value in cells if (j == k) == right), default=0.0) for right in (True, False)}
    for j, k, value in cells:
        x, y, largest = left + k * side, top + j * side, most[j == k]
        # Square roots: one pair that is often confused would otherwise leave all others white.
        depth = DEEPEST * math.sqrt(max(value, 0.0) / largest) if largest > 0 else 0.0
        parts.append(
            f'<g class="hit">{_tooltip(f"given {names[j]}, truly {names[k]}: {value:,.1f} expected")}'
            f'<rect class="{"right" if j == k else "wrong"}" x="{x:.1f}" y="{y:.1f}" width="{side:.1f}" '
            f'height="{side:.1f}" fill-opacity="{depth:.2f}"/>'
        )
        if C <= NUMBERED and value >= 0.5:
            count = f"{value:.0f}" if value < 10_000 else f"{value / 1000:.0f}k"
            parts.append(_words(x + side / 2, y + side / 2 + 4, count, extra='class="count"'))
        parts.append("</g>")
    confused = sorted(((value, j, k) for j, k, value in cells if j != k and value > 0), reverse=True)[:3]
    words = "; ".join(f"given {names[j]}, truly {names[k]}: {value:,.0f}" for value, j, k in confused)
    words = f"most confused: {words}" if words else "nothing is confused"
    return _svg(round(left) + MAP_SIDE + 2, round(top) + MAP_SIDE + 2, title, words, parts)


def swatch(look: str) -> str:
    """A piece of a curve, for a legend."""
    return f'<svg class="swatch" viewBox="0 0 28 8" aria-hidden="true"><path class="line {look}" d="M2 4H26"/></svg>'


def patch(look: str) -> str:
    """A piece of a heat map, for a legend."""
    return (
        f'<svg class="swatch" viewBox="0 0 28 8" aria-hidden="true"><rect class="{look}" width="28" height="8" '
        f'fill-opacity="{DEEPEST}"/></svg>'
    )


def bar(share: float) -> str:
    """A share as a short bar, for a table; its number stands beside it."""
    width = 40.0 * min(max(share, 0.0), 1.0)
    return (
        '<svg class="bar" viewBox="0 0 40 8" aria-hidden="true"><rect class="rest" width="40" height="8" rx="2"/>'
        f'<rect class="wrong" width="{width:.1f}" height="8" rx="2"/></svg>'
    )


def _svg(width: int, height: int, title: str, words: str, parts: Sequence[str]) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{text(title)}: {text(words)}">'
        f"{_tooltip(title)}<desc>{text(words)}</desc>{''.join(parts)}</svg>"
    )


def _tooltip(words: str) -> str:
    return f"<title>{text(words)}</title>"


def _words(x: float, y: float, words: str, anchor: str = "middle", extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{text(words)}</text>'


def _finite(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def _range(values: Sequence[float]) -> tuple[float, float, float]:
    """From, to and step of an axis that has 0 and all values on it, at round numbers."""
    low, high = min([*values, 0.0]), max([*values, 0.0])
    rough = (high - low or 1.0) / 4.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * k for k in (1, 2, 2.5, 5, 10) if power * k >= rough)
    low, high = math.floor(low / step) * step, math.ceil(high / step) * step
    return low, high if high > low else low + step, step


def _ticks(first: int, last: int) -> list[int]:
    step = next(k * 10**power for power in range(9) for k in (1, 2, 5) if last - first <= 6 * k * 10**power)
    ticks = [epoch for epoch in range(first, last + 1) if epoch % step == 0]
    # The first epoch is where early learning is to be seen: it has a number, if there is room for it.
    return ticks if ticks and ticks[0] - first < step / 2 else [first, *ticks]


def _path(frame: _Frame, epochs: Sequence[int], values: Sequence[float | None]) -> str:
    path, drawing = [], False
    for epoch, value in zip(epochs, values, strict=True):
        if value is None or not math.isfinite(value):
            drawing = False
            continue
        # A lone point is a line of no length, which round ends make visible.
        place = f"{frame.across(epoch):.1f} {frame.down(value):.1f}"
        path.append(f"L{place}" if drawing else f"M{place}h0")
        drawing = True
    return "".join(path)


def _stretches(epochs: Sequence[int]) -> list[tuple[float, int, float]]:
    """(from, position, to): pieces of the axis, each telling the values of one epoch within it."""
    chosen = range(0, len(epochs), math.ceil(len(epochs) / HOVERS))
    edges = [(epochs[a] + epochs[b]) / 2.0 for a, b in pairwise(chosen)]
    return list(zip([epochs[0], *edges], chosen, [*edges, epochs[-1]], strict=True))
