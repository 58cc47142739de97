"""Lists of labels that are cut by precision or by length."""

import numpy as np
import pytest

from elr.audit.threshold import below, for_budget, for_precision

RNG = np.random.default_rng(0)
quality = np.concatenate([RNG.beta(1, 8, 60), RNG.beta(8, 1, 240)])


@pytest.mark.parametrize("precision", [0.5, 0.7, 0.9, 0.95])
def test_the_list_is_as_precise_as_asked_and_one_row_more_would_not_be(precision):
    count = int((quality < for_precision(quality, precision)).sum())
    doubt = 1 - np.sort(quality)
    assert doubt[:count].mean() >= precision
    assert doubt[: count + 1].mean() < precision


def test_a_precision_that_no_row_has_gives_an_empty_list():
    assert not (quality < for_precision(quality, 1 - quality.min() / 2)).any()


def test_a_precision_that_all_rows_have_gives_all():
    assert (quality < for_precision(quality, 0.01)).all()


@pytest.mark.parametrize("budget", [1, 17, 299, 300, 5000])
def test_the_budget_is_used_up_and_not_exceeded(budget):
    chosen = quality < for_budget(quality, budget)
    assert chosen.sum() == min(budget, len(quality))
    assert quality[chosen].max() <= (quality[~chosen].min() if not chosen.all() else 1)


def test_rows_that_tie_are_not_parted():
    tied = np.array([0.1, 0.3, 0.3, 0.3, 0.9])
    assert (tied < for_budget(tied, 3)).tolist() == [True, False, False, False, False]
    assert (tied < for_precision(tied, 0.8)).sum() == 1
    assert (tied < for_precision(tied, 0.75)).sum() == 4


@pytest.mark.parametrize("extreme", [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0]])
def test_thresholds_stay_inside_what_an_audit_takes(extreme):
    for threshold in (
        for_budget(np.array(extreme), 1),
        for_budget(np.array(extreme), 9),
        for_precision(np.array(extreme), 0.9),
    ):
        assert 0.0 < threshold < 1.0


def test_a_list_asked_for_may_hold_labels_that_are_the_most_likely_class(made):
    issues = made([0.1, 0.4, 0.8, 0.95])  # of three classes: .4 against .3 and .3
    assert issues["is_label_issue"].tolist() == [True, False, False, False]
    listed = below(issues, for_budget(issues["label_quality"], 3))
    assert listed["is_label_issue"].tolist() == [True, True, True, False]
    assert listed.found == 3
    assert listed.precision == pytest.approx((0.9 + 0.6 + 0.2) / 3)
    assert issues.found == 1  # the audit itself is as it was


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: for_precision(quality, 0.0), "precision must lie between 0 and 1, got 0"),
        (lambda: for_precision(quality, float("nan")), "precision must lie between 0 and 1, got nan"),
        (lambda: for_budget(quality, 0), "budget must be at least 1 row, got 0"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
