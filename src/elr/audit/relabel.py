"""From decisions about labels to a new label file."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from elr.audit.corrections import DECISIONS, Correction
from elr.audit.evidence import ROWS
from elr.data.table import read_table
from elr.report.records import read_json, write_csv


class Labels(NamedTuple):
    """The labels that all examples have now."""

    ids: Sequence[str]
    labels: Sequence[str]
    classes: tuple[str, ...]


class Relabelled(NamedTuple):
    """New labels, and what is different about them."""

    labels: list[str]  # of all examples, in their order
    decisions: Mapping[str, int]  # how many of each kind
    pairs: Sequence[tuple[str, str, int]]  # label before, after, and how many changed so, most first
    before: Mapping[str, int]  # examples of each class
    after: Mapping[str, int]
    new: Sequence[str]  # labels that were no class before

    @property
    def changed(self) -> int:
        """Labels that differ."""
        return sum(count for _, _, count in self.pairs)


def run_labels(run: Path) -> Labels:
    """The labels that a run was trained and validated with, noise that was injected included."""
    if not (run / ROWS).is_file() or not (run / "classes.json").is_file():
        raise FileNotFoundError(f"{run} does not say which labels it had ({ROWS}): give the data it was trained on")
    columns = read_table(run / ROWS)
    if not {"id", "given_label"} <= set(columns):
        raise ValueError(f"{run / ROWS} is damaged: it has no id or no given_label")
    return Labels(columns["id"], columns["given_label"], tuple(read_json(run / "classes.json")))


def relabel(now: Labels, corrections: Sequence[Correction], *, new_classes: bool = False) -> Relabelled:
    """Apply decisions. What does not fit the labels as they are now is refused, all or nothing.

    Args:
        now: the labels to correct.
        corrections: the decisions, one an id.
        new_classes: whether a label may be one that is no class yet.
    """
    place = {id_: row for row, id_ in enumerate(now.ids)}
    if strangers := [c.id for c in corrections if c.id not in place]:
        raise ValueError(f"{len(strangers):,} corrections are of ids that the data do not have, first {strangers[0]!r}")
    if stale := [c for c in corrections if c.given != now.labels[place[c.id]]]:
        label = now.labels[place[stale[0].id]]
        raise ValueError(
            f"{len(stale):,} corrections are of other labels than the data have now: id {stale[0].id!r} was "
            f"{stale[0].given!r} when it was looked at, and is {label!r}; relabel what was audited, or audit again"
        )
    known = set(now.classes)
    new = list(dict.fromkeys(c.label for c in corrections if c.label not in known))
    if new and not new_classes:
        shown = ", ".join(now.classes[:10]) + (", ..." if len(now.classes) > 10 else "")
        raise ValueError(f"label {new[0]!r} is outside the {len(known)} classes: {shown}; allow it with --new-classes")
    labels = list(now.labels)
    for c in corrections:
        labels[place[c.id]] = c.label
    pairs = Counter((c.given, c.label) for c in corrections if c.label != c.given)
    before, after = Counter(now.labels), Counter(labels)
    names = [*now.classes, *new]
    kinds = Counter(c.decision for c in corrections)
    return Relabelled(
        labels,
        {kind: kinds[kind] for kind in DECISIONS},
        [(a, b, count) for (a, b), count in pairs.most_common()],
        {name: before[name] for name in names},
        {name: after[name] for name in names},
        new,
    )


def check_new(path: Path) -> None:
    """Refuse a place where no new label file can be."""
    if path.exists():
        raise FileExistsError(f"{path} exists already; label files are not replaced: choose another --out")
    if path.suffix != ".csv":
        raise ValueError(f"cannot write {path}: a label file ends in .csv")


def write_labels(path: Path, ids: Sequence[str], labels: Sequence[str]) -> None:
    """Write a label file for ``--data.labels``; an existing file is never replaced."""
    check_new(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_csv(path, [{"id": id_, "label": label} for id_, label in zip(ids, labels, strict=True)], ("id", "label"))
