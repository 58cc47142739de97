"""An audit against the truth: the numbers against scikit-learn and by hand."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from elr.audit.truth import auroc, average_precision, calibration_error, found_of


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_ranking_is_measured_as_scikit_learn_does_ties_included(levels):
    rng = np.random.default_rng(levels)
    score = rng.integers(levels, size=400) / levels
    positive = rng.random(400) < 0.2 + 0.5 * score
    assert average_precision(positive, score) == pytest.approx(average_precision_score(positive, score))
    assert auroc(positive, score) == pytest.approx(roc_auc_score(positive, score))


def test_scores_that_all_tie_are_worth_nothing():
    positive = np.arange(10) < 3
    assert average_precision(positive, np.ones(10)) == pytest.approx(0.3)
    assert auroc(positive, np.ones(10)) == 0.5


def test_calibration_error_is_the_gap_between_promise_and_outcome():
    probability = np.array([0.95] * 10 + [0.25] * 10)
    happened = np.arange(20) < 5  # half of the first, none of the second
    assert calibration_error(probability, happened) == pytest.approx((0.45 + 0.25) / 2)
    assert calibration_error(np.array([0.0, 1.0]), np.array([False, True])) == 0.0


def test_numbers_by_hand(made):
    issues = made([0.1, 0.2, 0.3, 0.9, 0.8])  # given a b c a b, suggested b c a b c
    found = found_of(
        issues, ["x4", "x3", "x2", "x1", "x0"], [True, False, False, True, True], ["c", "a", "c", "a", "b"]
    )
    assert (found.wrong, found.found, found.found_wrong) == (3, 3, 2)
    assert found.precision == pytest.approx(2 / 3)
    assert found.recall == pytest.approx(2 / 3)
    assert found.suggestion_accuracy == pytest.approx(1 / 2)
    assert found.average_precision == pytest.approx((1 + 1 + 3 / 4) / 3)


@pytest.mark.parametrize("value", [True, False])
def test_without_both_kinds_there_is_no_ranking_to_measure(made, value):
    found = found_of(made([0.1, 0.9]), ["x0", "x1"], [value, value])
    assert (found.average_precision, found.auroc) == (None, None)
    assert found.suggestion_accuracy is None
    assert (found.recall is None) == (not value)


def test_nothing_found_has_no_precision(made):
    found = found_of(made([0.9, 0.8]), ["x0", "x1"], [True, False])
    assert found.precision is None
    assert found.recall == 0.0


def test_truth_of_other_data_is_refused(made):
    with pytest.raises(ValueError, match="the truth of example 'x1' is not known"):
        found_of(made([0.1, 0.9]), ["x0", "y1"], [True, False])


def test_ids_that_are_numbers_are_matched_by_their_digits(made):
    issues = made([0.1, 0.9])
    issues = replace(issues, columns={**issues.columns, "id": np.array(["7", "12"], dtype=object)})
    assert found_of(issues, np.array([12, 7]).tolist(), [False, True]).found_wrong == 1
