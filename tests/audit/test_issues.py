"""The table of an audit, from probabilities alone or with the evidence of a run."""

import importlib

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


def test_confusion_has_given_labels_down_and_true_classes_across():
    """Of the first class every third example bears the label of the second; nothing else is confused."""
    rng = np.random.default_rng(0)
    true = np.arange(900) % 3
    y = np.where((true == 0) & (rng.random(900) < 1 / 3), 1, true)
    p = np.full((900, 3), 0.02)
    p[np.arange(900), true] = 0.96
    issues = elr.find_label_issues(y, p)
    moved = int((y != true).sum())
    (first, *_) = issues.confused_pairs(1)
    assert (first["given_label"], first["true_label"]) == (1, 0)
    assert first["examples"] == pytest.approx(moved, rel=0.15)
    assert issues.confusion[1, 0] == pytest.approx(moved, rel=0.15)
    assert issues.confusion[0, 1] < 0.1 * moved
    missed = [row["missed"] for row in issues.class_health()]
    assert missed[0] == pytest.approx(moved, rel=0.15)
    assert max(missed[1:]) < 0.1 * moved
    wrong = np.flatnonzero(y != true)
    assert issues["target_suggested"][wrong] == pytest.approx(0.96)


def test_damaged_evidence_is_refused():
    _, y, p = world(0.3)
    evidence = watched(y, p, held=0.2, epochs=30)
    elr.find_label_issues(y, p, evidence=evidence)
    evidence.margin[7] = np.nan
    with pytest.raises(ValueError, match="not all numbers"):
        elr.find_label_issues(y, p, evidence=evidence)


def test_where_nothing_was_held_out_the_number_of_wrong_labels_is_called_doubtful():
    _, y, p = world(0.3)
    evidence = watched(y, p, held=0.0, epochs=30)
    assert any("no label was held out" in line for line in elr.find_label_issues(y, p, evidence=evidence).warnings)


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


def test_every_setting_of_the_comparisons_can_be_run():
    """Hours of training come after them, and nobody looks at these lists before."""
    audit, ranking = (importlib.import_module(f"benchmarks.{name}") for name in ("audit", "ranking"))
    told = [(setting, audit.WHOLE) for setting in audit.settings("DIR", "FILE")]
    for setting, methods in [*told, *ranking.settings("DIR", "FILE")]:
        for method in methods:
            assert setting.config(method).method.name == method
    assert len(told) == 21


@pytest.mark.parametrize(("classes", "written"), [(100, True), (101, False)])
def test_the_summary_of_many_classes_stays_small(classes, written):
    y = np.arange(4 * classes) % classes
    p = np.full((len(y), classes), 0.1 / classes) + 0.9 * np.eye(classes)[y]
    issues = elr.find_label_issues(y, p)
    assert issues.transition.shape == (classes, classes)
    assert (issues.summary()["transition"] is not None) == written
