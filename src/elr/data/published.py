"""Data sets in the layout their authors publish: where they lie, what is missing of them, their lists of files."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from elr.data.config import DataConfig

NAMES = ("clothing1m", "mini_webvision", "ilsvrc12")
HOW = "docs/datasets.md shows the layout"


def places(config: DataConfig, names: Sequence[str]) -> list[Path]:
    """Folders to look in: data.root or $ELR_DATA and these below it, or the same of data.source if it is a path."""
    root = config.root or os.environ.get("ELR_DATA") if config.source in NAMES else config.source
    return [] if root is None else [Path(root), *(Path(root) / name for name in names)]


def find(title: str, config: DataConfig, names: Sequence[str], missing: Callable[[Path], list[str]]) -> Path:
    """The folder that holds a data set. Otherwise one sentence that says what is missing, where most of it is."""
    candidates = [place for place in places(config, names) if place.is_dir()]
    lacks = {place: missing(place) for place in candidates}
    for place, files in lacks.items():
        if not files:
            return place
    if not candidates:
        where = places(config, ())
        look = f"no folder {where[0]}" if where else "set --data.root DIR or $ELR_DATA to the folder that holds it"
        raise FileNotFoundError(f"{title} not found: {look}; {HOW}")
    best = min(candidates, key=lambda place: len(lacks[place]))
    raise FileNotFoundError(f"{title} is not complete: {best} lacks {', '.join(lacks[best])}; {HOW}")


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of every line that is not blank."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if text := line.strip():
                    yield number, text
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged: it is no text ({error.reason})") from error


def pairs(path: Path, limit: int) -> Iterator[tuple[str, int]]:
    """Lines of ``name label`` with labels from 0 to limit - 1."""
    for number, text in lines_of(path):
        name, _, label = text.rpartition(" ")
        if not (name.strip() and label.isdecimal() and int(label) < limit):
            raise ValueError(f"line {number} of {path} is {text[:80]!r}, not a name and a label below {limit}")
        yield name.strip(), int(label)
