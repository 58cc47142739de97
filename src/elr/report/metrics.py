"""Numbers about predictions. Here, and in the evaluator that calls it, is the only use of true labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

TOP = 5  # a second chance is worth telling only where there are more classes
Ints = npt.NDArray[np.integer[Any]]


def accuracy(predicted: Ints, labels: Ints) -> float:
    """Fraction of predictions that equal the labels."""
    return float(np.mean(predicted == labels))


def top_k(probabilities: npt.NDArray[np.floating[Any]], labels: Ints, k: int = TOP) -> float:
    """Fraction of labels among the ``k`` most probable classes of their rows (n, C); of equal ones the first counts."""
    own = np.take_along_axis(probabilities, labels[:, None], axis=1)  # (n, 1)
    earlier = np.arange(probabilities.shape[1]) < labels[:, None]  # (n, C)
    ahead = (probabilities > own) | ((probabilities == own) & earlier)
    return float(np.mean(ahead.sum(axis=1) < k))


def fractions(predicted: Ints, labels: Ints, true: Ints) -> dict[str, float]:
    """The curves of the paper's Figure 1, as fractions of the examples with a clean and with a wrong label.

    clean_correct: clean label, predicted right. For wrong labels: wrong_correct (the true class is predicted),
    wrong_memorized (the wrong label is predicted), wrong_other (neither). A group without examples is left out.
    """
    clean = labels == true
    result: dict[str, float] = {}
    if clean.any():
        result["clean_correct"] = accuracy(predicted[clean], true[clean])
    if not clean.all():
        wrong = ~clean
        result["wrong_correct"] = accuracy(predicted[wrong], true[wrong])
        result["wrong_memorized"] = accuracy(predicted[wrong], labels[wrong])
        # Counted, not 1 - the others: three numbers that were measured must add up to 1.
        result["wrong_other"] = float(np.mean((predicted != true)[wrong] & (predicted != labels)[wrong]))
    return result


def smoothed(values: Sequence[float], window: int = 3) -> list[float]:
    """Trailing mean over ``window`` values: one lucky epoch on a small validation set is not the best epoch."""
    # Rounded, so that three equal accuracies have an equal mean: a tie must go to the earlier epoch.
    return [round(float(np.mean(values[max(0, k - window + 1) : k + 1])), 12) for k in range(len(values))]


def selected(values: Sequence[float], window: int = 3) -> int:
    """Position of the first maximum of the smoothed values."""
    return int(np.argmax(smoothed(values, window)))
