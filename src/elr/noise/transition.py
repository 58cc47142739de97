"""Transition matrices T[i, j] = P(noisy label j | true label i): read from a file, applied, estimated."""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elr.noise.clean import Clean, Labels


def matrix(clean: Clean, rate: float, rng: np.random.Generator) -> Labels:
    """Draw each new label from row y of the transition matrix; the matrix itself sets the rate."""
    num_classes = len(clean.classes)
    if clean.matrix is None or clean.matrix.shape != (num_classes, num_classes):
        shape = None if clean.matrix is None else clean.matrix.shape
        raise ValueError(f"noise 'matrix' needs a {num_classes} x {num_classes} matrix for these classes, got {shape}")
    new = clean.y.copy()
    draws = rng.random(len(new))
    for label in np.unique(new):
        rows = np.flatnonzero(clean.y == label)
        row = clean.matrix[label]
        cumulative = np.cumsum(row) / row.sum()
        # A draw next to 1 must not fall behind the last class that has any probability.
        new[rows] = np.minimum(np.searchsorted(cumulative, draws[rows], side="right"), np.flatnonzero(row)[-1])
    return new


def read_matrix(path: str | Path) -> NDArray[np.float64]:
    """A transition matrix from .npy, .csv (numbers only) or .json (list of rows); rows must be distributions."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"transition matrix {path} does not exist")
    try:
        if path.suffix == ".npy":
            table = np.asarray(np.load(path, allow_pickle=False), dtype=np.float64)
        elif path.suffix == ".json":
            table = np.asarray(json.loads(path.read_text()), dtype=np.float64)
        else:
            table = np.loadtxt(path, delimiter=",", dtype=np.float64, ndmin=2)
    except (ValueError, TypeError, EOFError, OSError) as error:
        raise ValueError(f"cannot read a matrix of numbers from {path}: {error}") from None
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(f"a transition matrix must be square, {path} has shape {table.shape}")
    if not (table >= 0).all() or np.abs(table.sum(axis=1) - 1).max() > 1e-6:
        raise ValueError(f"every row of {path} must be non-negative and sum to 1")
    return table


def transition(old: Labels, new: Labels, num_classes: int) -> NDArray[np.float64]:
    """The observed transition matrix, (C, C); a class without examples gets the identity's row."""
    counts = np.bincount(old * num_classes + new, minlength=num_classes**2).reshape(num_classes, num_classes)
    totals = counts.sum(axis=1, keepdims=True)  # (C, 1)
    return np.where(totals > 0, counts / np.maximum(totals, 1), np.eye(num_classes))
