"""Can a hyperplane through the origin produce the noisy labels? By linear programme, by count, and in the limit."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import bdtr, ndtr

from elr.theory.early import Row

MARGIN = 1e-6  # below this, a margin is rounding


def is_separable(x: np.ndarray, labels: np.ndarray) -> bool:
    """Whether some theta has label * theta^T x > 0 for all examples: the largest margin by linear programme."""
    from scipy.optimize import linprog  # imported here: it takes as long as the rest of scipy and numpy together

    signed = labels[:, None] * x / np.linalg.norm(x, axis=1, keepdims=True)  # (n, p)
    n, p = signed.shape
    # Maximise s such that label * theta^T x >= s and every |theta_j| <= 1. It always has a solution, theta = 0; asking
    # only whether some theta with s = 1 exists leaves HiGHS undecided now and then near the threshold.
    found = linprog(
        -np.eye(1, p + 1, p)[0],
        A_ub=np.hstack([-signed, np.ones((n, 1))]),
        b_ub=np.zeros(n),
        bounds=[(-1.0, 1.0)] * p + [(0.0, 1.0)],
        method="highs",
    )
    if found.status != 0:
        raise RuntimeError(f"the linear programme was not solved: {found.message}")
    return bool((signed @ found.x[:p] > MARGIN).all())


def tail_bound(n: int, p: int, delta: float) -> float:
    """The paper's bound of P[not separable], 2 P[Bin(n, Delta/2) <= n - p] (P:817), where it says something."""
    return min(1.0, 2.0 * float(bdtr(n - p, n, delta / 2)))


def sharp_bound(n: int, p: int, delta: float) -> float:
    """The exact value of the programme at P:811, of which the paper's bound is twice an overestimate.

    There are 2 sum_{k<=m} C(n-1, k) = sum_{k<=m} C(n, k) + C(n-1, m) inseparable subsets, m = n - p - 1: the programme
    takes all those within distance m of the true one, and C(n-1, m) of those at distance m + 1.
    """
    m = n - p - 1
    if m < 0:
        return 0.0
    q = delta / 2
    below, upto = float(bdtr(m, n, q)), float(bdtr(m + 1, n, q))
    return min(1.0, below + (upto - below) * (m + 1) / n)


def cover_share(n: int, p: int) -> float:
    """Share of all 2^n labellings that are separable, C(n, p) / 2^n by Schlaefli's count (P:785)."""
    return float(bdtr(p - 1, n - 1, 0.5))


def exact_threshold(delta: float, sigma: float) -> float:
    """p/n above which noisy labels are separable in the limit: min over t of E[(Z - t V)_+^2].

    V = +-(1 - sigma g) is label times x along v, minus with probability Delta/2; Z and g are standard normal. The noise
    orthogonal to v spans a random subspace, and whether that meets the cone {w >= 0} + span(V) is decided by the
    cone's statistical dimension (Amelunxen et al. 2014; Candes and Sur 2020 for logistic regression).
    """
    from scipy.optimize import minimize_scalar

    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()

    def mean_square(t: float) -> float:
        s = t * (1.0 - sigma * nodes)
        return float(weights @ ((1.0 - delta / 2) * _positive_square(s) + delta / 2 * _positive_square(-s)))

    return float(minimize_scalar(mean_square, bounds=(0.0, 20.0), method="bounded").fun)


def _positive_square(s: np.ndarray) -> Any:
    """E[(Z - s)_+^2] for a standard normal Z."""
    return (1.0 + s**2) * ndtr(-s) - s * np.exp(-(s**2) / 2) / np.sqrt(2 * np.pi)


def crossing(ratios: Sequence[float], shares: Sequence[float], level: float = 0.5) -> float | None:
    """Where a rising curve of shares first passes the level, by straight lines; None where it does not."""
    for place in range(1, len(ratios)):
        low, high = shares[place - 1], shares[place]
        if low < level <= high:
            return ratios[place - 1] + (level - low) / (high - low) * (ratios[place] - ratios[place - 1])
    return None


def separability_row(n: int, p: int, sigma: float, delta: float, decided: Sequence[bool]) -> Row:
    """What was found at one size, beside what is known."""
    return {
        "n": n, "p": p, "ratio": p / n, "sigma": sigma, "delta": delta, "draws": len(decided),
        "separable": sum(decided) / len(decided), "tail_bound": tail_bound(n, p, delta),
        "sharp_bound": sharp_bound(n, p, delta), "cover_share": cover_share(n, p),
    }  # fmt: skip
