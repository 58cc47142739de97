"""When the evidence cannot tell: said in plain words rather than hidden in numbers."""

import numpy as np

from elr.audit.evidence import Evidence
from elr.audit.posterior import Floats, Ints
from elr.audit.quality import cleaner

FEW_EPOCHS = 5
RARE = 0.05  # share of wrong labels below which a model's own mistakes count for as much
MEMORIZED = 0.99  # of training labels believed in, where no others can be compared
GAP = 0.1  # that many fewer of the held-out ones believed in, and more than three standard errors


def doubts(p: Floats, y: Ints, T: Floats, evidence: Evidence | None, *, rate: float = 1.0) -> list[str]:
    """Reasons to distrust an audit; none is the good case.

    Args:
        p: what is believed of every example, (n, C).
        y: labels, (n,).
        T: transition matrix that was fitted to both, (C, C).
        evidence: what training saw, if it was watched.
        rate: share of wrong labels that was estimated.
    """
    found = []
    C = p.shape[1]
    best = p.argmax(axis=1)
    missing = C - len(np.unique(best))
    if missing:
        found.append(f"{missing} of {C} classes are never believed in: targets have collapsed, or training has failed")
    if float(p.max(axis=1).mean()) < 1.5 / C:
        found.append("beliefs are nearly uniform: the model has learnt next to nothing")
    if swapped := int((np.diag(T) < T.max(axis=1)).sum()):
        found.append(
            f"{swapped} of {C} classes seem to bear the label of another class more often than their own: names were "
            "swapped, or the model has not learnt these classes, and nothing here tells which"
        )
    if rate < RARE:
        found.append(
            f"{rate:.1%} of the labels are estimated to be wrong: among so few, examples that are merely hard look "
            "like wrong labels, and fewer of those listed are wrong than is expected here"
        )
    counts = np.bincount(y, minlength=C)
    if small := int((counts < 10).sum()):
        found.append(f"{small} of {C} classes have fewer than 10 examples: what is said of them is a guess")
    return found if evidence is None else found + _about_training(p, y, evidence, rate)


def _about_training(p: Floats, y: Ints, evidence: Evidence, rate: float) -> list[str]:
    """Reasons that lie in how the model was trained: too short, too long, or without rows held out."""
    found: list[str] = []
    best = p.argmax(axis=1)
    inside, outside = ~evidence.held, evidence.held
    peak, epochs = evidence.facts.get("peak"), evidence.facts.get("epochs")
    if epochs is not None and epochs < FEW_EPOCHS:
        found.append(f"{epochs} epoch(s) are too few to tell what is learnt early from what is not")
    agreement = float(np.mean(best[inside] == y[inside])) if inside.any() else 0.0
    if inside.any() and outside.any():
        beyond = float(np.mean(best[outside] == y[outside]))
        error = np.sqrt(beyond * (1.0 - beyond) / outside.sum())
        if cleaner(p, y, evidence):
            found.append(
                f"{beyond:.1%} of the held-out labels are believed in, {agreement:.1%} of the training labels: these "
                "are worse, so how many of them are wrong was told from themselves alone, and may be more"
            )
        if agreement - beyond > max(GAP, 3.0 * error):
            found.append(
                f"{agreement:.1%} of the training labels are believed in, {beyond:.1%} of those held out: "
                "they have been memorised; train for fewer epochs, or with elr, or if this was elr with a larger lambda"
            )
    elif agreement > MEMORIZED:
        found.append(f"{agreement:.1%} of the labels are believed in, and none was held out: clean, or memorised")
    elif inside.any():
        found.append(
            f"no label was held out: that {rate:.1%} are wrong was told from labels that the model has learnt, and it "
            "may be many more; hold out a tenth for validation"
        )
    if peak is not None and peak == 1 and epochs != 1:
        found.append("validation was best in the first epoch: there is no early-learning peak to look at")
    return found
