"""Files of columns: CSV, TSV, Parquet, npz."""

import csv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def read_table(path: Path) -> dict[str, list[str]]:
    """Columns of a .csv, .tsv or .parquet file as text; an absent value is empty text."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    if path.suffix.lower() == ".parquet":
        return _read_parquet(path)
    if path.suffix not in (".csv", ".tsv"):
        raise ValueError(f"cannot read {path}: expected .csv, .tsv or .parquet")
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
            return _columns(next(rows, []), rows, path)
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None


def _columns(names: list[str], rows: Any, path: Path) -> dict[str, list[str]]:
    if len(set(names)) < len(names):
        raise ValueError(f"{path} names a column twice: {', '.join(names)}")
    columns: Sequence[list[str]] = [[] for _ in names]
    for row in rows:
        if not row:
            continue
        if len(row) != len(names):
            raise ValueError(f"line {rows.line_num} of {path} has {len(row)} values, the header {len(names)}")
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return dict(zip(names, columns, strict=True))


def _read_parquet(path: Path) -> dict[str, list[str]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError(f"reading {path} needs pyarrow: pip install elr[parquet]") from None
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    return {
        name: ["" if value is None else str(value) for value in table.column(name).to_pylist()]
        for name in table.column_names
    }


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Arrays of an .npz file; pickled objects are refused."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, EOFError, ValueError, AttributeError, zipfile.BadZipFile, zipfile.zlib.error) as error:  # type: ignore[attr-defined]
        raise ValueError(f"cannot read {path}: {error}") from None
