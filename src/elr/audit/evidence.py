"""The evidence of a run as plain arrays, and its two files: rows.csv (who) and evidence.safetensors (what was seen)."""

import csv
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from elr.report.records import replacing, write_csv

VERSION = 1
ROWS, FILE = "rows.csv", "evidence.safetensors"
Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What was seen of every example, (n,) unless told. Epochs count from 1; 0 is never."""

    belief: Array  # (n, C) ELR's targets, or averaged predictions; rows sum to 1
    margin: Array  # mean of z[given] - max of the others over all visits, epochs weighted by validation
    visits: Array
    first: Array  # epoch in which the label was first predicted
    last: Array
    learnt: Array  # times the prediction came to be the label
    forgotten: Array  # and ceased to be
    peak_loss: Array  # cross entropy at the early-learning peak; NaN if not known
    held: Array  # bool: not trained on
    agree: Array | None = None  # bool: both networks believe in the same class; None with one network
    facts: Mapping[str, Any] = field(default_factory=dict)  # epochs and peak of the run

    def __len__(self) -> int:
        return len(self.margin)


@dataclass(frozen=True, eq=False)
class Rows:
    """Every example of the input: its id, where it was used, and the label it was given."""

    ids: Sequence[str]
    source: Sequence[str]  # train or val
    given: Array  # (n,) class numbers
    classes: tuple[Any, ...]  # names, or the numbers themselves


def in_order(rows: Rows, evidence: Evidence) -> tuple[Rows, Evidence]:
    """Both by id, as numbers if all are: training and validation rows take their places among each other."""
    if all(id_.isdecimal() for id_ in rows.ids):
        order = np.argsort(np.array([int(id_) for id_ in rows.ids]), kind="stable")
    else:
        order = np.argsort(np.array(rows.ids, dtype=np.str_), kind="stable")
    arrays = {f.name: getattr(evidence, f.name) for f in fields(evidence) if f.name != "facts"}
    ordered = {name: array[order] for name, array in arrays.items() if array is not None}
    ids, source = ([sequence[k] for k in order] for sequence in (rows.ids, rows.source))
    return Rows(ids, source, rows.given[order], rows.classes), Evidence(**ordered, facts=evidence.facts)


def write_evidence(folder: Path, rows: Rows, evidence: Evidence) -> None:
    """Write both files atomically, the rows first: evidence is there only if all of it is."""
    names = rows.classes
    table = [
        {"id": id_, "source": source, "given_label": names[y]}
        for id_, source, y in zip(rows.ids, rows.source, rows.given.tolist(), strict=True)
    ]
    write_csv(folder / ROWS, table, ("id", "source", "given_label"))
    arrays = {f.name: getattr(evidence, f.name) for f in fields(evidence) if f.name != "facts"}
    own = {name: np.ascontiguousarray(array) for name, array in arrays.items() if array is not None}
    header = {**evidence.facts, "version": VERSION, "rows": len(evidence)}
    write_arrays(folder / FILE, own, header)


def write_arrays(path: Path, arrays: Mapping[str, Any], header: Mapping[str, Any]) -> None:
    """Write a safetensors file with a header atomically; a full disk is the same one line as for every other file."""
    with replacing(path) as temporary:
        try:
            # One entry: safetensors writes several in a random order, and equal runs are to give equal bytes.
            save_file(dict(arrays), temporary, metadata={"evidence": json.dumps(dict(header), sort_keys=True)})
        except SafetensorError as error:
            raise OSError(f"{path} cannot be written: {error}") from error
        temporary.chmod(path.parent.stat().st_mode & 0o666)


def read_evidence(folder: Path, classes: tuple[str, ...]) -> tuple[Rows, Evidence]:
    """Read both files of a run; what is missing, damaged or of another version is one clear line."""
    if not (folder / FILE).is_file() or not (folder / ROWS).is_file():
        if not (folder / "summary.json").is_file():
            resume = f"elr train --out {shlex.quote(str(folder))} --resume"
            raise FileNotFoundError(
                f"{folder} has no evidence to audit: it is not finished; go on with `{resume}`, or if it was begun "
                "in Python, there"
            )
        raise FileNotFoundError(
            f"{folder} has no evidence to audit: it was trained without; train with evaluate.evidence on"
        )
    arrays, header = read_arrays(folder / FILE)
    if header.get("version") != VERSION:
        raise ValueError(
            f"{folder / FILE} is of version {header.get('version')}, this is version {VERSION}: train again, or use "
            "the version of elr that wrote it"
        )
    rows = _read_rows(folder / ROWS, classes)
    known = {f.name for f in fields(Evidence)} - {"facts"}
    try:
        evidence = Evidence(**{name: array for name, array in arrays.items() if name in known}, facts=header)
    except TypeError:
        missing = sorted(known - set(arrays) - {"agree"})
        raise ValueError(f"{folder / FILE} is incomplete: it has no {', '.join(missing)}") from None
    lengths = {len(array) for name, array in arrays.items() if name in known}
    if lengths != {len(rows.ids)}:
        found = ", ".join(f"{length:,}" for length in sorted(lengths))
        raise ValueError(f"{folder} is damaged: {len(rows.ids):,} rows but evidence of {found}")
    return rows, evidence


def read_arrays(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays and header of a safetensors file; an unreadable one is one clear line."""
    try:
        with safe_open(path, framework="np") as file:
            header = json.loads((file.metadata() or {}).get("evidence", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, dict(header)  # noqa: SIM118 (not a dict)
    except (SafetensorError, ValueError, TypeError, OSError) as error:
        raise ValueError(f"{path} is not a readable safetensors file ({error})") from error


def _read_rows(path: Path, classes: tuple[str, ...]) -> Rows:
    try:
        with open(path, newline="", encoding="utf-8") as file:
            table = list(csv.DictReader(file))
        number = {name: k for k, name in enumerate(classes)}
        given = np.array([number[row["given_label"]] for row in table], dtype=np.int64)
        return Rows([row["id"] for row in table], [row["source"] for row in table], given, classes)
    except (KeyError, csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged: {type(error).__name__} {error}") from error
