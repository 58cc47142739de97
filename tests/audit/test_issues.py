"""The table of an audit, from probabilities alone or with the evidence of a run."""

import numpy as np
import pytest

import elr
from elr.audit.evidence import Evidence
from elr.audit.quality import judge

N, C = 2000, 4


def world(wrong, *, clean=0.0, seed=0):
    """Labels of which a share is wrong, none in the first ``clean`` of the rows, and a model that is mostly right."""
    rng = np.random.default_rng(seed)
    true = rng.integers(C, size=N)
    y = np.where((rng.random(N) < wrong) & (np.arange(N) >= clean * N), (true + rng.integers(1, C, size=N)) % C, true)
    z = rng.normal(size=(N, C)) + 4.0 * np.eye(C)[true]
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    return true, y, p


def watched(y, p, *, held, **facts):
    """Evidence of a run that saw these beliefs."""
    rows, zero = np.arange(N), np.zeros(N)
    others = p.copy()
    others[rows, y] = 0.0
    margin = np.log(p[rows, y]) - np.log(others.max(axis=1))
    return Evidence(p, margin, zero + 20, zero, zero, zero, zero, zero, rows < held * N, facts=facts)


def test_labels_come_back_as_the_numbers_they_were():
    true, y, p = world(0.3)
    issues = elr.find_label_issues(y, p)
    assert (issues["given_label"] == y).all()
    assert (issues["predicted_label"] == p.argmax(axis=1)).all()  # as in cleanlab: the model alone
    flagged = issues["is_label_issue"]
    assert (issues["suggested_label"][flagged] == true[flagged]).mean() > 0.95
    assert [row["label"] for row in issues.class_health()] == [0, 1, 2, 3]


def test_the_health_of_classes_adds_up():
    _, y, p = world(0.3)
    issues = elr.find_label_issues(y, p)
    health = issues.class_health()
    assert [row["given"] for row in health] == np.bincount(y).tolist()
    assert [row["found"] for row in health] == np.bincount(y[issues["is_label_issue"]]).tolist()
    assert sum(row["wrong"] * row["given"] for row in health) == pytest.approx(sum(row["missed"] for row in health))
    assert sum(row["missed"] for row in health) / N == pytest.approx(issues.noise_rate)


@pytest.mark.parametrize(
    ("labels", "probabilities", "message"),
    [
        ([], np.zeros((0, 3)), "pred_probs has no rows"),
        ([0, 1], [[0.2, 0.3], [0.5, 0.5]], "rows that sum to 1"),
        ([0, 1], [[2.0, -1.0], [0.5, 0.5]], "not negative"),
        ([0, 1], [[0.9, 0.8], [0.5, 0.5]], "rows that sum to 1"),
        ([0, 1], [[np.nan, 0.5], [0.5, 0.5]], "finite"),
        ([0, 2], [[0.5, 0.5], [0.5, 0.5]], "class numbers from 0 to 1"),
        ([0.0, 1.0], [[0.5, 0.5], [0.5, 0.5]], "class numbers from 0 to 1"),
        ([0], [[0.5, 0.5], [0.5, 0.5]], "labels must be one for each of the 2 rows"),
        ([0, 0], [[1.0], [1.0]], "at least two classes"),
    ],
)
def test_what_are_no_labels_or_no_probabilities_is_refused(labels, probabilities, message):
    with pytest.raises(ValueError, match=message):
        elr.find_label_issues(np.array(labels), np.array(probabilities))


@pytest.mark.parametrize("told", [True, False])
def test_clean_validation_labels_do_not_vouch_for_those_that_were_trained_on(told):
    true, y, p = world(0.4, clean=0.2)
    facts = {"clean_val": True} if told else {}
    found = judge(p, y, watched(y, p, held=0.2, **facts))
    assert found.rate == pytest.approx((y != true).mean(), abs=0.03)
    assert ((found.quality < 0.5) == (y != true)).mean() > 0.95


def test_validation_labels_of_the_same_kind_are_relied_on():
    true, y, p = world(0.4)
    found = judge(p, y, watched(y, p, held=0.2))
    assert found.rate == pytest.approx((y != true).mean(), abs=0.03)
