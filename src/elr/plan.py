"""What a run would cost: a few measured steps of cross entropy in the real engine, times what its method costs."""

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from elr.config import Config
from elr.data import Data
from elr.engine.device import private_randomness
from elr.engine.train import Job, train
from elr.methods import METHODS
from elr.parts.table import ExampleTable
from elr.report.records import Record

STEPS = 8
WARM = 3  # the first steps allocate


class _Stopwatch:
    """Notes when each batch ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def batch(self, epoch: int, done: int, total: int) -> None:
        """Note the time."""
        self.times.append(time.perf_counter())

    def epoch(self, record: Record, seconds: float) -> None:
        """Not needed."""


def estimate(config: Config, data: Data) -> Iterator[str]:
    """The plan of a run in plain lines."""
    method, maker = config.make_method(), config.model_maker(data.shape, data.num_classes)
    n, c, batch = len(data.train), data.num_classes, config.optim.batch_size
    steps = data.balanced_batches or -(-n // batch)
    yield f"steps             {steps:,} a pass, batch {batch}"
    yield f"cost              {method.cost:.2f} x cross entropy, by arithmetic"
    with private_randomness(torch.device("cpu")):
        method.build(lambda k=0: maker(), 1, c)
    parameters = sum(p.numel() for net in method.nets for p in net.parameters())
    yield f"parameters        {parameters:,} in {len(method.nets)} network(s)"
    widths = [table.values.shape[1] for table in method.modules() if isinstance(table, ExampleTable)]
    if widths:
        yield f"targets           {n:,} x {'+'.join(map(str, widths))} floats: {n * sum(widths) * 4 / 2**20:.1f} MiB"
    watch = _Stopwatch()
    few = data.train.take(np.arange(min(n, STEPS * batch)))
    trial = replace(data, train=few, val=None, test=None, balanced_batches=None)
    # Of cross entropy: the first epoch of many a method is a warm-up that says nothing of what comes after.
    train(
        Job(
            METHODS["ce"](), maker, trial, 1, config.optim, config.make_schedule(),
            config.evaluate, config.runtime, config.seed, progress=watch,
        )
    )  # fmt: skip
    gaps = np.diff(watch.times[WARM:]) if len(watch.times) > WARM + 1 else np.diff(watch.times)
    if len(gaps) == 0:
        yield "time              too little data to measure a step"
        return
    epoch = float(np.median(gaps)) * steps * method.cost
    yield f"step              {np.median(gaps) * 1e3:.1f} ms of cross entropy (median of {len(gaps)})"
    minutes = epoch * config.planned_epochs / 60
    yield f"time              about {epoch:.1f} s an epoch, {minutes:.1f} minutes in all, evaluation not counted"
