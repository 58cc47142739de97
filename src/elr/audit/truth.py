"""How good an audit was, where the truth is known. Nothing here flows back: an audit never sees true labels."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elr.audit.issues import LabelIssues

BINS = 10


class Found(NamedTuple):
    """An audit against the truth. None where a number has no meaning, as the recall of no wrong labels."""

    examples: int
    wrong: int  # truly
    found: int
    found_wrong: int  # truly wrong among those found
    precision: float | None
    recall: float | None
    average_precision: float | None  # of ranking by label quality; rows that tie count together
    auroc: float | None
    suggestion_accuracy: float | None  # of truly wrong labels that were found, with the true class suggested
    ece: float  # expected calibration error of label quality


def found_of(issues: LabelIssues, ids: Sequence[Any], wrong: Any, true: Sequence[str] | None = None) -> Found:
    """Compare an audit with what is known of its examples.

    Args:
        issues: the audit.
        ids: of the examples of which the truth is known; all of the audit's must be among them.
        wrong: (n,) whether the given label of each is wrong.
        true: their true labels, for the accuracy of suggestions.
    """
    place = {str(id_): row for row, id_ in enumerate(ids)}
    if strangers := [id_ for id_ in issues["id"] if id_ not in place]:
        raise ValueError(f"the truth of example {strangers[0]!r} is not known: it is of other data")
    rows = np.array([place[id_] for id_ in issues["id"]], dtype=np.int64)
    bad = np.asarray(wrong, dtype=bool)[rows]
    flagged, quality = issues["is_label_issue"], issues["label_quality"]
    hits = flagged & bad
    right = None if true is None else issues["suggested_label"] == np.array(list(true), dtype=object)[rows]
    ranked = 0 < bad.sum() < len(bad)
    return Found(
        len(bad),
        int(bad.sum()),
        int(flagged.sum()),
        int(hits.sum()),
        _share(hits, flagged),
        _share(hits, bad),
        average_precision(bad, 1.0 - quality) if ranked else None,
        auroc(bad, 1.0 - quality) if ranked else None,
        None if right is None else _share(hits & right, hits),
        calibration_error(quality, ~bad),
    )


def average_precision(positive: npt.NDArray[np.bool_], score: npt.NDArray[np.floating]) -> float:
    """Mean over the positives of the precision at their score; scores that tie are one step."""
    order = np.argsort(-score, kind="stable")
    last = np.flatnonzero(np.append(np.diff(score[order]) != 0, True))  # where each run of ties ends
    hits = np.cumsum(positive[order])[last]
    return float((np.diff(hits, prepend=0) * hits / (last + 1)).sum() / positive.sum())


def auroc(positive: npt.NDArray[np.bool_], score: npt.NDArray[np.floating]) -> float:
    """Chance that a positive scores above a negative; a tie is half a win."""
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2.0)[inverse]  # from 1, ties in the middle
    m, n = int(positive.sum()), len(positive)
    return float((rank[positive].sum() - m * (m + 1) / 2.0) / (m * (n - m)))


def calibration_error(probability: npt.NDArray[np.floating], happened: npt.NDArray[np.bool_]) -> float:
    """Mean gap between what was expected and what happened, over ten equal bins of probability."""
    place = np.minimum((probability * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(place, weights=probability - happened, minlength=BINS)
    return float(np.abs(gaps).sum() / len(probability))


def _share(part: npt.NDArray[np.bool_], whole: npt.NDArray[np.bool_]) -> float | None:
    return float(part.sum() / whole.sum()) if whole.any() else None
