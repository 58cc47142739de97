"""Every reason to distrust an audit is given where it holds, and none where all is well."""

import numpy as np
import pytest

from elr.audit.doubts import doubts
from elr.audit.evidence import Evidence

N, C = 300, 3
Y = np.arange(N) % C
T = np.full((C, C), 0.1) + 0.7 * np.eye(C)


def sure(of, by=0.9):
    """Beliefs (n, C) that are as sure as that of these classes."""
    p = np.full((len(of), C), (1 - by) / (C - 1))
    p[np.arange(len(of)), of] = by
    return p


def seen(belief, *, visits=20, held=0.1, **facts):
    """Evidence with these beliefs; the first rows are held out."""
    n = len(belief)
    zero = np.zeros(n)
    held_out = np.arange(n) < held * n
    return Evidence(belief, zero, np.full(n, visits), zero, zero, zero, zero, zero, held_out, facts=facts)


def mistaken(share):
    """What is believed if that share of the labels is not."""
    return np.where(np.arange(N) % 10 < 10 * share, (Y + 1) % C, Y)


def test_nothing_is_said_where_all_is_well():
    belief = sure(mistaken(0.2))
    assert doubts(belief, Y, T, seen(belief, peak=4, epochs=8)) == []
    assert doubts(belief, Y, T, None) == []


@pytest.mark.parametrize("evidence", [True, False])
def test_a_class_that_nobody_believes_in(evidence):
    belief = sure(np.where(Y == 2, 0, Y))
    (line,) = doubts(belief, Y, T, seen(belief) if evidence else None)
    assert line.startswith("1 of 3 classes are never believed in")


def test_beliefs_that_say_nothing():
    (line,) = doubts(sure(mistaken(0.2), by=0.4), Y, T, None)
    assert "learnt next to nothing" in line


def test_a_class_whose_label_is_mostly_another():
    swapped = T[[1, 0, 2]]
    (line,) = doubts(sure(mistaken(0.2)), Y, swapped, None)
    assert line.startswith("2 of 3 classes seem to bear the label of another class")


def test_few_wrong_labels_are_not_told_from_hard_examples():
    belief = sure(mistaken(0.2))
    (line,) = doubts(belief, Y, T, None, rate=0.02)
    assert line.startswith("2.0% of the labels are estimated to be wrong: among so few")
    assert doubts(belief, Y, T, None, rate=0.06) == []


def test_a_class_of_a_handful():
    y = np.where(np.arange(N) < 9, 2, np.arange(N) % 2)
    (line,) = doubts(sure(y), y, T, None)
    assert line.startswith("1 of 3 classes have fewer than 10 examples")


def test_too_few_epochs_however_often_each_was_seen():
    belief = sure(mistaken(0.2))
    (line,) = doubts(belief, Y, T, seen(belief, visits=8, epochs=4))
    assert line.startswith("4 epoch(s) are too few")
    assert doubts(belief, Y, T, seen(belief, visits=4, epochs=20)) == []  # swept every five epochs


@pytest.mark.parametrize("inside", [0.0, 0.1])
def test_labels_that_were_memorised_all_of_them_or_many(inside):
    outside = np.arange(N) < 0.3 * N
    belief = sure(np.where(outside, mistaken(0.5), mistaken(inside)))
    (line,) = doubts(belief, Y, T, seen(belief, held=0.3))
    assert "they have been memorised" in line


def test_a_gap_that_few_held_out_rows_may_have_by_chance_says_nothing():
    belief = sure(np.where(np.arange(N) < 0.05 * N, mistaken(0.4), mistaken(0.2)))  # fifteen rows
    assert doubts(belief, Y, T, seen(belief, held=0.05)) == []


@pytest.mark.parametrize("told", [True, False])
def test_held_out_labels_that_are_cleaner(told):
    outside = np.arange(N) < 0.3 * N
    belief = sure(np.where(outside, mistaken(0.2 if told else 0.0), mistaken(0.4)))
    facts = {"clean_val": True} if told else {}
    (line,) = doubts(belief, Y, T, seen(belief, held=0.3, **facts))
    assert "these are worse" in line


def test_clean_or_memorised_is_not_known_without_held_out_rows():
    (line,) = doubts(sure(Y), Y, T, seen(sure(Y), held=0.0))
    assert "none was held out" in line
    assert doubts(sure(Y), Y, T, seen(sure(Y))) == []


def test_no_early_learning_peak():
    belief = sure(mistaken(0.2))
    (line,) = doubts(belief, Y, T, seen(belief, peak=1, epochs=8))
    assert "no early-learning peak" in line
    (few,) = doubts(belief, Y, T, seen(belief, peak=1, epochs=1))
    assert few.startswith("1 epoch(s) are too few")
