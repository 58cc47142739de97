"""Files of a run: written so that a crash at any moment leaves either the old file or the new one."""

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Record = dict[str, Any]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path in the same folder; on success it replaces ``path`` durably, on failure it is removed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)


def clear_leftovers(folder: Path) -> None:
    """Remove the temporary files of processes of this machine that were killed while they wrote here."""
    for path in folder.glob(".*.tmp"):
        number = path.name.split(".")[-2]
        if number.isdecimal() and not _lives(int(number)):
            path.unlink(missing_ok=True)


def _lives(process: int) -> bool:
    if os.name != "posix":
        return True  # cannot be asked without harm
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # somebody else's
    return True


def write_text(path: Path, text: str) -> None:
    """Write a whole text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON atomically; NaN is refused rather than written as something no parser reads."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = (), *, digits: int = 6) -> None:
    """Write rows atomically, with the columns of the first unless told; a value that is not known is empty."""
    columns = columns or list(rows[0] if rows else ())
    with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        # A carriage return alone ends a line for whoever reads, but is not quoted by itself.
        quoting = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerow(columns)
        for row in rows:
            cells = [_cell(row.get(key), digits) for key in columns]
            (quoting if any(isinstance(cell, str) and "\r" in cell for cell in cells) else writer).writerow(cells)


def _cell(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    return "" if value is None else value


def read_json(path: Path) -> Any:
    """Read JSON; an unreadable file is named."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error


def checked(path: Path, table: Any, kinds: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
    """A table that was read, if each of these keys that it has is of its kind, or nothing: files may be edited."""
    if not isinstance(table, dict):
        raise ValueError(f"{path} is damaged: it holds no table")
    for key, kind in kinds.items():
        value = table.get(key)
        if value is not None and not isinstance(value, kind):
            raise ValueError(f"{path} is damaged: {key} is {value!r}")
    return table


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Append one record as a line of JSON, on the disk when this returns: what is written next relies on it."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> list[Record]:
    """All complete records; a last line cut short by a crash is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    try:
        return [json.loads(line) for line in lines[:-1] if line]
    except json.JSONDecodeError as error:
        number = next(k for k, line in enumerate(lines, 1) if line == error.doc)
        raise ValueError(f"line {number} of {path} is not valid JSON: {error}") from error


def keep_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Rewrite a file of records atomically, for resuming from an earlier epoch."""
    write_text(path, "".join(json.dumps(record) + "\n" for record in records))
