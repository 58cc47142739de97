"""How many labels are wrong, from a few that a person checked: an interval that rests on no assumption about the noise.

Rows are drawn with chances that grow with the doubt about them, and answers correct what the audit says of all rows
(prediction-powered inference): with f = 1 - quality and chance pi of being drawn,

    estimate = mean of f over all rows + 1/N sum over checked rows of (wrong - f) / pi.

Whatever f is, the sum is right on average; a good f only makes the interval short.

Why systematic sampling: exactly n rows are drawn, none twice, and each with exactly its own chance; drawing with
replacement would ask some questions twice, and independent draws would give some other number of rows. The list is put
in random order first, so that the draw is as good as random and its variance is that of Hajek's approximation.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elr.audit.issues import LabelIssues
from elr.data.table import read_table
from elr.report.records import write_csv

Floats = npt.NDArray[np.floating]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

COLUMNS = ("place", "id", "given_label", "chance", "is_wrong")  # not what the audit thinks: it would lead the answer
ANSWERS: dict[str, bool | None] = {
    **dict.fromkeys(("yes", "y", "true", "1"), True),
    **dict.fromkeys(("no", "n", "false", "0"), False),
    **dict.fromkeys(("unsure", "?"), None),
}
FLOOR = 0.01  # so that rows the audit is sure of are drawn too: it may be wrong about them
MANY = 200  # answers from which a normal approximation holds,
SURPRISES = 10  # if so many of them went against the audit where it was sure; with fewer their variance is not known
SURE = 0.1  # doubt below it, or above 1 - .1: such rows are drawn seldom, and one of them moves the estimate most
LEAST = 30  # answers in a class below which it gets no interval of its own
MISS = 0.05  # chance of the interval to miss the truth
STEPS = 1000  # of the interval's ends, in [0, 1]
STAKE = 0.95  # of what could be lost at once, the most that is bet
HABIT = 10  # draws that what is expected counts for, before the first answer


class Rate(NamedTuple):
    """A share of wrong labels with a 95 % interval."""

    estimate: float
    low: float
    high: float
    checked: int
    wrong: int  # among those checked
    bound: str  # normal, betting, or counted: all rows were checked


class Review(NamedTuple):
    """What the checked rows say."""

    overall: Rate
    classes: Mapping[str, Rate]  # by given label, where enough rows were checked
    drawn: int
    unsure: int
    unchecked: int
    notes: Sequence[str]

    def summary(self) -> dict[str, Any]:
        """As plain as JSON."""
        classes = [{"label": name, **rate._asdict()} for name, rate in self.classes.items()]
        counts = {"drawn": self.drawn, "unsure": self.unsure, "unchecked": self.unchecked}
        return {**self.overall._asdict(), **counts, "classes": classes, "notes": list(self.notes)}


def chances(quality: Floats, count: int) -> Floats:
    """Chance of each row to be drawn, ``count`` in sum: as sqrt(q (1 - q) + .01), but none above 1."""
    if not 1 <= count <= len(quality):
        raise ValueError(f"{count:,} rows cannot be drawn of {len(quality):,}; choose from 1 to {len(quality):,}")
    size = np.sqrt(quality * (1.0 - quality) + FLOOR)
    certain = np.zeros(len(quality), dtype=bool)
    while True:
        left = size[~certain].sum()
        chance = np.where(certain, 1.0, (count - certain.sum()) * size / left if left else 1.0)
        new = (chance >= 1.0) & ~certain
        if not new.any():
            return chance
        certain |= new


def draw(chance: Floats, seed: int) -> Ints:
    """Rows drawn with these chances, in random order: the first of them are a draw of their own."""
    rng = np.random.default_rng(seed)
    certain = np.flatnonzero(chance >= 1.0)
    others = rng.permutation(np.flatnonzero(chance < 1.0))
    count = round(float(chance[others].sum()))
    ends = np.cumsum(chance[others])
    ends *= count / max(float(ends[-1]), FLOOR) if count else 0.0  # rounding must not lose the last mark
    marks = rng.random() + np.arange(count)
    drawn = others[np.searchsorted(ends, marks, side="right")]
    return rng.permutation(np.concatenate([certain, drawn]))


def drawn(issues: LabelIssues, count: int, seed: int = 0) -> Ints:
    """Rows of an audit to check, in the order to check them."""
    return draw(chances(issues["label_quality"], count), seed)


def check_new(path: Path) -> None:
    """Refuse to draw over answers."""
    if path.exists():
        raise FileExistsError(f"{path} exists already: give it as --checked, or move it away to draw again")


def write_review(issues: LabelIssues, rows: Ints, path: Path) -> None:
    """Write rows that were drawn, for a person to answer ``is_wrong``; an existing file is not replaced."""
    check_new(path)
    chance = chances(issues["label_quality"], len(rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    table = [
        {
            "place": place,
            "id": issues["id"][row],
            "given_label": issues["given_label"][row],
            "chance": float(chance[row]),
        }
        for place, row in enumerate(rows, start=1)
    ]
    write_csv(path, table, COLUMNS)


def read_review(issues: LabelIssues, path: Path) -> tuple[Ints, dict[str, str]]:
    """Rows of a draw, in its order, and the answers as they were typed; it must be a draw from this audit."""
    columns = read_table(path)
    if missing := [name for name in COLUMNS if name not in columns]:
        raise ValueError(f"{path} has no column {missing[0]!r}; `elr audit RUN --review 200` writes such a file")
    place = {id_: row for row, id_ in enumerate(issues["id"])}
    ids = columns["id"]
    if len(set(ids)) < len(ids):
        raise ValueError(f"{path} has an id more than once")
    if not ids:
        raise ValueError(f"{path} has no rows")
    if strangers := [id_ for id_ in ids if id_ not in place]:
        raise ValueError(f"id {strangers[0]!r} of {path} is not in this audit")
    rows = np.array([place[id_] for id_ in ids], dtype=np.int64)
    try:
        written = np.array(columns["chance"], dtype=np.float64)
        # A spreadsheet may have sorted it since: then the rows answered first are no random ones.
        order = np.argsort(np.array(columns["place"], dtype=np.int64), kind="stable")
    except ValueError:
        raise ValueError(f"{path} has a place or chance that is not a number") from None
    if not np.allclose(written, chances(issues["label_quality"], len(rows))[rows], rtol=1e-3, atol=1e-5):
        raise ValueError(f"{path} was drawn from another audit, or rows are missing; leave is_wrong empty instead")
    return rows[order], dict(zip(ids, columns["is_wrong"], strict=True))


def typed_answers(answers: Mapping[str, str], path: Path) -> dict[str, bool | None]:
    """Answers by id, None for unsure; empty ones are left out."""
    found = {}
    for id_, text in answers.items():
        word = text.strip().lower()
        if word and word not in ANSWERS:
            raise ValueError(f"is_wrong of id {id_!r} in {path} must be yes, no, unsure or empty, got {text!r}")
        if word:
            found[id_] = ANSWERS[word]
    return found


def review(issues: LabelIssues, rows: Ints, answers: Mapping[str, bool | None]) -> Review:
    """What the answers, by id, say of all labels.

    Args:
        issues: the audit that rows were drawn from.
        rows: the draw, in its order.
        answers: whether the label is wrong; None for unsure. Of rows that were not drawn they do not count.
    """
    ids = issues["id"]
    asked = [id_ in answers for id_ in ids[rows]]
    reached = sum(asked)
    if not all(asked[:reached]):
        raise ValueError(
            f"{len(rows) - reached:,} of the {len(rows):,} rows drawn have no answer, and not the last ones: rows that "
            "were skipped may differ from the others; answer them, or say unsure"
        )
    sure = np.array([row for row in rows[:reached] if answers[ids[row]] is not None], dtype=np.int64)
    if not len(sure):
        raise ValueError("nothing has been checked yet: answer is_wrong with yes or no")
    wrong = np.array([bool(answers[ids[row]]) for row in sure])
    chance, doubt = chances(issues["label_quality"], len(rows)), 1.0 - issues["label_quality"]
    classes = {}
    for name in issues.classes:
        own = np.flatnonzero(issues["given_label"] == name)
        inside = np.isin(sure, own)
        if inside.sum() >= LEAST:
            classes[name] = rate(doubt[own], chance[own], np.searchsorted(own, sure[inside]), wrong[inside])
    overall = rate(doubt, chance, sure, wrong)
    notes = []
    if unsure := reached - len(sure):
        all_wrong = np.array([answers[ids[row]] is not False for row in rows[:reached]])
        most = rate(doubt, chance, rows[:reached], all_wrong).estimate
        notes.append(
            f"{unsure:,} of {reached:,} answers are unsure and count as if they were like the others; "
            f"if all were wrong: {100 * most:.1f} %"
        )
    if reached < len(rows):
        notes.append(f"{reached:,} of the {len(rows):,} rows drawn are answered: the interval shrinks with the rest")
    return Review(overall, classes, len(rows), unsure, len(rows) - reached, notes)


def rate(doubt: Floats, chance: Floats, rows: Ints, wrong: Bools) -> Rate:
    """Share of wrong labels among all N.

    Args:
        doubt: (N,) what the audit takes the probability of being wrong to be.
        chance: (N,) of being drawn.
        rows: (m,) those checked.
        wrong: (m,) what was found.
    """
    N, m = len(doubt), len(rows)
    counted = (m, int(wrong.sum()))
    if m == N:
        share = float(wrong.mean())
        return Rate(share, share, share, *counted, "counted")
    chance = np.minimum(chance * (m / chance.sum()), 1.0)  # of being drawn and answered
    surprise = wrong - doubt[rows]
    pi = chance[rows]
    estimate = float(doubt.mean() + (surprise / pi).sum() / N)
    sure = np.abs(doubt - 0.5) > 0.5 - SURE
    telling = sure[rows] if sure.mean() > 0.01 else np.ones(m, dtype=bool)
    if m >= MANY and int((telling & (np.abs(surprise) > 0.5)).sum()) >= SURPRISES:
        half = _half_width(surprise / pi, pi) / N
        return Rate(_share(estimate), _share(estimate - half), _share(estimate + half), *counted, "normal")
    low, high = _betting(doubt, chance, rows, wrong)
    return Rate(_share(min(max(estimate, low), high)), low, high, *counted, "betting")


def _half_width(total: Floats, pi: Floats) -> float:
    """Of the interval for a sum that is estimated by the sum of ``total``: Hajek's variance, Student's quantile."""
    from scipy.stats import t as student

    m = len(total)
    free = 1.0 - pi
    centre = (free * total).sum() / max(float(free.sum()), FLOOR)
    variance = m / (m - 1) * (free * (total - centre) ** 2).sum()
    return float(student.ppf(1.0 - MISS / 2.0, m - 1) * np.sqrt(variance))


def _betting(doubt: Floats, chance: Floats, rows: Ints, wrong: Bools) -> tuple[float, float]:
    """An interval that holds for any number of answers, however few of them surprise.

    A share is given up when one could have become 2 / MISS times as rich by betting against it, draw after draw, on
    either side: a fair game allows that with probability MISS at most. Source: Waudby-Smith and Ramdas, Estimating
    means of bounded random variables by betting, 2024. Rows that were certain to be drawn are counted, not bet on;
    the others count as drawn with replacement, which is on the safe side.
    """
    N = len(doubt)
    open_ = chance < 1.0
    inside = open_[rows]
    k = int(inside.sum())
    known = (doubt[open_].sum() + wrong[~inside].sum()) / N
    unit = k / (N * chance[open_])  # what a surprise of 1 in a row moves the mean of the draws by, times k
    least, most = -float((doubt[open_] * unit).max()), float(((1.0 - doubt[open_]) * unit).max())
    span = most - least
    moved = (wrong[inside] - doubt[rows][inside]) * k / (N * chance[rows][inside])
    x = (moved - least) / span  # (k,) in [0, 1]
    expected = (chance[open_] / k * doubt[open_] * (1.0 - doubt[open_]) * unit**2).sum() / span**2
    draws = np.arange(1, k + 1) + HABIT
    mean = (HABIT * -least / span + np.cumsum(x)) / draws
    variance = (HABIT * expected + np.cumsum((x - mean) ** 2)) / draws
    before = np.append(expected, variance[:-1])  # what was known when the bet was made
    stake = np.sqrt(2.0 * np.log(2.0 / MISS) / (k * np.maximum(before, 1e-9)))[:, None]  # (k, 1)
    shares = np.linspace(0.0, 1.0, STEPS + 1)
    m = (shares - known - least) / span  # the mean of x that each share implies
    possible = (m > 0.0) & (m < 1.0)
    if not possible.any():  # what is left open is less than a step
        return _share(known + least), _share(known + most)
    m = m[possible]
    gain = x[:, None] - m  # (k, candidates)
    up = np.log1p(np.minimum(stake, STAKE / m) * gain).cumsum(axis=0).max(axis=0)
    down = np.log1p(-np.minimum(stake, STAKE / (1.0 - m)) * gain).cumsum(axis=0).max(axis=0)
    left = shares[possible][np.maximum(up, down) < np.log(2.0 / MISS)]
    if not len(left):  # between two steps
        left = shares[possible][[np.argmin(np.maximum(up, down))]]
    return _share(float(left[0]) - 1.0 / STEPS), _share(float(left[-1]) + 1.0 / STEPS)


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)
