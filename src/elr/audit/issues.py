"""The table of an audit: a row for every example, and what it says of the whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elr.audit.doubts import doubts
from elr.audit.evidence import Evidence, Rows
from elr.audit.quality import Judgement, judge

Array = npt.NDArray[Any]
MOST_CLASSES = 100  # whose transition matrix is written out
THRESHOLD = 0.5  # of label quality: below it the label is more likely wrong than right


@dataclass(frozen=True, eq=False)
class LabelIssues:
    """A row for every example, in the order of their ids, and what follows for all of them.

    ``columns`` are arrays of equal length, by name; ``issues["label_quality"]`` is one of them. Names that cleanlab
    uses too mean the same here: given_label, predicted_label (by the model alone), label_quality (low is bad),
    is_label_issue.
    """

    columns: Mapping[str, Array]
    classes: tuple[Any, ...]  # as they stand in the columns
    noise_rate: float  # estimated share of wrong labels; rests on assumptions
    noise_range: tuple[float, float]  # what other assumptions give: not a confidence interval
    transition: Array  # (C, C) P(given label | true class)
    confusion: Array  # (C, C) expected number of examples by given label and true class
    threshold: float
    warnings: Sequence[str]  # why the evidence may not tell

    def __len__(self) -> int:
        return len(self.columns["given_label"])

    def __getitem__(self, column: str) -> Array:
        return self.columns[column]

    def __repr__(self) -> str:
        return f"LabelIssues({self.found:,} of {len(self):,} labels look wrong, noise rate {self.noise_rate:.1%})"

    @property
    def found(self) -> int:
        """Labels below the threshold."""
        return int(self["is_label_issue"].sum())

    @property
    def precision(self) -> float | None:
        """Share of the labels found that are expected to be wrong, by their own quality; None if there are none."""
        flagged = self["is_label_issue"]
        return float(1.0 - self["label_quality"][flagged].mean()) if flagged.any() else None

    @property
    def recall(self) -> float | None:
        """Share of the wrong labels that are expected to be among those found."""
        doubt = 1.0 - self["label_quality"]
        return float(doubt[self["is_label_issue"]].sum() / doubt.sum()) if doubt.sum() > 0 else None

    def worst(self, count: int | None = None) -> npt.NDArray[np.int64]:
        """Positions of the labels found, surest first; with a count, of so many rows, found or not."""
        order = np.argsort(self["label_quality"], kind="stable")
        return order[self["is_label_issue"][order]] if count is None else order[:count]

    def confused_pairs(self, count: int = 10) -> list[dict[str, Any]]:
        """Given label, true class, and how many examples are expected to be of that kind, most first."""
        wrong = self.confusion.copy()
        np.fill_diagonal(wrong, 0.0)
        order = np.argsort(-wrong, axis=None, kind="stable")[:count]
        pairs = [divmod(int(place), len(self.classes)) for place in order]
        return [
            {"given_label": self.classes[j], "true_label": self.classes[k], "examples": float(wrong[j, k])}
            for j, k in pairs
            if wrong[j, k] > 0
        ]

    def class_health(self) -> list[dict[str, Any]]:
        """For each class: labels given, expected wrong, found, and examples that should have had this label."""
        number = {name: k for k, name in enumerate(self.classes)}
        y = np.array([number[name] for name in self["given_label"]], dtype=np.int64)
        given, found = (np.bincount(rows, minlength=len(number)).tolist() for rows in (y, y[self["is_label_issue"]]))
        right = np.diag(self.confusion)
        missed = (self.confusion.sum(axis=0) - right).tolist()
        return [
            {
                "label": name,
                "given": given[k],
                "found": found[k],
                "wrong": (given[k] - float(right[k])) / given[k] if given[k] else None,
                "missed": missed[k],
            }
            for k, name in enumerate(self.classes)
        ]

    def to_pandas(self) -> Any:
        """The table as a pandas data frame, if pandas is installed."""
        import pandas as pd

        return pd.DataFrame(dict(self.columns))

    def summary(self) -> dict[str, Any]:
        """What follows for the whole, as plain as JSON."""
        return {
            "examples": len(self),
            "found": self.found,
            "threshold": self.threshold,
            "expected_precision": self.precision,
            "expected_recall": self.recall,
            "noise_rate": self.noise_rate,
            "noise_range": list(self.noise_range),
            "noise_rate_rests_on": "labels that are confused the same way in all examples of a class",
            "classes": list(self.classes),
            # Of a thousand classes it would be thirty megabytes of text; .transition has it.
            "transition": self.transition.tolist() if len(self.classes) <= MOST_CLASSES else None,
            "confused_pairs": self.confused_pairs(),
            "class_health": self.class_health(),
            "warnings": list(self.warnings),
        }


def label_issues(rows: Rows, p: Array, evidence: Evidence | None, threshold: float | None = None) -> LabelIssues:
    """Judge every label; ``p`` is what is believed of every example, (n, C)."""
    if threshold is None:
        threshold = THRESHOLD
    if not 0.0 < threshold < 1.0:
        raise ValueError(f"threshold must lie between 0 and 1, got {threshold}")
    if evidence is not None and not (np.isfinite(evidence.margin).all() and np.isfinite(p).all()):
        raise ValueError("the evidence is damaged: margins or beliefs are not all numbers")
    y = rows.given
    found = judge(p, y, evidence)
    n = np.arange(len(y))
    others = found.belief.copy()
    others[n, y] = -1.0
    suggested = others.argmax(axis=1)
    names = np.array(rows.classes, dtype=object)
    columns: dict[str, Array] = {
        "id": np.array(rows.ids, dtype=object),
        "source": np.array(rows.source, dtype=object),
        "given_label": names[y],
        "predicted_label": names[p.argmax(axis=1)],
        "label_quality": found.quality,
        "is_label_issue": (found.quality < threshold) & (found.belief.argmax(axis=1) != y),
        "suggested_label": names[suggested],
        "suggested_probability": found.belief[n, suggested],
        "target_given": p[n, y],
        "target_suggested": p[n, suggested],
    }
    if evidence is not None:
        columns |= {
            "first_agreement": evidence.first,
            "last_agreement": evidence.last,
            "mean_margin": evidence.margin,
            "learnt": evidence.learnt,
            "forgotten": evidence.forgotten,
            "peak_loss": evidence.peak_loss.astype(np.float32),
        }
        if evidence.agree is not None:
            # Of rows held out only the mean of the networks was seen.
            columns["networks_agree"] = evidence.agree.astype(object)
            columns["networks_agree"][evidence.held] = None
    return LabelIssues(
        columns,
        rows.classes,
        found.rate,
        found.range,
        found.T,
        _confusion(found, y),
        threshold,
        doubts(p, y, found.T, evidence, rate=found.rate),
    )


def _confusion(found: Judgement, y: npt.NDArray[np.int64]) -> Array:
    """Expected number of examples by given label (down) and true class (across)."""
    counts = np.zeros((found.belief.shape[1],) * 2)
    np.add.at(counts, y, found.belief)
    return counts


def find_label_issues(
    labels: Any, pred_probs: Any, *, evidence: Evidence | None = None, threshold: float | None = None
) -> LabelIssues:
    """Judge labels from probabilities of any model, or with the evidence of a watched run.

    Args:
        labels: class numbers 0, 1, ..., C - 1, one an example.
        pred_probs: (n, C) probabilities. Without evidence they should be of a model that was not trained on the example
            (cross-validation); with evidence they are its ``belief``.
        evidence: of the same rows, as ``elr.audit.evidence.read_evidence`` gives it.
        threshold: quality below which a label counts as found, if another class is likelier (default .5: more likely
            wrong than right).
    """
    p = np.asarray(pred_probs, dtype=np.float64)
    y = np.asarray(labels)
    if p.ndim != 2 or p.shape[1] < 2:
        raise ValueError(f"pred_probs must be (n, C) with at least two classes, got shape {p.shape}")
    if not len(p):
        raise ValueError("pred_probs has no rows")
    if y.shape != (len(p),):
        raise ValueError(f"labels must be one for each of the {len(p):,} rows of pred_probs, got shape {y.shape}")
    if y.dtype.kind not in "iub" or not ((y >= 0) & (y < p.shape[1])).all():
        raise ValueError(f"labels must be class numbers from 0 to {p.shape[1] - 1}")
    if not np.isfinite(p).all() or (p < 0).any() or (np.abs(p.sum(axis=1) - 1.0) > 0.02).any():
        raise ValueError("pred_probs must be probabilities: finite, not negative, and rows that sum to 1")
    if evidence is not None and len(evidence) != len(p):
        raise ValueError(f"evidence is of {len(evidence):,} rows, pred_probs of {len(p):,}")
    held = np.zeros(len(p), dtype=bool) if evidence is None else evidence.held
    rows = Rows(
        [str(k) for k in range(len(p))],
        ["val" if out else "train" for out in held],
        y.astype(np.int64),
        tuple(range(p.shape[1])),
    )
    return label_issues(rows, p / p.sum(axis=1, keepdims=True), evidence, threshold)
