"""Lemmas 8 to 10, measured: norms of data matrices, and the largest values that a search finds below their bounds."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from elr.theory.dynamics import along, coefficients, project, weighted_mean
from elr.theory.early import Row
from elr.theory.mixture import Mixture

RADIUS = 3.0  # tau of Lemma 9 where Proposition 5 uses it
SETS = ("all", "clean", "wrong")


def lemma_rows(data: Mixture, theta0: Tensor, delta: float, seeds: Sequence[int]) -> list[Row]:
    """A row for each data set and each I = [n], C, W (P:860-920)."""
    rows = []
    for place, seed in enumerate(seeds):
        one = Mixture(data.x[[place]], data.labels[[place]], data.truth[[place]], data.v[[place]], data.sigma)
        rows += _rows(one, theta0[[place]], delta, seed)
    return rows


def _rows(data: Mixture, theta0: Tensor, delta: float, seed: int) -> list[Row]:
    z, wrong = data.z()[0], data.wrong[0]
    n, p = z.shape
    shares = {"all": 1.0, "clean": 1.0 - delta / 2, "wrong": delta / 2}
    rows = []
    for name, chosen in zip(SETS, (torch.ones_like(wrong), ~wrong, wrong), strict=True):
        if not chosen.any():
            continue
        part, count = z[chosen], int(chosen.sum())
        norm, direction = _largest(part)
        rows.append(
            {
                "n": n, "p": p, "sigma": data.sigma, "delta": delta, "seed": seed, "set": name, "count": count,
                "mean_square": float((part @ theta0[0]).square().mean()),
                "z_norm": norm,
                "x_norm": _largest(data.x[0][chosen])[0],
                "c": 2.0 / shares[name] ** 0.5 if shares[name] else None,  # Lemma 10's c_Delta, and 2 for [n]
                "found": _search(data, theta0, direction, chosen),
                "gradient": _steepest(data) if name == "all" else None,
            }
        )  # fmt: skip
    return rows


def _largest(matrix: Tensor) -> tuple[float, Tensor]:
    """Spectral norm of matrix / sqrt(rows), and its right singular vector."""
    from scipy.sparse.linalg import svds  # imported here: slow to import

    array = matrix.numpy()
    if min(array.shape) < 3:  # too small for ARPACK
        _, values, right = np.linalg.svd(array, full_matrices=False)
        return float(values[0]) / len(array) ** 0.5, torch.from_numpy(right[0].copy())
    # A fixed start: ARPACK would otherwise draw one, and the last digits would differ from run to run.
    _, values, right = svds(array, k=1, v0=np.ones(min(array.shape)), return_singular_vectors="vh")
    return float(values[0]) / len(array) ** 0.5, torch.from_numpy(right[0].copy())


def _search(data: Mixture, theta0: Tensor, direction: Tensor, chosen: Tensor) -> float:
    """Lemma 9's left side at the two points of the sphere where the data vary most: a lower bound of its supremum."""
    found = 0.0
    for side in (1.0, -1.0):
        theta = theta0 + side * RADIUS * direction.to(theta0.dtype)
        gap = data.truth * torch.tanh(project(data, theta)) - torch.tanh(along(data, theta))[:, None]
        found = max(found, float(gap[0][chosen].square().mean().sqrt()))
    return found


def _steepest(data: Mixture) -> float:
    """The steepest gradient found: far out against v, and far out against the mean of label times x."""
    against = -weighted_mean(data, data.labels)
    ends = (-1e3 * data.v, 1e3 * against / against.norm(dim=1, keepdim=True))
    return max(float(weighted_mean(data, coefficients(data, theta, "loss")).norm()) for theta in ends)
