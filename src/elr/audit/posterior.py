"""The true class of every example, given what a model says of it and the label it was given.

Each example has a true class k with probability proportional to p(k)^gamma, and its label j was drawn from T[k, j]. It
is the model of one annotator who confuses classes the same way everywhere; with p from a network it is the posterior
that a transition matrix gives (the paper's Eq. 1 turned around). T is counted where the model is surest of rows that it
was not trained on, or, where there are none, fitted by EM.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Ints = npt.NDArray[np.int64]

ROUNDS = 100
STILL = 1e-5  # no entry of T moved by more: it has settled
TINY = 1e-12
LEAST = 1e-300  # before a logarithm
SHARES = (0.1, 0.15, 0.25, 0.35, 0.5, 0.7, 1.0)  # of the rows that are believed to be of a class


class Posterior(NamedTuple):
    """True classes behind the labels."""

    w: Floats  # (n, C) probability of each class being the true one
    odds: Floats  # (n,) log odds of the label being right: finer than w where that rounds to 0 or 1
    T: Floats  # (C, C) T[k, j] = P(label j | true class k)
    likelihood: float  # mean over examples of log P(label | model)

    @property
    def rate(self) -> float:
        """Share of wrong labels."""
        return float(np.mean(sigmoid(-self.odds)))


def sharpened(p: Floats, gamma: float) -> Floats:
    """p^gamma, normalised, (n, C)."""
    log = gamma * np.log(np.maximum(p, TINY))
    log -= log.max(axis=1, keepdims=True)
    a = np.exp(log)
    return np.asarray(a / a.sum(axis=1, keepdims=True))


def posterior(p: Floats, y: Ints, gamma: float, T: Floats | None = None) -> Posterior:
    """True classes, given what the model says, p (n, C), the labels y (n,) and T; without T it is fitted to them."""
    a = sharpened(p, gamma)
    if T is None:
        T = _fitted(a, y)
    w, evidence = _weights(a, T, y)
    return Posterior(w, _odds(w, y), T, float(np.log(evidence).mean()))


def explained(p: Floats, y: Ints, T: Floats, gammas: Sequence[float]) -> Floats:
    """What ``posterior`` finds with each sharpening, (G, 2): mean log-likelihood of the labels, share of wrong ones.

    Without the posteriors themselves, which is several times as quick where only these two numbers are wanted.
    """
    found = np.zeros((len(gammas), 2))
    for j, own in enumerate(_by_label(p, y)):
        log = np.log(np.maximum(own, TINY))
        log -= log.max(axis=1, keepdims=True)
        for g, gamma in enumerate(gammas):
            a = np.exp(gamma * log)
            evidence = np.maximum(a @ T[:, j], LEAST)
            found[g] += np.log(evidence / a.sum(axis=1)).sum(), (1.0 - a[:, j] * T[j, j] / evidence).sum()
    return found / len(y)


def _by_label(a: Floats, y: Ints) -> list[Floats]:
    """The rows with each label: all of them meet the same column of T, so that products with it are with a vector."""
    return np.split(a[np.argsort(y, kind="stable")], np.cumsum(np.bincount(y, minlength=a.shape[1]))[:-1])


def _fitted(a: Floats, y: Ints) -> Floats:
    """T by EM, from the counts of prediction and label on."""
    groups = _by_label(a, y)
    T = transition(np.stack([own.sum(axis=0) for own in groups], axis=1))
    for _ in range(ROUNDS):
        shares = [(1.0 / np.maximum(own @ column, LEAST)) @ own for own, column in zip(groups, T.T, strict=True)]
        new = transition(T * np.stack(shares, axis=1))
        moved, T = float(np.abs(new - T).max()), new
        if moved < STILL:
            break
    return T


def _weights(a: Floats, T: Floats, y: Ints) -> tuple[Floats, Floats]:
    """Probability of each class being the true one, (n, C), and of the label as it is, (n,)."""
    w = a * T.T[y]
    evidence = np.maximum(w.sum(axis=1), LEAST)
    return w / evidence[:, None], evidence


def _odds(w: Floats, y: Ints) -> Floats:
    rows, others = np.arange(len(y)), w.copy()
    others[rows, y] = 0.0  # not 1 - w: that has lost what w rounds away
    return np.asarray(np.log(np.maximum(w[rows, y], LEAST)) - np.log(np.maximum(others.sum(axis=1), LEAST)))


def sigmoid(x: Floats) -> Floats:
    """Written so that it has all digits near 0 and as many near 1 as there are, and never overflows."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -x)))


def transition(counts: Floats) -> Floats:
    """Rows of T from expected counts (C, C) of true class and label, smoothed as far as they look like chance.

    Two questions are put to the counts: do classes differ in how many of their labels are wrong, and are some wrong
    labels commoner than others? Where they vary no more than draws from one common share do, they become that share.
    Fitted entry by entry, T of a few thousand examples is noise, and so is the order of labels that is made with it.
    """
    C = len(counts)
    beside = ~np.eye(C, dtype=bool)
    off = counts[beside].reshape(C, C - 1)
    size, wrong = counts.sum(axis=1), off.sum(axis=1)
    rate = max(float(wrong.sum()), 1.0) / max(float(size.sum()), 2.0)  # one wrong label can never be excluded
    kinds = pooled(np.stack([wrong, size - wrong], axis=1), np.array([rate, 1.0 - rate]))  # (C, 2)
    T = np.zeros((C, C))
    T[beside] = (kinds[:, :1] * pooled(off, np.full(C - 1, 1.0 / (C - 1)))).ravel()
    np.fill_diagonal(T, kinds[:, 1])
    return T


def surest(p: Floats, shares: Sequence[float]) -> list[Ints]:
    """Rows that are believed most, for each share: so many of those of each believed class, and one at the least."""
    best, sure = p.argmax(axis=1), p.max(axis=1)
    order = np.lexsort((-sure, best))  # class by class, the surest first
    size = np.bincount(best, minlength=p.shape[1])
    place = np.arange(len(p)) - np.repeat(np.cumsum(size) - size, size)  # inside the class
    return [order[place < share * np.repeat(size, size)] for share in shares]


def counted(p: Floats, y: Ints) -> Floats:
    """Counts (C, C) of believed class and label, in the rows that are believed most.

    With p of a model that was not trained on these rows, what it is sure of has nothing to do with their labels: how
    such rows are labelled is how their class is labelled. (EM over all rows cannot tell a label that is often wrong
    from an image that is hard: under pairwise confusion it finds no noise at all.) As many rows are taken as leave the
    least error: in few of them the share of wrong labels is chance, in all of them the model's own mistakes count too.
    """

    def error(rows: Ints) -> float:
        return float(np.mean(1.0 - p[rows].max(axis=1))) ** 2 + 0.25 / len(rows)

    rows = min(surest(p, SHARES), key=error)
    counts = np.zeros((p.shape[1],) * 2)
    np.add.at(counts, (p[rows].argmax(axis=1), y[rows]), 1.0)
    return counts


def class_shares(T: Floats, y: Ints) -> Floats:
    """How common the true classes are, (C,), if labels y (n,) are drawn from T: the most likely shares."""
    labels = np.bincount(y, minlength=len(T)) / len(y)
    shares = np.full(len(T), 1.0 / len(T))
    for _ in range(ROUNDS):
        shares = shares * (T @ (labels / np.maximum(shares @ T, LEAST)))
    return np.asarray(shares / shares.sum())


def pooled(counts: Floats, share: Floats) -> Floats:
    """Shares of J kinds in R groups, (R, J), each between those of the group itself and the common ones, (J,).

    Empirical Bayes with a Dirichlet distribution around ``share``: it counts as so many further examples of every group
    as make the observed spread of the counts, found by its second moment, the expected one.
    """
    n = counts.sum(axis=1, keepdims=True)
    variance = float((share * (1.0 - share)).sum())
    found, chance, most = float(((counts - n * share) ** 2).sum()), variance * n.sum(), variance * (n**2).sum()
    if found <= chance:
        return np.broadcast_to(share, counts.shape)
    strength = max((most - found) / (found - chance), 1.0)  # one at the least, so that no share is nought
    return np.asarray((counts + strength * share) / (n + strength))
