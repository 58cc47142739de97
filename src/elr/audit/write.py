"""The files of an audit: label_issues.csv, label_issues.parquet, audit.json, and review.json of checked rows."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from elr.audit.issues import LabelIssues
from elr.report.records import replacing, write_csv, write_json

CSV, PARQUET, SUMMARY = "label_issues.csv", "label_issues.parquet", "audit.json"
DRAWN, CHECKED = "review.csv", "review.json"


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written in, before any work is done."""
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not place.is_dir():
        raise NotADirectoryError(f"{place} is a file, not a folder; choose another --out")
    if not os.access(place, os.W_OK | os.X_OK):
        raise PermissionError(f"no permission to write in {place}; choose another --out")


def write_issues(issues: LabelIssues, folder: Path) -> list[Path]:
    """Write the table, as CSV and, where pyarrow is installed, as Parquet, and the summary; all atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / CSV]
    write_table(issues, paths[0])
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        (folder / PARQUET).unlink(missing_ok=True)  # of an earlier audit: it would contradict the CSV
    else:
        paths.append(folder / PARQUET)
        write_table(issues, paths[-1])
    paths.append(folder / SUMMARY)
    write_json(paths[-1], issues.summary())
    return paths


def write_table(issues: LabelIssues, path: Path) -> None:
    """Write the table to a .csv or .parquet file."""
    if path.suffix == ".parquet":
        _write_parquet(issues, path)
        return
    columns = {name: _plain(values) for name, values in issues.columns.items()}
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    write_csv(path, rows, list(columns))


def _plain(values: Any) -> list[Any]:
    """Values as CSV has them: true and false, nothing for what is not known."""
    if values.dtype == bool:
        return ["true" if value else "false" for value in values.tolist()]
    if values.dtype == object:
        return [str(value).lower() if isinstance(value, bool) else value for value in values.tolist()]
    if values.dtype.kind == "f":
        return [None if value != value else value for value in values.tolist()]
    return list(values.tolist())


def _write_parquet(issues: LabelIssues, path: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError("writing Parquet needs pyarrow: pip install 'elr[parquet]'") from None
    arrays = {}
    for name, values in issues.columns.items():
        unknown = np.isnan(values) if values.dtype.kind == "f" else None
        arrays[name] = pa.array(values.tolist() if values.dtype == object else values, mask=unknown)
    with replacing(path) as temporary:
        pq.write_table(pa.table(arrays), temporary)
