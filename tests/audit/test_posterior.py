"""The posterior against naive loops, and on labels whose noise is known."""

from itertools import pairwise

import numpy as np
import pytest

from elr.audit.evidence import Evidence
from elr.audit.posterior import (
    Posterior,
    class_shares,
    counted,
    explained,
    pooled,
    posterior,
    sharpened,
    surest,
    transition,
)
from elr.audit.quality import Outside, combined, held_out, judge, learnt, moved, with_margin


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


def evidence_of(p, margin, *, held=None):
    n = len(p)
    zeros = np.zeros(n, dtype=np.int16)
    unknown = np.full(n, np.nan, dtype=np.float16)
    return Evidence(
        p, margin, zeros + 9, zeros, zeros, zeros, zeros, unknown,
        np.zeros(n, dtype=bool) if held is None else held,
    )  # fmt: skip


def leaning(counts, share):
    """Shares in each group, drawn towards the common ones as if so many more had been seen there."""
    spread = sum((c - sum(group) * m) ** 2 for group in counts for c, m in zip(group, share, strict=True))
    variance = sum(m * (1 - m) for m in share)
    chance, most = (variance * sum(sum(group) ** power for group in counts) for power in (1, 2))
    if spread <= chance:
        return [share for _ in counts]
    more = max((most - spread) / (spread - chance), 1.0)
    return [[(c + more * m) / (sum(group) + more) for c, m in zip(group, share, strict=True)] for group in counts]


def naive(p, y, gamma, rounds):
    """One step at a time, as the docstring tells it."""
    n, C = p.shape
    a = [[p[i, k] ** gamma / sum(p[i] ** gamma) for k in range(C)] for i in range(n)]

    def rows(weights):
        counts = np.zeros((C, C))
        for i in range(n):
            for k in range(C):
                counts[k, y[i]] += weights[i][k]
        size = [sum(counts[k]) for k in range(C)]
        wrong = [size[k] - counts[k, k] for k in range(C)]
        rate = max(sum(wrong), 1.0) / sum(size)
        rates = leaning([[wrong[k], counts[k, k]] for k in range(C)], [rate, 1 - rate])
        others = [[j for j in range(C) if j != k] for k in range(C)]
        shares = leaning([[counts[k, j] for j in others[k]] for k in range(C)], [1 / (C - 1)] * (C - 1))
        T = np.zeros((C, C))
        for k in range(C):
            T[k, k] = rates[k][1]
            for j, share in zip(others[k], shares[k], strict=True):
                T[k, j] = rates[k][0] * share
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
    assert T[0, 1] > 100 * T[0, 2]  # a kind of mistake that is seen a hundred times is not smoothed away


def test_counts_that_vary_by_chance_become_what_is_common_to_them():
    rng = np.random.default_rng(7)
    T = symmetric(10, 0.3)
    counts = np.stack([rng.multinomial(150, row) for row in T]).astype(float)
    assert np.ptp(counts[~np.eye(10, dtype=bool)]) >= 8  # entry by entry they would differ manifold
    np.testing.assert_allclose(transition(counts), symmetric(10, 1 - np.trace(counts) / 1500), atol=0.02)


@pytest.mark.parametrize("strength", [2.0, 30.0])
def test_pooling_finds_how_much_groups_differ(strength):
    """Shares are drawn from the distribution that is assumed: its strength comes back."""
    rng = np.random.default_rng(8)
    share = np.array([0.1, 0.2, 0.7])
    own = rng.dirichlet(strength * share, size=4000)
    counts = np.stack([rng.multinomial(40, row) for row in own]).astype(float)
    found = pooled(counts, share)
    far = counts[:, 0] > 12
    factor = (found[far, 0] - share[0]) / (counts[far, 0] / 40 - share[0])
    np.testing.assert_allclose(factor, 40 / (40 + strength), rtol=0.05)


def test_what_sharpenings_explain_is_what_their_posteriors_do():
    _, y, p = drawn(np.random.default_rng(3), 500, symmetric(4, 0.3))
    p[0], p[1] = [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]
    T, gammas = symmetric(4, 0.2), (0.5, 1.0, 3.0)
    expected = [(found.likelihood, found.rate) for found in (posterior(p, y, gamma, T) for gamma in gammas)]
    np.testing.assert_allclose(explained(p, y, T, gammas), expected, rtol=1e-9)


def test_the_surest_rows_are_taken_class_by_class():
    p = np.array([[0.8, 0.2], [0.9, 0.1], [0.6, 0.4], [0.55, 0.45], [0.3, 0.7], [0.1, 0.9]])
    half, few, all_ = (rows.tolist() for rows in surest(p, (0.5, 0.1, 1.0)))
    assert half == [1, 0, 5]
    assert few == [1, 5]  # one of each class at the least
    assert sorted(all_) == list(range(6))


def test_sure_rows_are_all_counted_and_unsure_ones_left_out():
    """Ten rows of which all are sure: by counting a few of them nothing is gained. The others are guesses."""
    y = np.array([0] * 8 + [1] * 12)
    sure = np.tile([[0.999, 0.001]], (10, 1))
    sure[5:] = sure[5:, ::-1]
    np.testing.assert_array_equal(counted(sure, y[:10]), [[5.0, 0.0], [3.0, 2.0]])
    mixed = np.concatenate([sure, np.where(np.arange(90)[:, None] % 2 == [0, 1], 0.55, 0.45)])
    assert counted(mixed, np.tile(y, 5)).sum() == 10  # a tenth of the fifty of either class


@pytest.mark.parametrize(("accuracy", "scale"), [(0.66, 3.0), (0.82, 6.0), (0.91, 12.0)])
def test_a_weak_model_does_not_take_its_own_mistakes_for_noise(accuracy, scale):
    """Beliefs that are calibrated, no wrong label, and as few rows held out as digits have."""
    rates, right = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        z = scale * rng.normal(size=(144, 10))
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        y = (p.cumsum(axis=1) > rng.random((144, 1))).argmax(axis=1)
        rates.append(held_out(p, y).rate)
        right.append(np.mean(p.argmax(axis=1) == y))
    assert abs(np.mean(right) - accuracy) < 0.02
    assert np.mean(rates) < 0.06  # with 15 rows of each class counted whatever they are: .25, .12, .05


def test_shares_of_true_classes_are_found_behind_the_labels():
    T = np.array([[1.0, 0.0, 0.0], [0.4, 0.6, 0.0], [0.1, 0.1, 0.8]])
    shares = np.array([0.2, 0.5, 0.3])
    y = np.repeat(np.arange(3), np.round(10_000 * shares @ T).astype(int))
    np.testing.assert_allclose(class_shares(T, y), shares, atol=0.01)


def test_noise_is_told_from_hard_examples_where_pairs_are_confused():
    """A network that has learnt noisy labels is as unsure as they are, and EM over all rows takes that for truth."""
    rng = np.random.default_rng(10)
    T = 0.6 * np.eye(4) + 0.4 * np.eye(4)[[1, 0, 3, 2]]
    truth, y, p = drawn(rng, 20_000, T, sharp=5.0)
    noisy = p @ T  # what it predicts: labels, not classes
    noisy = 0.9 * noisy + 0.1 * noisy**2 / (noisy**2).sum(axis=1, keepdims=True)  # and it leans to the truth a little
    assert posterior(noisy, y, 1.0).rate < 0.1
    found = held_out(noisy, y)
    assert abs(found.T - T).max() < 0.05
    assert abs(found.rate - np.mean(truth != y)) < 0.03


def test_two_classes_have_no_choice_of_wrong_labels():
    T = transition(np.array([[90.0, 10.0], [40.0, 60.0]]))
    np.testing.assert_allclose(T.sum(axis=1), 1.0)
    assert abs(T - [[0.9, 0.1], [0.4, 0.6]]).max() < 0.02


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


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_targets_have_their_share_in_the_odds_of_the_label(share):
    p = np.array([[0.7, 0.2, 0.1]])
    q = with_margin(p, np.array([2]), np.array([4.0]), share)[0]
    assert np.log(q[2] / q[0]) == pytest.approx((1 - share) * 4.0 + share * np.log(0.1 / 0.7))
    assert q[0] / q[1] == pytest.approx(3.5)


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
    inside = posterior(coloured, y, 2.0).rate
    assert inside < 0.15  # what the training rows alone would say
    memorized = combined(inside, held_out(coloured[held], y[held]), learnt(coloured.argmax(axis=1) == y, held))
    assert abs(memorized - wrong) < 0.03


@pytest.mark.parametrize("sharp", [2.0, 3.0])
def test_held_out_rows_tell_how_far_beliefs_are_to_be_sharpened(sharp):
    """Probabilities are proportional to p^sharp where logits have deviation 1 around it."""
    _, y, p = drawn(np.random.default_rng(9), 20_000, symmetric(4, 0.3), sharp=sharp)
    found = held_out(p, y)
    assert found.gamma == pytest.approx(sharp, rel=0.15)
    assert abs(found.rate - 0.3) < 0.03


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


@pytest.mark.parametrize(
    ("second", "rate", "told", "rows", "believed", "expected"),  # second: odds of the other class, mean and deviation
    [
        # 40 % of the labels of one class are wrong, none of the other, whose images are merely hard. Errors of beliefs
        # .04, of counts .024 and .017, so trust is .73 and .84: .362 and .023, of which the mean is to be .2.
        ((2.0, 1.0), 0.2, (0.4, 0.001), 400.0, (0.26, 0.14), (0.375, 0.025)),
        # Few are wrong: that beliefs are off by three tenths of .025 and .015 is more likely than that four rows of a
        # hundred, or none, tell anything. Errors of counts .020 and .012: trust is .13.
        ((1.53, 0.5), 0.02, (0.04, 0.0), 100.0, (0.025, 0.015), (0.027, 0.013)),
    ],
)
def test_every_class_is_moved_to_what_held_out_rows_tell_of_it(second, rate, told, rows, believed, expected):
    rng = np.random.default_rng(11)
    y = np.repeat([0, 1], 2000)
    odds = np.concatenate([rng.normal(1.0, 0.5, 2000), rng.normal(*second, 2000)])
    right = 1 / (1 + np.exp(-odds))
    found = Posterior(np.where(np.eye(2)[y] > 0, right[:, None], 1 - right[:, None]), odds, np.eye(2), -0.5)
    outside = Outside(np.eye(2), 1.0, rate, 0.02, np.array(told), np.array([rows, rows]))

    def wrong(told):
        doubt = 1 - moved(found, y, rate, told)[np.arange(4000), y]
        assert doubt.mean() == pytest.approx(rate, abs=1e-6)
        return doubt[y == 0].mean(), doubt[y == 1].mean()

    assert wrong(None) == pytest.approx(believed, rel=0.05)
    assert wrong(outside) == pytest.approx(expected, rel=0.05)


def test_mistakes_that_people_make_where_images_are_hard_are_counted():
    """The rows that the model is surest of have hardly any: what is counted there is far too little."""
    rng = np.random.default_rng(14)
    n = 8000
    truth = rng.integers(5, size=n)
    hard = rng.random(n) < 0.3
    z = rng.normal(size=(n, 5)) + np.where(hard, 1.5, 5.0)[:, None] * np.eye(5)[truth]
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    y = np.where(hard & (rng.random(n) < 0.4), (truth + rng.integers(1, 5, size=n)) % 5, truth)
    margin = (z[np.arange(n), y] - np.where(np.eye(5)[y] > 0, -np.inf, z).max(axis=1)).astype(np.float32)
    held = np.arange(n) % 8 == 0
    wrong = float(np.mean(y != truth))
    assert held_out(p[held], y[held]).rate < wrong / 10
    assert wrong / 2 < judge(p, y, evidence_of(p, margin, held=held)).rate < wrong


def test_targets_that_have_learnt_their_labels_are_not_asked():
    """The margins are those of a network that had not; its targets, at the end, agree with every label."""
    rng = np.random.default_rng(13)
    truth, y, p = drawn(rng, 5000, symmetric(4, 0.3), sharp=2.0)
    held, rows = np.arange(5000) % 5 == 0, np.arange(5000)
    z = np.log(p)
    margin = (z[rows, y] - np.where(np.eye(4)[y] > 0, -np.inf, z).max(axis=1)).astype(np.float32)
    # How sure they are of it says nothing of the truth.
    sure = 1 / (1 + np.exp(-rng.normal(4.0, 3.0, size=5000)))[:, None]
    coloured = np.where(held[:, None], p, np.where(np.eye(4)[y] > 0, sure, (1 - sure) / 3))
    right = truth == y

    def separates(p):
        quality = judge(p, y, evidence_of(p, margin, held=held)).quality
        return np.mean(quality[right & ~held][:, None] > quality[~right & ~held][None, :])

    assert separates(coloured) > separates(p) - 0.02


def test_permuting_rows_permutes_the_judgement():
    rng = np.random.default_rng(6)
    _, y, p = drawn(rng, 600, symmetric(3, 0.2))
    order = rng.permutation(600)
    margin = rng.normal(size=600).astype(np.float32)
    a, b = judge(p, y, evidence_of(p, margin)), judge(p[order], y[order], evidence_of(p[order], margin[order]))
    np.testing.assert_allclose(a.quality[order], b.quality, atol=1e-9)
    assert a.rate == pytest.approx(b.rate, abs=1e-9)
