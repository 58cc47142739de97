"""Label quality: the probability that the given label is the true one, from targets, margins and held-out rows."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from elr.audit.evidence import Evidence
from elr.audit.posterior import (
    TINY,
    Floats,
    Ints,
    Posterior,
    class_shares,
    counted,
    explained,
    posterior,
    sigmoid,
    transition,
)

GAMMA = 2.0  # how far to sharpen where no held-out rows tell it: less, and EM takes all disagreement for hard examples
GAMMA_LEAST = 1.5  # with which most disagreement passes for doubt: the low end of the range
LEAST_WRONG = 0.5  # labels: with none at all every quality would be 1, and there would be no order
ODDS_MOST = 1000.0  # beyond all log odds that can occur
GRID = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)  # sharpenings to choose from where there are held-out rows
CLEANER = 0.05  # more of the held-out labels believed than chance and evaluation without augmentation explain
LEARNT = 0.5  # of the labels that are believed only where they were trained on: wrong ones (docs/LOG.md, 2026-11-18)
DOUBT = 0.04  # error of a share of wrong labels that rests on beliefs, besides that of having drawn few rows


class Judgement(NamedTuple):
    """What is thought of every label."""

    quality: Floats  # (n,) probability that the label is right
    belief: Floats  # (n, C) probability of each class being the true one, the label counted in
    T: Floats  # (C, C) P(label | true class)
    rate: float  # estimated share of wrong labels
    range: tuple[float, float]  # the shares that other assumptions give


def with_margin(p: Floats, y: Ints, margin: Floats) -> Floats:
    """p with the odds of the label against the best other class replaced by exp(margin), (n, C).

    Targets remember a few epochs; the mean margin remembers the whole run, and most of all its best epochs, in which a
    wrong label had not been learnt yet. What the targets say of the other classes among each other stays.
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

    The order comes from all rows. How labels are confused, how far beliefs are to be sharpened, and how many labels are
    wrong is decided by rows that were not trained on, the last as far as their number allows; all odds are moved to
    match. Without evidence, all rows count as such.
    """
    p = np.asarray(p, dtype=np.float64)
    if evidence is None:
        outside = held_out(p, y)
        return _judgement(posterior(p, y, outside.gamma, outside.T), p, y, outside.rate)
    held, belief = evidence.held, with_margin(p, y, evidence.margin)
    if not held.any() or held.all():
        found = posterior(belief, y, GAMMA)
        return _judgement(found, p, y, found.rate)
    if cleaner(p, y, evidence):
        found = posterior(belief, y, GAMMA, posterior(belief[~held], y[~held], GAMMA).T)
        return _judgement(found, p, y, found.rate)
    outside = held_out(p[held], y[held])
    found = posterior(belief, y, outside.gamma, outside.T)
    return _judgement(found, p, y, combined(found.rate, outside, p.argmax(axis=1) == y, held))


def cleaner(p: Floats, y: Ints, evidence: Evidence) -> bool:
    """Whether held-out labels are better than those that were trained on, and so tell nothing of them.

    Known where a data set says so (Clothing1M's were checked by people). Otherwise they must be believed clearly more
    often: of labels of one kind those that were trained on are, if any.
    """
    if evidence.facts.get("clean_val"):
        return True
    agrees, held = p.argmax(axis=1) == y, evidence.held
    inside, outside = float(agrees[~held].mean()), float(agrees[held].mean())
    error = np.sqrt(_drawn(inside, (~held).sum()) + _drawn(outside, held.sum()))
    return bool(outside - inside > max(CLEANER, 4.0 * error))


class Outside(NamedTuple):
    """What rows that were not trained on say."""

    T: Floats  # (C, C) P(label | true class)
    gamma: float  # how far beliefs are to be sharpened
    rate: float  # share of wrong labels
    error: float  # its standard error


def held_out(p: Floats, y: Ints) -> Outside:
    """How the labels y (m,) of rows that were not trained on are confused, given what is believed of them, p (m, C).

    T comes from the surest rows. Sharpenings are weighted by how likely they make all labels: few rows do not decide on
    one. The share of wrong labels is told by T, which rests on few rows, and by beliefs, which may be biased.
    """
    counts = counted(p, y)
    T = transition(counts)
    likelihoods, rates = explained(p, y, T, GRID).T
    weight = np.exp(len(y) * (likelihoods - likelihoods.max()))
    weight /= weight.sum()
    by_belief = float(weight @ rates)
    by_T = float(1.0 - class_shares(T, y) @ np.diag(T))
    errors = _drawn(by_T, counts.sum()), _drawn(by_belief, len(y)) + DOUBT**2
    trust = errors[1] / (errors[0] + errors[1])
    rate = trust * by_T + (1.0 - trust) * by_belief
    return Outside(T, float(weight @ np.array(GRID)), rate, float(np.sqrt(trust * errors[0])))


def _drawn(rate: float, count: float) -> float:
    """Variance of a share that was counted in so many rows."""
    return max(rate * (1.0 - rate), TINY) / count


def combined(rate: float, outside: Outside, agrees: npt.NDArray[np.bool_], held: npt.NDArray[np.bool_]) -> float:
    """The share of wrong labels found in training rows and the one in held-out rows, each by what it can be trusted.

    In held-out rows their number limits it. In training rows belief is coloured by the labels, and by how much is
    seen from how much more often it agrees with labels of rows it was trained on: half of that are wrong labels that
    were learnt, the rest right ones of hard examples.
    """
    doubt = max(DOUBT, LEARNT * float(agrees[~held].mean() - agrees[held].mean()))
    trust = doubt**2 / (doubt**2 + outside.error**2)
    return float(trust * outside.rate + (1.0 - trust) * rate)


def _judgement(found: Posterior, p: Floats, y: Ints, rate: float) -> Judgement:
    rate = max(rate, LEAST_WRONG / len(y))
    belief = moved(found, y, rate)
    others = posterior(p, y, GAMMA_LEAST).rate, float(np.mean(p.argmax(axis=1) != y)), rate
    return Judgement(belief[np.arange(len(y)), y], belief, found.T, rate, (min(others), max(others)))


def moved(found: Posterior, y: Ints, rate: float) -> Floats:
    """Probabilities of the classes, (n, C), with the odds of every label multiplied by one number.

    It is such that the mean probability of being wrong is ``rate``; the order of the examples stays.
    """
    rows, odds = np.arange(len(y)), found.odds
    low, high = -ODDS_MOST, ODDS_MOST
    for _ in range(80):
        shift = (low + high) / 2.0
        low, high = (shift, high) if np.mean(sigmoid(-odds - shift)) > rate else (low, shift)
    quality: Floats = sigmoid(odds + shift)
    others = np.array(found.w)
    others[rows, y] = 0.0
    rest = others.sum(axis=1)
    others[rest <= 0.0] = 1.0  # nothing is known of the others where w rounds to the label alone
    others[rows, y] = 0.0
    others *= ((1.0 - quality) / others.sum(axis=1))[:, None]
    others[rows, y] = quality
    return others
