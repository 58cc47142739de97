"""Stratified choices of rows."""

import numpy as np
from numpy.typing import NDArray


def stratified(
    y: NDArray[np.int64], count: int, rng: np.random.Generator, *, keep: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows left and rows chosen, both ascending: of every class its share of ``count``, at least ``keep`` left."""
    sizes = np.bincount(y)  # (C,)
    room = np.maximum(sizes - keep, 0)
    if not 0 <= count <= room.sum():
        raise ValueError(f"cannot choose {count:,} of {len(y):,} examples and leave {keep} of every class")
    share = sizes * (count / len(y))
    quota = np.minimum(np.floor(share), room).astype(np.int64)
    by_remainder = np.argsort(np.floor(share) - share, kind="stable")  # largest remainder first
    while (missing := count - quota.sum()) > 0:
        quota[by_remainder[quota[by_remainder] < room[by_remainder]][:missing]] += 1
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]  # grouped by class, random inside
    rank = np.arange(len(y)) - (np.cumsum(sizes) - sizes)[y[order]]
    chosen = np.zeros(len(y), dtype=bool)
    chosen[order[rank < quota[y[order]]]] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)
