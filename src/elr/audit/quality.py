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
RARE = 0.3  # of itself: the error of such a share where it is small


class Judgement(NamedTuple):
    """What is thought of every label."""

    quality: Floats  # (n,) probability that the label is right
    belief: Floats  # (n, C) probability of each class being the true one, the label counted in
    T: Floats  # (C, C) P(label | true class)
    rate: float  # estimated share of wrong labels
    range: tuple[float, float]  # the shares that other assumptions give


def with_margin(p: Floats, y: Ints, margin: Floats, share: float = 0.0) -> Floats:
    """p with the log odds of the label against the best other class moved to the mean margin, (n, C).

    Targets remember a few epochs; the mean margin remembers the whole run, and most of all its best epochs, in which a
    wrong label had not been learnt yet. What the targets say of the other classes among each other stays, and of the
    label as much as their ``share`` in a mean of both.
    """
    log = np.log(np.maximum(p, TINY))
    rows = np.arange(len(y))
    own = log[rows, y]  # a copy: these are not adjacent
    log[rows, y] = -np.inf
    best = log.max(axis=1)
    log[rows, y] = best + (1.0 - share) * margin + share * (own - best)
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
        return _judgement(posterior(p, y, outside.gamma, outside.T), p, y, outside.rate, outside)
    held, seen = evidence.held, with_margin(p, y, evidence.margin)
    if not held.any() or held.all():
        found = posterior(seen, y, GAMMA)
        return _judgement(found, p, y, found.rate)
    if cleaner(p, y, evidence):
        found = posterior(seen, y, GAMMA, posterior(seen[~held], y[~held], GAMMA).T)
        return _judgement(found, p, y, found.rate)
    outside, gap = held_out(p[held], y[held]), learnt(p.argmax(axis=1) == y, held)
    # Targets are the better half of a mean for as long as no labels have been learnt, and hardly count afterwards.
    belief = with_margin(p, y, evidence.margin, 0.5 * _trust(DOUBT, gap))
    found = posterior(belief, y, outside.gamma, outside.T)
    # Rows that the model is sure of lack the mistakes that people make where images are hard. All rows together show
    # those, but not what was learnt or is confused both ways. The price: a weak model's own mistakes can pass for some.
    rate = max(combined(found.rate, outside, gap), posterior(seen, y, GAMMA).rate)
    return _judgement(found, p, y, rate, outside)


def learnt(agrees: npt.NDArray[np.bool_], held: npt.NDArray[np.bool_]) -> float:
    """How much more often labels are believed that were trained on: some of them are wrong ones."""
    return max(0.0, float(agrees[~held].mean() - agrees[held].mean()))


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
    wrong: Floats  # (C,) share of wrong ones among the labels of each class, as T has it
    rows: Floats  # (C,) with each label, that T was counted in


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
    joint = class_shares(T, y)[:, None] * T
    by_T = float(1.0 - np.trace(joint))
    errors = _drawn(by_T, counts.sum()), _drawn(by_belief, len(y)) + DOUBT**2
    trust = errors[1] / (errors[0] + errors[1])
    rate = float(trust * by_T + (1.0 - trust) * by_belief)
    wrong = 1.0 - np.diag(joint) / np.maximum(joint.sum(axis=0), TINY)
    error = float(np.sqrt(trust * errors[0]))
    return Outside(T, float(weight @ np.array(GRID)), rate, error, wrong, counts.sum(axis=0))


def _drawn(rate: float, count: float) -> float:
    """Variance of a share that was counted in so many rows."""
    return max(rate * (1.0 - rate), TINY) / max(count, TINY)


def _trust(error: float, own: float) -> float:
    """Weight of what has an error of its own, beside something that has this error."""
    return error**2 / (error**2 + own**2)


def combined(rate: float, outside: Outside, gap: float) -> float:
    """The share of wrong labels found in training rows and the one in held-out rows, each by what it can be trusted.

    In held-out rows their number limits it. In training rows belief is coloured by the labels, and by how much is
    seen from how much more often it agrees with labels of rows it was trained on, ``gap``: half of that are wrong
    labels that were learnt, the rest right ones of hard examples.
    """
    trust = _trust(max(DOUBT, LEARNT * gap), outside.error)
    return trust * outside.rate + (1.0 - trust) * rate


def _judgement(found: Posterior, p: Floats, y: Ints, rate: float, outside: Outside | None = None) -> Judgement:
    rate = max(rate, LEAST_WRONG / len(y))
    belief = moved(found, y, rate, outside)
    others = posterior(p, y, GAMMA_LEAST).rate, float(np.mean(p.argmax(axis=1) != y)), rate
    return Judgement(belief[np.arange(len(y)), y], belief, found.T, rate, (min(others), max(others)))


def moved(found: Posterior, y: Ints, rate: float, outside: Outside | None = None) -> Floats:
    """Probabilities of the classes, (n, C), whose mean probability of a wrong label is ``rate``.

    The odds of all labels are multiplied by one number. Where held-out rows tell how many labels of each class are
    wrong, those of a class are multiplied by a number of their own before, as far as that can be trusted: otherwise the
    classes whose odds are even pay for those that the model is sure of. The order inside a class stays.
    """
    odds = _met(found.odds, rate)
    if outside is not None:
        missed = max(1.0, rate / float(outside.wrong[y].mean()))  # on hard images, in every class alike
        for rows in _of_each(y):
            own, j = odds[rows], y[rows[0]]
            believed, told = float(sigmoid(-own).mean()), min(missed * float(outside.wrong[j]), 1.0)
            drawn = _drawn(max(believed, told), float(outside.rows[j])) ** 0.5
            trust = _trust(min(DOUBT, RARE * believed), drawn)
            odds[rows] = _met(own, trust * told + (1.0 - trust) * believed)
        odds = _met(odds, rate)
    return _with_quality(found.w, y, sigmoid(odds))


def _of_each(y: Ints) -> list[Ints]:
    """The rows of every label that there is."""
    order = np.argsort(y, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(y[order])) + 1)


def _met(odds: Floats, rate: float) -> Floats:
    """These log odds plus the number with which the mean probability of a wrong label is ``rate``."""
    low, high = -ODDS_MOST, ODDS_MOST
    for _ in range(80):
        shift = (low + high) / 2.0
        low, high = (shift, high) if np.mean(sigmoid(-odds - shift)) > rate else (low, shift)
    return np.asarray(odds + shift)


def _with_quality(w: Floats, y: Ints, quality: Floats) -> Floats:
    """Probabilities w (n, C) with that of the label replaced; what they say of the others among each other stays."""
    rows, others = np.arange(len(y)), np.array(w)
    others[rows, y] = 0.0
    rest = others.sum(axis=1)
    others[rest <= 0.0] = 1.0  # nothing is known of the others where w rounds to the label alone
    others[rows, y] = 0.0
    others *= ((1.0 - quality) / others.sum(axis=1))[:, None]
    others[rows, y] = quality
    return others
