"""Accuracy on wrong labels at the start, for any p: it depends on two projections only, so no vector is ever drawn."""

import numpy as np
from scipy.special import ndtr

from elr.theory.early import Row


def start_rows(n: int, p: int, sigma: float, delta: float, seeds: int) -> list[Row]:
    """A-hat(theta_0) of Eq. 12 with its exact law: |W| coins with P = Phi(theta_0^T v / (2 sigma)), however large p is.

    Args:
        n: examples.
        p: dimension, at least 2.
        sigma: standard deviation of a cloud.
        delta: noise level.
        seeds: independent draws.
    """
    rng = np.random.default_rng([n, p])
    first = rng.standard_normal(seeds)
    # theta_0 = 2 g / ||g|| with g standard normal in R^p: one coordinate, and the squared length of the others
    start = 2.0 * first / np.sqrt(first**2 + rng.chisquare(p - 1, seeds))
    phi = ndtr(start / (2.0 * sigma))
    count = rng.binomial(n, delta / 2, seeds)
    right = rng.binomial(count, phi)
    return [
        {"n": n, "p": p, "sigma": sigma, "delta": delta, "seed": seed, "start": float(start[seed]),
         "phi_0": float(phi[seed]), "accuracy_0": float(right[seed] / count[seed])}
        for seed in range(seeds) if count[seed]
    ]  # fmt: skip
