"""Which examples a page shows beside a suspect: the nearest that can be trusted, with its label and with the other."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elr.audit.evidence import VERSION, read_arrays, write_arrays
from elr.audit.issues import LabelIssues

FILE = "features.safetensors"
SUSPECTS = 2000  # whose features are kept
SAMPLE = 3000  # of all the others, to find neighbours in

Ints = npt.NDArray[np.int64]


class Features(NamedTuple):
    """Features of unit length of some rows."""

    rows: Ints  # (m,) places in the table
    values: npt.NDArray[np.float16]  # (m, D)


def kept_rows(quality: npt.NDArray[Any], issue: npt.NDArray[np.bool_], seed: int) -> Ints:
    """Rows whose features are kept: the surest suspects, and a sample of the others; ascending."""
    order = np.argsort(quality, kind="stable")
    suspects = order[issue[order]][:SUSPECTS]
    others = np.setdiff1d(np.arange(len(quality)), suspects)
    sample = np.random.default_rng(seed).choice(others, min(SAMPLE, len(others)), replace=False)
    return np.sort(np.concatenate([suspects, sample]))


def write_features(folder: Path, features: Features) -> None:
    """Write them atomically."""
    arrays: dict[str, npt.NDArray[Any]] = {"rows": features.rows, "values": np.ascontiguousarray(features.values)}
    write_arrays(folder / FILE, arrays, {"version": VERSION})


def read_features(folder: Path) -> Features | None:
    """Read them; None if none were kept."""
    if not (folder / FILE).is_file():
        return None
    arrays, header = read_arrays(folder / FILE)
    if header.get("version") != VERSION or not {"rows", "values"} <= set(arrays):
        return None
    return Features(arrays["rows"], arrays["values"])


def neighbours(features: Features, row: int, label: str, issues: LabelIssues, count: int) -> list[int]:
    """Rows of the nearest examples with this label that are not suspects themselves, nearest first."""
    place = int(np.searchsorted(features.rows, row))
    if place == len(features.rows) or features.rows[place] != row:
        return []
    given, found = issues["given_label"][features.rows], issues["is_label_issue"][features.rows]
    fit = (given == label) & ~found & (features.rows != row)
    likeness = features.values[fit].astype(np.float32) @ features.values[place].astype(np.float32)
    nearest = np.argsort(-likeness, kind="stable")[:count]
    return [int(k) for k in features.rows[fit][nearest]]
