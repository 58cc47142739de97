"""What a page shows of a run, as plain values: whoever knows the run fills them in, the page only draws them."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from elr.report.records import Record


@dataclass(frozen=True, eq=False)
class Picture:
    """A small PNG or JPEG; a page has no room for large ones."""

    data: bytes
    width: int
    height: int

    @property
    def media_type(self) -> str:
        """Told by the first bytes."""
        return "image/png" if self.data.startswith(b"\x89PNG") else "image/jpeg"

    @cached_property
    def key(self) -> str:
        """The same for the same bytes: a neighbour of many suspects is in the page once."""
        return hashlib.sha256(self.data).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Neighbour:
    """A training example close to a suspect, with the label it was given."""

    id: str
    label: str
    picture: Picture | None = None
    text: str | None = None


@dataclass(frozen=True, eq=False)
class Suspect:
    """A label that may be wrong, and what a person needs to judge it."""

    id: str
    given_label: str
    suggested_label: str
    suggested_probability: float
    label_quality: float  # low is bad
    source: str = "train"  # or val
    found: bool = True  # below the threshold of the audit
    picture: Picture | None = None
    text: str | None = None  # a text, or a row of features as text
    agreeing: tuple[Neighbour, ...] = ()  # nearest training examples with the given label
    disagreeing: tuple[Neighbour, ...] = ()  # nearest with the suggested one
    evidence: Mapping[str, str | float | int | None] = field(default_factory=dict)  # small print; None is left out


@dataclass(frozen=True, eq=False)
class Drawn:
    """A row drawn at random, to be judged by somebody who is not told what the audit thinks of it."""

    id: str
    given_label: str
    suggested_label: str  # choosing it counts as accepting it; it is not shown
    picture: Picture | None = None
    text: str | None = None


@dataclass(frozen=True)
class Bin:
    """Predictions whose probability lies in [low, high]: what they promised, and how often it was so."""

    low: float
    high: float
    mean_predicted: float
    observed: float
    count: int


@dataclass(frozen=True)
class Calibration:
    """Reliability of probabilities; the caption says of which, and against what."""

    caption: str
    bins: tuple[Bin, ...]


@dataclass(frozen=True, eq=False)
class RunView:
    """One run. What is not known is empty, and ``lacks`` says why."""

    key: str  # decisions are kept under it in the browser: the same for the same run, in whatever page it is shown
    name: str
    path: str
    classes: tuple[str, ...]
    summary: Mapping[str, Any] = field(default_factory=dict)  # summary.json
    records: Sequence[Record] = ()  # records.jsonl
    audit: Mapping[str, Any] | None = None  # audit.json
    confusion: Sequence[Sequence[float]] | None = None  # (C, C) expected examples by given label and true class
    calibration: Calibration | None = None
    suspects: tuple[Suspect, ...] = ()  # surest first
    facts: Mapping[str, str] = field(default_factory=dict)  # data, noise, versions, commit, seconds
    config: Mapping[str, str] = field(default_factory=dict)  # "optim.lr" -> "0.05"
    lacks: tuple[str, ...] = ()  # sentences: what the page does not show, and why
    drawn: tuple[Drawn, ...] = ()  # review.csv, in its order
    checked: Mapping[str, Any] | None = None  # review.json: what the answers to these say

    @property
    def more(self) -> int:
        """Labels that look wrong and are not among the suspects."""
        found = 0 if self.audit is None else int(self.audit["found"])
        return max(found - sum(suspect.found for suspect in self.suspects), 0)
