"""Choices of rows by class: stratified, or balanced."""

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


def balanced(y: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """``count`` rows with every class as often as any other: round after round, each class once, in random order.

    So are all stretches of them: in a batch no two classes differ by more than 2. A row comes back only after all other
    rows of its class, so a large class is sampled without replacement and a small one repeats evenly.
    """
    classes, sizes = np.unique(y, return_counts=True)
    groups = np.split(np.argsort(y, kind="stable"), np.cumsum(sizes)[:-1])
    rounds = np.tile(np.arange(len(classes)), (-(-count // len(classes)), 1))
    turns = rng.permuted(rounds, axis=1).ravel()[:count]  # (count,) whose turn it is
    rows = np.empty(count, dtype=np.int64)
    for k, group in enumerate(groups):
        places = np.flatnonzero(turns == k)
        laps = [rng.permutation(group) for _ in range(-(-len(places) // len(group)))]
        rows[places] = np.concatenate([group[:0], *laps])[: len(places)]
    return rows
