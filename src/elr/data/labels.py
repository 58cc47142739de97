"""Labels as users write them -> class numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elr.data.table import read_npz, read_table

SIGNS = ["-1", "1"]


def as_names(labels: Any, where: str) -> NDArray[np.str_]:
    """Labels as strings: text as it is, integers by their digits."""
    array = np.asarray(labels)
    if array.ndim != 1:
        raise ValueError(f"labels of {where} must be one per example, got shape {array.shape}")
    if array.dtype.kind == "f":
        if not np.all(np.floor(array) == array):  # NaN fails too
            bad = array[~(np.floor(array) == array)][0]
            raise ValueError(f"labels of {where} must be class names or integers, got {bad}")
        array = array.astype(np.int64)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind == "O":
        array = np.array(["" if value is None or value != value else str(value) for value in array.tolist()])
    names = array.astype(np.str_)
    if (blank := np.flatnonzero(names == "")).size:
        raise ValueError(f"row {blank[0]} of {where} has no label")
    # -1 is how many tools write that there is no label, in arrays and in tables alike: it is no class. But where the
    # one other label is 1, these are the two classes of whoever writes a sign for a class.
    found = np.unique(names).tolist()
    if found != SIGNS and (negative := [name for name in found if name.startswith("-") and name[1:].isdecimal()]):
        raise ValueError(f"label {negative[0]} of {where} is negative; leave unlabelled examples out")
    return names


def class_names(names: NDArray[np.str_]) -> tuple[str, ...]:
    """The classes in order: by number if all are integers, else by name."""
    found: list[str] = np.unique(names).tolist()
    return tuple(sorted(found, key=int) if all(name.isdecimal() for name in found) else found)


def encode(names: NDArray[np.str_], classes: Sequence[str], where: str) -> NDArray[np.int64]:
    """Class numbers of labels; labels that are no class names but integers below C count as class numbers.

    Not where a class is itself called by a number: one label too many would then shift all the others.
    """
    found, inverse = np.unique(names, return_inverse=True)
    number = {name: index for index, name in enumerate(classes)}
    strangers = [name for name in found.tolist() if name not in number]
    by_number = not any(name.isdecimal() for name in classes)
    if strangers and by_number and all(_below(name, len(classes)) for name in found.tolist()):
        return found.astype(np.int64)[inverse]
    if strangers:
        bad = next((name for name in strangers if not (by_number and _below(name, len(classes)))), strangers[0])
        shown = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
        raise ValueError(f"label {bad!r} of {where} is outside the {len(classes)} classes: {shown}")
    return np.array([number[name] for name in found.tolist()], dtype=np.int64)[inverse]


def _below(name: str, limit: int) -> bool:
    return name.isdecimal() and int(name) < limit


def match(ids: NDArray[Any], known: NDArray[Any]) -> NDArray[np.int64]:
    """For each id its row in ``known``, -1 where it has none. Text that spells integers matches integers."""
    if known.dtype.kind != ids.dtype.kind:
        try:
            known = known.astype(np.int64 if ids.dtype.kind == "i" else np.str_)
        except ValueError:
            return np.full(len(ids), -1)
    if len(known) == 0:
        return np.full(len(ids), -1)
    order = np.argsort(known, kind="stable")
    place = np.minimum(np.searchsorted(known, ids, sorter=order), len(known) - 1)
    rows = order[place]
    return np.where(known[rows] == ids, rows, -1)


def read_labels(path: str | Path, column: str | None) -> tuple[NDArray[Any] | None, NDArray[np.str_]]:
    """Ids and labels of a label file. Ids may be missing from an .npz: its rows are then in the order of the data."""
    path = Path(path)
    columns: dict[str, Any] = dict(read_npz(path) if path.suffix.lower() == ".npz" else read_table(path))
    ids = columns.pop("id", None)
    if ids is None and path.suffix != ".npz":
        raise ValueError(f"label file {path} has no column 'id', only {', '.join(columns) or 'nothing'}")
    if column is None:
        column = "label" if len(columns) != 1 else next(iter(columns))
    if column not in columns:
        raise ValueError(
            f"label file {path} has no {column!r}; set data.labels_column to one of {', '.join(columns) or 'none'}"
        )
    names = as_names(columns[column], str(path))
    if ids is None:
        return None, names
    ids = np.asarray(ids)
    if len(ids) != len(names):
        raise ValueError(f"label file {path} has {len(ids):,} ids and {len(names):,} labels")
    if ids.dtype.kind == "u":
        ids = ids.astype(np.int64)
    if len(np.unique(ids)) < len(ids):
        values, counts = np.unique(ids, return_counts=True)
        raise ValueError(f"id {values[counts > 1][0]} occurs more than once in label file {path}")
    return ids, names
