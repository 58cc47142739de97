"""What an epoch costs: short runs of the real engine, one at a time, each beside one of cross entropy.

Times of cells that ran side by side say how busy the machine was, so they are used for nothing.
"""

import statistics
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elr.bench.grid import BASELINE, Grid, setting_name
from elr.config import Config
from elr.data import Data, load
from elr.engine.evaluate import EvaluateConfig
from elr.engine.train import Job, train
from elr.parts.draw import generator
from elr.report.records import read_json, write_json

ROWS = 1024  # at most: an epoch costs in proportion to its examples
EPOCHS = 10  # lengths within a run are fractions of it, but a stage or a warm-up has at least one epoch
ROUNDS = 3


def epoch_seconds(config: Config, data: Data, *, epochs: int = EPOCHS, rows: int = ROWS) -> float:
    """Mean seconds of an epoch of ``data`` in a short run, from at most ``rows`` examples; evaluation not counted."""
    n = len(data.train)
    chosen = np.sort(generator(0).permutation(n)[:rows])
    # Without truth and held-out parts nothing is evaluated: what is left beside training is the method's own.
    few = replace(data.train.take(chosen), y_true=None)
    job = Job(
        config.make_method(),
        config.model_maker(data.shape, data.num_classes),
        replace(data, train=few, val=None, test=None, balanced_batches=None),
        epochs,
        config.optim,
        config.make_schedule(),
        EvaluateConfig(test_every=0, train_every=0),
        config.runtime,
        config.seed,
    )
    taken = [timing["train_seconds"] + timing["evaluate_seconds"] for timing in train(job).timing]
    visited = n if data.balanced_batches is None else data.balanced_batches * config.optim.batch_size
    return float(statistics.mean(taken)) * visited / len(chosen)


def read_times(grid: Grid, out: Path) -> dict[str, dict[str, Any]]:
    """What was timed, as far as it was at the noise that this grid is timed at."""
    path = out / "timing.json"
    found = dict(read_json(path)) if path.exists() else {}
    return {arm: times for arm, times in found.items() if times.get("noise") == setting_name(*grid.noises[0])}


def time_methods(grid: Grid, out: Path, methods: tuple[str, ...], tell: Callable[[str, int, int], None]) -> None:
    """Seconds of an epoch of each method and their ratio to cross entropy; what was timed before is kept."""
    found = read_times(grid, out)
    data: Data | None = None
    for number, method in enumerate(methods, start=1):
        if method in found:
            continue
        tell(method, number, len(methods))
        data = data or _data(grid)
        try:
            times = time_beside(_serial(grid, grid.baseline()), _serial(grid, _of(grid, method)), data)
        except (FloatingPointError, RuntimeError) as error:  # hours of finished runs are worth more than their cost
            warnings.warn(f"{method} was not timed: {error}", stacklevel=2)
            continue
        found[method] = {"noise": setting_name(*grid.noises[0]), **times}
        write_json(out / "timing.json", found)


def time_beside(baseline: Config, config: Config, data: Data) -> dict[str, Any]:
    """Rounds of a short run of each, in turns; medians, and the ratio within a round."""
    sides: Mapping[str, Config] = {"ce": baseline, "method": config}
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(ROUNDS):
        for name in list(sides)[:: 1 if turn % 2 else -1]:
            taken[name].append(epoch_seconds(sides[name], data))
    ratios = [b / a for a, b in zip(taken["ce"], taken["method"], strict=True)]
    return {
        "epoch_seconds": statistics.median(taken["method"]),
        "cost": 1.0 if config == baseline else statistics.median(ratios),
        "low": min(ratios),
        "high": max(ratios),
        "rounds": ROUNDS,
        "epochs": EPOCHS,
        "rows": min(ROWS, len(data.train)),
        "threads": config.runtime.threads or torch.get_num_threads(),
    }


def expected_seconds(grid: Grid, work: float, data: Data) -> float:
    """A guess at the time that so much work takes, from one short epoch of cross entropy."""
    config = grid.baseline()
    rows = 8 * config.optim.batch_size
    epoch_seconds(config, data, epochs=1, rows=rows)  # the first one allocates
    return epoch_seconds(config, data, epochs=1, rows=rows) * work


def _of(grid: Grid, method: str) -> Config:
    return grid.baseline() if method == BASELINE else grid.config(method, *grid.noises[0], grid.seeds[0])


def _serial(grid: Grid, config: Config) -> Config:
    """With the threads that a run by itself has."""
    threads = grid.settings.get("runtime.threads")
    return config if threads is not None else replace(config, runtime=replace(config.runtime, threads=None))


def _data(grid: Grid) -> Data:
    config = grid.baseline()
    return load(config.data, config.noise, config.seed)
