"""Mixtures over losses: against naive fits, on heaps of known size, and where there is nothing to fit."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture

from elr.parts.mixture import (
    BetaMixture,
    beta_from_moments,
    estimate_noise_rate,
    gaussian_clean_probability,
    two_heaps,
)


def losses(n=1000, wrong=0.4, seed=0):
    """Cross entropies as after a few epochs: small for right labels, some units for wrong ones; and which are wrong."""
    rng = np.random.default_rng(seed)
    is_wrong = rng.random(n) < wrong
    values = np.where(is_wrong, rng.normal(3.0, 0.6, n), rng.gamma(1.5, 0.2, n)).clip(0.0)
    return torch.from_numpy(values).float(), torch.from_numpy(is_wrong)


def test_moments_of_four_numbers_give_the_beta_distribution_worked_out_by_hand():
    alpha, beta = beta_from_moments(torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64), torch.ones(4))
    assert (alpha, beta) == (pytest.approx(3.5), pytest.approx(10.5))


def test_gaussian_posterior_is_scikit_learns_with_its_own_start():
    values, _ = losses()
    x = (values - values.min()) / (values.max() - values.min())
    theirs = GaussianMixture(2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=0).fit(x[:, None].numpy())
    posterior = theirs.predict_proba(x[:, None].numpy())[:, theirs.means_[:, 0].argmin()]
    np.testing.assert_allclose(gaussian_clean_probability(values).numpy(), posterior, atol=5e-3)


@pytest.mark.parametrize("wrong", [0.1, 0.2, 0.4, 0.6, 0.8])
def test_gaussians_tell_two_heaps_apart_and_count_them(wrong):
    values, is_wrong = losses(wrong=wrong)
    clean = gaussian_clean_probability(values)
    assert ((clean > 0.5) == ~is_wrong).float().mean() > 0.97
    assert estimate_noise_rate(values) == pytest.approx(is_wrong.float().mean().item(), abs=0.04)


def test_gaussian_posterior_does_not_care_about_units_or_order():
    values, _ = losses()
    clean = gaussian_clean_probability(values)
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(gaussian_clean_probability(values[order]), clean[order], rtol=0, atol=1e-6)
    torch.testing.assert_close(gaussian_clean_probability(7.0 * values + 3.0), clean, rtol=0, atol=1e-4)


def test_best_split_into_two_heaps_is_found():
    for seed in range(20):
        x = np.random.default_rng(seed).random(9)
        weight, mean, variance = two_heaps(x)
        ordered = np.sort(x)
        scatter = [k * ordered[:k].var() + (9 - k) * ordered[k:].var() for k in range(1, 9)]
        k = 1 + int(np.argmin(scatter))
        np.testing.assert_allclose(weight, [k / 9, 1 - k / 9])
        np.testing.assert_allclose(mean, [ordered[:k].mean(), ordered[k:].mean()])
        np.testing.assert_allclose(variance, [ordered[:k].var(), ordered[k:].var()], atol=1e-15)


@pytest.mark.parametrize("values", [[], [2.0], [2.0, 2.0, 2.0], [math.nan], [math.nan, math.inf, 1.0]])
def test_losses_that_are_all_alike_speak_against_no_label(values):
    values = torch.tensor(values)
    assert torch.equal(gaussian_clean_probability(values), torch.ones(len(values)))
    assert estimate_noise_rate(torch.ones(5)) == 0.0
    mixture = BetaMixture.fit(torch.ones(50))
    torch.testing.assert_close(mixture.wrong_probability(torch.tensor([0.5, 1.0, 9.0])), torch.full((3,), 1e-4))
    assert BetaMixture.fit(torch.zeros(0)).weight == (1.0, 0.0)


def test_a_loss_that_is_no_number_counts_as_wrong():
    values, _ = losses(200)
    values[3], values[7] = math.nan, math.inf
    clean = gaussian_clean_probability(values)
    assert clean[3] == clean[7] == 0.0
    assert clean.isfinite().all()
    mixture = BetaMixture.fit(values)
    assert all(map(math.isfinite, mixture.numbers().tolist()))
    assert (mixture.wrong_probability(values)[[3, 7]] > 0.9).all()


@given(st.lists(st.floats(0.0, 20.0, width=32), min_size=2, max_size=40))
@settings(max_examples=60, deadline=None)
def test_any_losses_give_probabilities(values):
    values = torch.tensor(values)
    for p in (gaussian_clean_probability(values), BetaMixture.fit(values).wrong_probability(values)):
        assert p.dtype == torch.float32
        assert p.shape == values.shape
        assert ((p >= 0) & (p <= 1)).all()
    assert 0.0 <= estimate_noise_rate(values) <= 1.0


def density(x, a, b):
    """Of the Beta distribution."""
    return x ** (a - 1) * (1 - x) ** (b - 1) * math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b))


def naive_beta_fit(values):
    """Ten steps of expectation maximisation, written out; returns weights, alphas, betas and the range."""
    first, last = np.percentile(values, 5), np.percentile(values, 95)
    low, width = first + 1e-5, last - (first + 1e-5) + 1e-6
    x = [(v - low) / width for v in values if first <= v <= last]
    x = [0.999 if v >= 1 else 0.001 if v <= 0 else v for v in x]
    x = np.clip(x, 1e-4, 1 - 1e-4).tolist()
    weights, alphas, betas = [0.5, 0.5], [1.0, 2.0], [2.0, 1.0]
    for _ in range(10):
        share = []
        for v in x:
            joint = [max(1e-12, w * density(v, a, b)) for w, a, b in zip(weights, alphas, betas, strict=True)]
            share.append([j / sum(joint) for j in joint])
        for k in range(2):
            total = sum(s[k] for s in share)
            m = sum(s[k] * v for s, v in zip(share, x, strict=True)) / total
            variance = sum(s[k] * (v - m) ** 2 for s, v in zip(share, x, strict=True)) / total
            alphas[k] = m * (m * (1 - m) / variance - 1)
            betas[k] = alphas[k] * (1 - m) / m
            weights[k] = total / len(x)
    return weights, alphas, betas, low, width


def naive_posterior(fit, value):
    """From a table of 100 places that does not fall after its highest."""
    weights, alphas, betas, low, width = fit
    table = []
    for place in np.linspace(1e-4, 1 - 1e-4, 100):
        joint = [w * density(place, a, b) for w, a, b in zip(weights, alphas, betas, strict=True)]
        table.append(joint[1] / sum(joint))
    peak = table.index(max(table))
    table = table[:peak] + [table[peak]] * (100 - peak)
    place = min(max((value - low) / width, 1e-4), 1 - 1e-4)
    return min(max(table[int(100 * place)], 1e-4), 1 - 1e-4)


@pytest.mark.parametrize("wrong", [0.2, 0.5])
def test_beta_mixture_follows_the_textbook(wrong):
    values, _ = losses(300, wrong)
    values = values.double()
    mixture, theirs = BetaMixture.fit(values), naive_beta_fit(values.tolist())
    for ours, naive in zip((mixture.weight, mixture.alpha, mixture.beta), theirs, strict=False):
        np.testing.assert_allclose(ours, naive, rtol=1e-9)
    some = values[:60]
    np.testing.assert_allclose(
        mixture.wrong_probability(some).numpy(), [naive_posterior(theirs, v) for v in some.tolist()], rtol=1e-5
    )


def test_beta_mixture_tells_two_heaps_apart():
    values, is_wrong = losses()
    w = BetaMixture.fit(values).wrong_probability(values)
    assert ((w > 0.5) == is_wrong).float().mean() > 0.97
    assert ((w >= 1e-4) & (w <= 1 - 1e-4)).all()


def test_the_second_component_is_always_the_one_with_the_higher_mean():
    swapped = BetaMixture((0.3, 0.7), (8.0, 1.0), (2.0, 9.0), 0.1, 2.0)._ordered()
    assert swapped == BetaMixture((0.7, 0.3), (1.0, 8.0), (9.0, 2.0), 0.1, 2.0)
    for seed in range(10):
        first, second = BetaMixture.fit(losses(60, 0.9, seed)[0]).means
        assert first <= second


def test_high_losses_stay_as_suspect_as_the_most_suspect():
    """A wide component of right labels has the longer tail; its posterior would rise again at the largest losses."""
    mixture = BetaMixture((0.6, 0.4), (1.0, 40.0), (1.5, 20.0))
    w = mixture.wrong_probability(torch.linspace(0.0, 1.0, 101))
    peak = int(w.argmax())
    assert peak < 90
    assert (w[peak:] == w[peak]).all()


def test_a_mixture_comes_back_from_its_numbers():
    mixture = BetaMixture.fit(losses()[0])
    numbers = mixture.numbers()
    assert numbers.shape == (8,)
    again = BetaMixture.of(numbers)
    assert again.alpha == pytest.approx(mixture.alpha, rel=1e-6)  # a buffer is float32
    assert torch.equal(again.numbers(), numbers)
