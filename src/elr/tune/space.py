"""What is searched: lists and ranges of options, and the grids of the paper."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, get_args, get_origin
from urllib.parse import quote

from elr.config import HEADS, Option, hint
from elr.convert import convert

Value = str | int | float | bool | None
Point = dict[str, Value]  # a value for every option that is searched, by dotted key

# PAPER Section G.4 (Hyperparameters selection): beta and lambda of ELR by grid search; ELR+ takes over what was chosen
# for ELR and searches alpha alone. The text prints alpha's grid as {0.1, 2, 5}, without the 1 that was chosen from it.
PAPER_GRIDS: dict[str, tuple[str, ...]] = {
    "elr": ("method.beta=0.5,0.7,0.9,0.99", "method.lam=1,3,5,7,10"),
    "elr_plus": ("method.alpha=0.1,1,2,5",),
}
# What the validation set is made of, or what changes no result: values of these cannot be compared by accuracy.
FIXED = ("data", "noise", "evaluate", "runtime")
OF_INPUTS = ("data.augment", "data.pad", "data.padding", "data.flip", "data.standardize", "data.image_size")


class Listed(NamedTuple):
    """An option with the values to try."""

    key: str
    values: tuple[Value, ...]


class Range(NamedTuple):
    """An option with a smallest and a largest value."""

    key: str
    low: float
    high: float
    log: bool
    whole: bool  # integers only


Axis = Listed | Range


@dataclass(frozen=True)
class Space:
    """All that is searched, in the order given."""

    axes: tuple[Axis, ...]

    @cached_property
    def names(self) -> dict[str, str]:
        """Short name of each option: ``lam`` for ``method.lam``, unless two would be the same."""
        short = [axis.key.rpartition(".")[2] for axis in self.axes]
        keys = [axis.key for axis in self.axes]
        return {key: name if short.count(name) == 1 else key for key, name in zip(keys, short, strict=True)}

    @property
    def ranges(self) -> list[Range]:
        """Axes that a grid cannot have."""
        return [axis for axis in self.axes if isinstance(axis, Range)]

    def grid(self) -> list[Point]:
        """Every combination of the listed values; of a range, its ends."""
        values = [axis.values if isinstance(axis, Listed) else (axis.low, axis.high) for axis in self.axes]
        return [dict(zip(self.names, row, strict=True)) for row in itertools.product(*values)]

    def holds(self, point: Mapping[str, Any]) -> bool:
        """Whether the search could try this point."""
        return all(_holds(axis, point[axis.key]) for axis in self.axes)

    def title(self, point: Mapping[str, Any]) -> str:
        """``lam=3, beta=0.7``."""
        return ", ".join(f"{name}={shown(point[key])}" for key, name in self.names.items())

    def folder(self, point: Mapping[str, Any]) -> str:
        """Name of the folder of a point: exact, so that the same point always has the same folder."""
        return ",".join(f"{name}={quote(exact(point[key]), safe='')}" for key, name in self.names.items())

    def words(self) -> list[str]:
        """The search as ``--search`` spells it."""
        return [spelled(axis) for axis in self.axes]


def make_space(searches: Sequence[str], method: str, known: Mapping[str, Option]) -> Space:
    """The space of these ``--search`` arguments; without any, the paper's grid for the method."""
    if not searches:
        if method not in PAPER_GRIDS:
            raise ValueError(
                f"no grid is known for {method}; give --search KEY=VALUE,VALUE,... ({', '.join(PAPER_GRIDS)} have one)"
            )
        searches = PAPER_GRIDS[method]
    axes = tuple(read_axis(text, known) for text in searches)
    keys = [axis.key for axis in axes]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ValueError(f"--search names {twice[0]} twice")
    return Space(axes)


def read_axis(text: str, known: Mapping[str, Option]) -> Axis:
    """``method.lam=1,3,5``, ``method.lam=1..10`` or ``optim.lr=1e-3..1e-1:log``."""
    key, equals, values = (part.strip() for part in text.partition("="))
    if not (equals and key and values):
        raise ValueError(
            f"cannot read --search {text!r}; write KEY=VALUE,VALUE,... or KEY=LOW..HIGH or KEY=LOW..HIGH:log"
        )
    key = f"{key}.{HEADS[key]}" if key in HEADS else key.replace("-", "_")
    if key not in known:
        raise ValueError(f"--search: unknown option {key!r}; {hint(key, known)}")
    if key == "method.name":
        raise ValueError("--search tunes one method; compare several with elr bench")
    if key == "seed" or (key.partition(".")[0] in FIXED and key not in OF_INPUTS):
        raise ValueError(f"--search: {key} cannot be chosen by validation accuracy, which it is no hyperparameter of")
    kind = _plain_type(known[key].type)
    if get_origin(kind) is tuple:
        raise ValueError(f"--search: {key} is a list itself; give one run each with elr train")
    if kind in (int, float) and ".." in values:
        return _range(key, values, kind)
    found = tuple(dict.fromkeys(convert(item, known[key].type, key) for item in map(str.strip, values.split(","))))
    return Listed(key, found)


def _range(key: str, text: str, kind: Any) -> Range:
    bounds, colon, scale = text.partition(":")
    low, high = (convert(part, kind, f"--search: the range of {key}") for part in bounds.split("..", 1))
    if colon and scale != "log":
        raise ValueError(f"--search: {key}={text} ends in {scale!r}; only :log is known")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"--search: {key}={text} must go from a smaller number to a larger one")
    if colon and low <= 0:
        raise ValueError(f"--search: {key}={text} starts at {shown(low)}; the logarithm needs a number above 0")
    return Range(key, low, high, bool(colon), kind is int)


def _plain_type(kind: Any) -> Any:
    """``float`` for ``float | None``."""
    named = [argument for argument in get_args(kind) if argument is not type(None)]
    return named[0] if type(None) in get_args(kind) else kind


def _holds(axis: Axis, value: Any) -> bool:
    if isinstance(axis, Listed):
        return value in axis.values
    return isinstance(value, int | float) and axis.low <= value <= axis.high


def spelled(axis: Axis) -> str:
    """An axis as a user writes it."""
    if isinstance(axis, Listed):
        return f"{axis.key}={','.join(map(exact, axis.values))}"
    return f"{axis.key}={exact(axis.low)}..{exact(axis.high)}{':log' if axis.log else ''}"


def exact(value: Any) -> str:
    """All digits; a whole number without its point."""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def shown(value: Any) -> str:
    """As many digits as a person reads."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
