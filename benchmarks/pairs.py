"""Fair timing on a noisy machine: the sides take turns, and what counts is the ratio within a turn."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Side = Callable[[], Any]


def interval(values: NDArray[np.float64]) -> dict[str, float]:
    """Median with its bootstrap 95 % interval."""
    draws = np.random.default_rng(0).choice(values, (2000, len(values)))
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    return {"median": float(np.median(values)), "low": float(low), "high": float(high)}


def compare(
    sides: Mapping[str, Side], rounds: int, *, repeat: int = 1, warm: int = 2
) -> dict[str, NDArray[np.float64]]:
    """Seconds of each side in each round; the order changes from round to round."""
    for _ in range(warm):
        for side in sides.values():
            side()
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        for name in list(sides)[:: 1 if turn % 2 else -1]:
            started = time.perf_counter()
            for _ in range(repeat):
                sides[name]()
            taken[name].append((time.perf_counter() - started) / repeat)
    return {name: np.array(values) for name, values in taken.items()}


def ratio(taken: Mapping[str, NDArray[np.float64]], over: str, under: str) -> dict[str, float]:
    """Ratio of two sides, round by round."""
    return interval(taken[over] / taken[under])
