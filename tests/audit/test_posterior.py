"""The posterior against naive loops, and on labels whose noise is known."""

from itertools import pairwise

import numpy as np
import pytest

from elr.audit.evidence import Evidence
from elr.audit.posterior import FEW, posterior, sharpened, transition
from elr.audit.quality import combined, judge, label_odds, moved, with_margin


def drawn(rng, n, T, sharp=4.0):
    """True classes, labels drawn from T, and probabilities of a model that is not biased by labels.

    With logits of deviation 1 around ``sharp`` at the true class, the posterior is proportional to p^sharp.
    """
    C = len(T)
    truth = rng.integers(C, size=n)
    y = (rng.random((n, 1)) > np.cumsum(T, axis=1)[truth]).sum(axis=1).clip(max=C - 1)
    z = rng.normal(size=(n, C)) + sharp * np.eye(C)[truth]
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    return truth, y, p


def symmetric(C, rate):
    return np.full((C, C), rate / (C - 1)) * (1 - np.eye(C)) + (1 - rate) * np.eye(C)


def evidence_of(p, margin, *, held=None, peak=None):
    n = len(p)
    zeros = np.zeros(n, dtype=np.int16)
    unknown = np.full(n, np.nan, dtype=np.float16)
    return Evidence(
        p, margin, zeros + 9, zeros, zeros, zeros, zeros, unknown if peak is None else peak,
        np.zeros(n, dtype=bool) if held is None else held,
    )  # fmt: skip


def naive(p, y, gamma, rounds):
    """One step at a time, as the docstring tells it."""
    n, C = p.shape
    a = [[p[i, k] ** gamma / sum(p[i] ** gamma) for k in range(C)] for i in range(n)]

    def rows(weights):
        counts = np.zeros((C, C))
        for i in range(n):
            for k in range(C):
                counts[k, y[i]] += weights[i][k]
        kept = min(sum(counts[k, k] for k in range(C)) / counts.sum(), 1 - 1 / counts.sum())
        T = np.zeros((C, C))
        for k in range(C):
            size = counts[k].sum()
            more = max(FEW - size, 1.0)
            for j in range(C):
                common = kept if j == k else (1 - kept) / (C - 1)
                T[k, j] = (counts[k, j] + more * common) / (size + more)
        return T

    def weights(T):
        w = [[a[i][k] * T[k, y[i]] for k in range(C)] for i in range(n)]
        return [[value / sum(row) for value in row] for row in w], np.mean([np.log(sum(row)) for row in w])

    T = rows(a)
    for _ in range(rounds):
        w, _ = weights(T)
        old, T = T, rows(w)
        if abs(T - old).max() < 1e-5:
            break
    w, likelihood = weights(T)
    return np.array(w), T, likelihood


@pytest.mark.parametrize("gamma", [1.0, 2.0, 3.0])
def test_posterior_is_what_naive_loops_give(gamma):
    rng = np.random.default_rng(0)
    _, y, p = drawn(rng, 70, symmetric(3, 0.3), sharp=2.0)
    found = posterior(p, y, gamma)
    w, T, likelihood = naive(p, y, gamma, 100)
    np.testing.assert_allclose(found.w, w, atol=1e-9)
    np.testing.assert_allclose(found.T, T, atol=1e-9)
    own = w[np.arange(70), y]
    np.testing.assert_allclose(found.odds, np.log(own / (1 - own)), atol=1e-6)
    assert found.likelihood == pytest.approx(likelihood, abs=1e-9)


def test_likelihood_never_falls_under_more_rounds(monkeypatch):
    rng = np.random.default_rng(1)
    _, y, p = drawn(rng, 4000, symmetric(4, 0.3))
    values = []
    for rounds in (1, 2, 4, 8, 16):
        monkeypatch.setattr("elr.audit.posterior.ROUNDS", rounds)
        values.append(posterior(p, y, 1.0).likelihood)
    assert all(b >= a - 1e-6 for a, b in pairwise(values))


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4])
def test_transition_and_rate_are_found_where_the_model_is_right(rate):
    rng = np.random.default_rng(2)
    T = symmetric(5, rate)
    T[0] = [1 - rate, rate, 0, 0, 0]  # and one row that is not symmetric
    _, y, p = drawn(rng, 20_000, T, sharp=4.0)
    found = posterior(p, y, 4.0)
    assert abs(found.T - T).max() < 0.03
    assert abs(found.rate - rate) < 0.02


def test_a_rare_class_leans_on_the_others():
    counts = np.array([[800.0, 200.0, 0.0], [200.0, 800.0, 0.0], [0.0, 0.0, 2.0]])
    T = transition(counts)
    np.testing.assert_allclose(T.sum(axis=1), 1.0)
    assert T[2, 2] < 0.85  # two right labels are no proof that the class has no noise
    assert T[0, 0] == pytest.approx(0.8, abs=0.001)


def test_sharpening_survives_certainty():
    a = sharpened(np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]), 3.0)
    assert np.isfinite(a).all()
    np.testing.assert_allclose(a.sum(axis=1), 1.0)


def test_a_margin_sets_the_odds_of_the_label_and_leaves_the_others():
    p = np.array([[0.7, 0.2, 0.1]])
    q = with_margin(p, np.array([0]), np.array([-1.0]))[0]
    assert np.log(q[0] / q[1]) == pytest.approx(-1.0)
    assert q[1] / q[2] == pytest.approx(2.0)
    assert q.sum() == pytest.approx(1.0)


def test_the_peak_counts_for_half_where_it_is_known():
    peak = np.array([np.log(2.0), np.nan], dtype=np.float16)  # p = 1/2: even odds
    odds = label_odds(evidence_of(np.full((2, 2), 0.5), np.array([3.0, 3.0], dtype=np.float32), peak=peak))
    np.testing.assert_allclose(odds, [1.5, 3.0], atol=1e-3)


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.9])
def test_moved_odds_have_the_rate_asked_for_and_keep_their_order(rate):
    rng = np.random.default_rng(3)
    _, y, p = drawn(rng, 500, symmetric(4, 0.3), sharp=1.5)
    found = posterior(p, y, 1.5)
    after = moved(found, y, rate)
    own, before = after[np.arange(500), y], found.w[np.arange(500), y]
    assert 1 - own.mean() == pytest.approx(rate, abs=1e-6)
    assert (np.argsort(own, kind="stable") == np.argsort(before, kind="stable")).all()
    np.testing.assert_allclose(after.sum(axis=1), 1.0)


def test_ranking_survives_where_every_label_is_believed():
    """A network that has learnt all labels by heart gives probabilities that round to 1; their order is still there."""
    y = np.repeat([0, 1], 300)
    p = np.full((600, 2), 1e-9)
    p[np.arange(600), y] = 1.0
    margin = np.linspace(9.0, 14.0, 600).astype(np.float32)
    quality = judge(p, y, evidence_of(p, margin)).quality
    assert (np.diff(quality[y == 0]) > 0).all()


def test_held_out_rows_decide_the_rate_the_more_the_training_rows_are_coloured():
    rng = np.random.default_rng(4)
    truth, y, p = drawn(rng, 6000, symmetric(4, 0.3), sharp=5.0)
    held = np.arange(6000) % 5 == 0
    coloured = p.copy()
    coloured[~held] = 0.02 * p[~held] + 0.98 * np.eye(4)[y[~held]]  # a network that has learnt its labels by heart
    wrong = float(np.mean(truth != y))
    memorized = combined(posterior(coloured, y, 2.0).rate, coloured, y, held)
    assert abs(memorized - wrong) < 0.03
    assert posterior(coloured, y, 2.0).rate < 0.15  # what the training rows alone would say
    none = np.zeros(6000, dtype=bool)
    assert combined(0.123, p, y, none) == 0.123


def test_quality_is_calibrated_and_ranks_where_the_model_holds():
    rng = np.random.default_rng(5)
    truth, y, p = drawn(rng, 20_000, symmetric(4, 0.3), sharp=2.0)
    z = np.log(p)
    others = np.where(np.eye(4)[y] > 0, -np.inf, z).max(axis=1)
    margin = (z[np.arange(20_000), y] - others).astype(np.float32)
    found = judge(p, y, evidence_of(p, margin, held=np.arange(20_000) % 4 == 0))
    right = truth == y
    for low in np.arange(0.0, 1.0, 0.2):
        inside = (found.quality >= low) & (found.quality < low + 0.2)
        if inside.sum() > 100:
            assert abs(found.quality[inside].mean() - right[inside].mean()) < 0.06
    assert abs(found.rate - np.mean(~right)) < 0.03
    low, high = found.range
    assert low <= found.rate <= high


def test_permuting_rows_permutes_the_judgement():
    rng = np.random.default_rng(6)
    _, y, p = drawn(rng, 600, symmetric(3, 0.2))
    order = rng.permutation(600)
    margin = rng.normal(size=600).astype(np.float32)
    a, b = judge(p, y, evidence_of(p, margin)), judge(p[order], y[order], evidence_of(p[order], margin[order]))
    np.testing.assert_allclose(a.quality[order], b.quality, atol=1e-9)
    assert a.rate == pytest.approx(b.rate, abs=1e-9)
