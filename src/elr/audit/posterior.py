"""The true class of every example, given what a model says of it and the label it was given: a mixture fitted by EM.

Each example has a true class k with probability proportional to p(k)^gamma, and its label j was drawn from T[k, j]. It
is the model of one annotator who confuses classes the same way everywhere; with p from a network it is the posterior
that a transition matrix gives (the paper's Eq. 1 turned around).
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Ints = npt.NDArray[np.int64]

FEW = 50  # examples of a class below which its row leans on what is common to all classes
ROUNDS = 100
STILL = 1e-5  # no entry of T moved by more: it has settled
TINY = 1e-12
LEAST = 1e-300  # before a logarithm


class Posterior(NamedTuple):
    """What EM ends with."""

    w: Floats  # (n, C) probability of each class being the true one
    odds: Floats  # (n,) log odds of the label being right: finer than w where that rounds to 0 or 1
    T: Floats  # (C, C) T[k, j] = P(label j | true class k)
    likelihood: float  # mean over examples of log P(label | model)

    @property
    def rate(self) -> float:
        """Share of wrong labels, as a mean over true classes weighted by how many there are."""
        size = self.w.sum(axis=0)
        return float(1.0 - (np.diag(self.T) * size).sum() / size.sum())


def sharpened(p: Floats, gamma: float) -> Floats:
    """p^gamma, normalised, (n, C)."""
    log = gamma * np.log(np.maximum(p, TINY))
    log -= log.max(axis=1, keepdims=True)
    a = np.exp(log)
    return np.asarray(a / a.sum(axis=1, keepdims=True))


def posterior(p: Floats, y: Ints, gamma: float) -> Posterior:
    """Fit T to what the model says, p (n, C), and the labels y (n,); start from the counts of prediction and label."""
    n, C = p.shape
    a = sharpened(p, gamma)
    given = np.zeros((n, C), dtype=a.dtype)
    given[np.arange(n), y] = 1.0
    T = transition(a.T @ given)
    for _ in range(ROUNDS):
        new = transition(_weights(a, T, y)[0].T @ given)
        moved, T = float(np.abs(new - T).max()), new
        if moved < STILL:
            break
    w, evidence = _weights(a, T, y)
    return Posterior(w, _odds(w, y), T, float(np.log(evidence).mean()))


def _weights(a: Floats, T: Floats, y: Ints) -> tuple[Floats, Floats]:
    """Probability of each class being the true one, (n, C), and of the label as it is, (n,)."""
    w = a * T.T[y]
    evidence = np.maximum(w.sum(axis=1), LEAST)
    return w / evidence[:, None], evidence


def _odds(w: Floats, y: Ints) -> Floats:
    rows, others = np.arange(len(y)), w.copy()
    others[rows, y] = 0.0  # not 1 - w: that has lost what w rounds away
    return np.asarray(np.log(np.maximum(w[rows, y], LEAST)) - np.log(np.maximum(others.sum(axis=1), LEAST)))


def transition(counts: Floats) -> Floats:
    """Rows of T from expected counts (C, C) of true class and label.

    A row of few examples is drawn towards the symmetric matrix with the noise that all rows have in common, as if FEW
    more examples had been seen with that noise; the others hardly move.
    """
    C = len(counts)
    sizes = counts.sum(axis=1, keepdims=True)
    total = max(float(sizes.sum()), 1.0)
    noise = max(1.0 - np.trace(counts) / total, 1.0 / total)  # one wrong label can never be excluded
    common = np.full((C, C), noise / max(C - 1, 1))
    np.fill_diagonal(common, 1.0 - noise)
    weight = np.maximum(FEW - sizes, 1.0)  # at least one example's worth, so that no entry is nought
    return np.asarray((counts + weight * common) / (sizes + weight))
