"""Two Gaussian clouds in R^p with noisy labels: the data of Section 3, and where gradient descent starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

# What "40 % of the labels" may mean for two classes: replaced by a fair coin, as in Eq. 1, so that half of them stay
# right; or flipped, as the caption of Figure A.1 says.
Reading = Literal["replaced", "flipped"]


@dataclass(frozen=True)
class Mixture:
    """S independent data sets of n examples each."""

    x: Tensor  # (S, n, p)
    labels: Tensor  # (S, n) as given, +1 or -1: the paper's epsilon
    truth: Tensor  # (S, n) cluster, +1 or -1: epsilon*
    v: Tensor  # (S, p) unit vectors
    sigma: float

    @property
    def wrong(self) -> Tensor:
        """W, (S, n)."""
        return self.labels != self.truth

    def z(self) -> Tensor:
        """The standard Gaussian part, (S, n, p), of x = truth (v - sigma z)."""
        return (self.v[:, None] - self.truth[:, :, None] * self.x) / self.sigma


def draw_mixture(
    n: int,
    p: int,
    sigma: float,
    delta: float,
    seeds: Sequence[int],
    *,
    reading: Reading = "replaced",
    dtype: torch.dtype = torch.float64,
) -> Mixture:
    """A data set for each seed. A seed draws the same clouds whatever sigma and delta are.

    Args:
        n: examples.
        p: dimension.
        sigma: standard deviation of a cloud in each direction.
        delta: noise level, Delta.
        seeds: one for each data set.
        reading: what delta is the share of: labels replaced by a coin (Eq. 1), or labels flipped.
        dtype: float32 halves the memory where p is large.
    """
    narrow = np.float32 if dtype == torch.float32 else np.float64
    parts = [_draw_one(n, p, sigma, delta, seed, reading, narrow) for seed in seeds]
    x, labels, truth, v = (torch.from_numpy(np.stack(part)) for part in zip(*parts, strict=True))
    return Mixture(x, labels, truth, v, sigma)


def _draw_one(
    n: int, p: int, sigma: float, delta: float, seed: int, reading: Reading, dtype: type
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, 0])
    v = rng.standard_normal(p)
    v = (v / np.linalg.norm(v)).astype(dtype)
    truth = rng.choice(np.array([-1.0, 1.0], dtype), n)
    x = rng.standard_normal((n, p), dtype)
    x *= -sigma  # in place: at p = 4,000 each copy is 70 MB
    x += v
    x *= truth[:, None]
    return x, _noisy(truth, delta, np.random.default_rng([seed, 1]), reading), truth, v


def _noisy(truth: np.ndarray, delta: float, rng: np.random.Generator, reading: Reading) -> np.ndarray:
    if reading == "flipped":
        chosen = np.zeros(len(truth), bool)
        chosen[rng.permutation(len(truth))[: round(delta * len(truth))]] = True
        return np.where(chosen, -truth, truth)
    # PAPER Eq. 1
    coin = rng.choice(np.array([-1.0, 1.0], truth.dtype), len(truth))
    return np.where(rng.random(len(truth)) < delta, coin, truth)


def draw_start(p: int, seeds: Sequence[int], *, radius: float = 2.0, dtype: torch.dtype = torch.float64) -> Tensor:
    """theta_0 on the sphere of this radius, (S, p)."""
    rows = np.stack([np.random.default_rng([seed, 2]).standard_normal(p) for seed in seeds])
    return torch.from_numpy(radius * rows / np.linalg.norm(rows, axis=1, keepdims=True)).to(dtype)
