"""How labels act on the gradient: the entries of p - y and of the regularizer at the true class (Figures 2 and B.1)."""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]


def gradient_entries(p: Floats, pull: Floats | None, labels: Ints, true: Ints) -> dict[str, float]:
    """Mean and standard deviation over the examples with a clean and with a wrong label.

    Keys are GROUP_TERM and GROUP_TERM_sd. Groups: clean, wrong. Terms at the true class c*: ``ce`` is p - y, ``size``
    its magnitude, ``pull`` what the regularizer adds (lambda g), ``total`` their sum; for wrong labels ``impostor_ce``
    and ``impostor_total`` are p - y and the sum at the class that the label names.

    Args:
        p: probabilities, (n, C).
        pull: gradient of the regularizer at the logits, (n, C), if there is one.
        labels: given labels, (n,).
        true: true labels, (n,).
    """
    rows = np.arange(len(p))
    at_true = {"ce": p[rows, true] - (labels == true)}
    at_true["size"] = np.abs(at_true["ce"])
    at_label = {"impostor_ce": p[rows, labels] - 1.0}
    if pull is not None:
        at_true["pull"] = pull[rows, true]
        at_true["total"] = at_true["ce"] + at_true["pull"]
        at_label["impostor_total"] = at_label["impostor_ce"] + pull[rows, labels]
    clean = labels == true
    found: dict[str, float] = {}
    for group, members, terms in (("clean", clean, at_true), ("wrong", ~clean, at_true | at_label)):
        if members.any():
            for name, values in terms.items():
                chosen = np.asarray(values, dtype=np.float64)[members]
                found[f"{group}_{name}"] = float(chosen.mean())
                found[f"{group}_{name}_sd"] = float(chosen.std())
    return found
