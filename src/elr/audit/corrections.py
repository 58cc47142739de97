"""corrections.csv: what a person decided about labels, as the review page writes it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from elr.data.table import read_table
from elr.report.records import write_csv

COLUMNS = ("id", "given_label", "decision", "label")
DECISIONS = ("keep", "accept", "change", "unsure")


class Correction(NamedTuple):
    """A decision about one label."""

    id: str
    given: str  # the label that was looked at
    decision: str  # keep, accept (the suggestion), change (to another) or unsure
    label: str  # the label from now on; the given one if kept or unsure

    @property
    def wrong(self) -> bool | None:
        """Whether the given label was found to be wrong; None if the person could not tell."""
        return None if self.decision == "unsure" else self.decision != "keep"


def decided(id_: str, given: str, suggested: str | None, label: str) -> Correction:
    """The decision that a label chosen by a person amounts to."""
    decision = "keep" if label == given else "accept" if label == suggested else "change"
    return Correction(id_, given, decision, label)


def read_corrections(path: Path) -> list[Correction]:
    """Read and check a corrections.csv."""
    columns = read_table(path)
    if missing := [name for name in COLUMNS if name not in columns]:
        raise ValueError(f"{path} has no column {missing[0]!r}; a corrections file has {', '.join(COLUMNS)}")
    rows = zip(*(columns[name] for name in COLUMNS), strict=True)
    return unique((_checked(Correction(*row), number, path) for number, row in enumerate(rows, 1)), path)


def check_new(path: Path) -> None:
    """Refuse to write over decisions."""
    if path.exists():
        raise FileExistsError(f"{path} exists already; choose another file")


def write_corrections(path: Path, corrections: Sequence[Correction]) -> None:
    """Write a new corrections.csv; an existing file is not replaced."""
    check_new(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_csv(path, [dict(zip(COLUMNS, correction, strict=True)) for correction in corrections], COLUMNS)


def unique(corrections: Iterable[Correction], path: Path) -> list[Correction]:
    """Each id once; the same decision twice is one, two different ones are refused."""
    found: dict[str, Correction] = {}
    for correction in corrections:
        if found.setdefault(correction.id, correction) != correction:
            raise ValueError(f"{path} decides twice about id {correction.id!r}, and not the same")
    return list(found.values())


def _checked(row: Correction, number: int, path: Path) -> Correction:
    decision = row.decision.strip().lower()
    if decision not in DECISIONS:
        known = ", ".join(DECISIONS)
        raise ValueError(f"decision {row.decision!r} in row {number} of {path} is none of {known}")
    if decision in ("keep", "unsure"):
        if row.label not in ("", row.given):
            raise ValueError(f"row {number} of {path} says {decision} but has another label, {row.label!r}")
        return row._replace(decision=decision, label=row.given)
    if not row.label:
        raise ValueError(f"row {number} of {path} says {decision} but has no label")
    return row._replace(decision="keep" if row.label == row.given else decision)
