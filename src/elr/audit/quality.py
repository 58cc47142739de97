"""Label quality: the probability that the given label is the true one, from targets, margins and held-out rows."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from elr.audit.evidence import Evidence
from elr.audit.posterior import TINY, Floats, Ints, Posterior, posterior

GAMMA = 2.0  # how much sharper than the targets the truth is; docs/decisions/011-evidence.md
GAMMA_ALONE = 3.0  # than probabilities of a model that was not trained on the example
GAMMA_LEAST = 1.5  # with which most disagreement passes for doubt: the low end of the range
PEAK_LEAST, PEAK_MOST = 1e-4, 20.0  # losses beyond which half precision has nothing to say
LEAST_WRONG = 0.5  # labels: with none at all every quality would be 1, and there would be no order
ODDS_MOST = 1000.0  # beyond all log odds that can occur
GRID = (0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)  # sharpenings to choose from where there are held-out rows
DOUBT = 0.04  # standard error of the share found in training rows, if they are believed no more than others are


class Judgement(NamedTuple):
    """What is thought of every label."""

    quality: Floats  # (n,) probability that the label is right
    belief: Floats  # (n, C) probability of each class being the true one, the label counted in
    T: Floats  # (C, C) P(label | true class)
    rate: float  # estimated share of wrong labels
    range: tuple[float, float]  # the shares that other assumptions give


def with_margin(p: Floats, y: Ints, margin: Floats) -> Floats:
    """p with the odds of the label against the best other class replaced by exp(margin), (n, C).

    Targets remember a few epochs; the mean margin remembers the whole run, the early epochs included in which a wrong
    label had not been learnt yet. What the targets say of the other classes among each other stays.
    """
    log = np.log(np.maximum(p, TINY))
    rows = np.arange(len(y))
    log[rows, y] = -np.inf
    log[rows, y] = log.max(axis=1) + margin
    log -= log.max(axis=1, keepdims=True)
    q = np.exp(log)
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def judge(p: Floats, y: Ints, evidence: Evidence | None = None) -> Judgement:
    """Quality of the labels y (n,), given what is believed of every example, p (n, C), and what was seen of it.

    The order comes from all rows; how many are wrong is decided by those that were not trained on, as far as their
    number allows, and all odds are moved to match.
    """
    p = np.asarray(p, dtype=np.float64)
    if evidence is None:
        found = posterior(p, y, GAMMA_ALONE)
        return _judgement(found, p, y, found.rate)
    found = posterior(with_margin(p, y, label_odds(evidence)), y, GAMMA)
    return _judgement(found, p, y, combined(found.rate, p, y, evidence.held))


def label_odds(evidence: Evidence) -> Floats:
    """Log odds of every label, (n,): the mean margin, and half of what it was at the early-learning peak if known."""
    margin = evidence.margin.astype(np.float64)
    loss = np.clip(evidence.peak_loss.astype(np.float64), PEAK_LEAST, PEAK_MOST)
    peak = -np.log(np.expm1(loss))  # of p[given] against all others
    return np.where(np.isnan(peak), margin, 0.5 * (margin + np.nan_to_num(peak)))


def combined(rate: float, p: Floats, y: Ints, held: npt.NDArray[np.bool_]) -> float:
    """The share of wrong labels found in training rows and the one in held-out rows, each by what it can be trusted.

    In held-out rows their number limits it. In training rows belief is coloured by the labels, and by how much is
    seen from how much more often it agrees with labels of rows it was trained on.
    """
    if not held.any() or held.all():
        return rate
    outside, error = held_out(p[held], y[held])
    agrees = p.argmax(axis=1) == y
    doubt = max(DOUBT, float(agrees[~held].mean() - agrees[held].mean()))
    trust = doubt**2 / (doubt**2 + error**2)
    return float(trust * outside + (1.0 - trust) * rate)


def _judgement(found: Posterior, p: Floats, y: Ints, rate: float) -> Judgement:
    rate = max(rate, LEAST_WRONG / len(y))
    belief = moved(found, y, rate)
    others = posterior(p, y, GAMMA_LEAST).rate, float(np.mean(p.argmax(axis=1) != y)), rate
    return Judgement(belief[np.arange(len(y)), y], belief, found.T, rate, (min(others), max(others)))


def held_out(p: Floats, y: Ints) -> tuple[float, float]:
    """Share of wrong labels in held-out rows and its standard error.

    A mean over sharpenings, each weighted by how likely it makes the labels: with few rows they do not decide on one.
    """
    found = [posterior(p, y, gamma) for gamma in GRID]
    rates = np.array([each.rate for each in found])
    fit = len(y) * np.array([each.likelihood for each in found])
    weight = np.exp(fit - fit.max())
    weight /= weight.sum()
    rate = float(weight @ rates)
    drawn = max(rate * (1.0 - rate), TINY) / len(y)
    return rate, float(np.sqrt(weight @ (rates - rate) ** 2 + drawn))


def moved(found: Posterior, y: Ints, rate: float) -> Floats:
    """Probabilities of the classes, (n, C), with the odds of every label multiplied by one number.

    It is such that the mean probability of being wrong is ``rate``; the order of the examples stays.
    """
    rows, odds = np.arange(len(y)), found.odds
    low, high = -ODDS_MOST, ODDS_MOST
    for _ in range(80):
        shift = (low + high) / 2.0
        low, high = (shift, high) if np.mean(_sigmoid(-odds - shift)) > rate else (low, shift)
    quality: Floats = _sigmoid(odds + shift)
    others = np.array(found.w)
    others[rows, y] = 0.0
    rest = others.sum(axis=1)
    others[rest <= 0.0] = 1.0  # nothing is known of the others where w rounds to the label alone
    others[rows, y] = 0.0
    others *= ((1.0 - quality) / others.sum(axis=1))[:, None]
    others[rows, y] = quality
    return others


def _sigmoid(x: Floats) -> Floats:
    """Written so that it has all digits near 0 and as many near 1 as there are, and never overflows."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -x)))
