"""Markdown tables and what goes into their cells."""

import statistics
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are text already."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def plain(text: str) -> str:
    """Text that Markdown leaves alone."""
    return text.replace("<", "&lt;").replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


def mean(values: Sequence[float | None], form: str) -> str:
    """The mean of the values there are; nothing when there are none."""
    known = [value for value in values if value is not None]
    return format(statistics.fmean(known), form) if known else ""
