"""A network and data small enough for loops over examples, and jobs made of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elr.data import Data, DataConfig, from_arrays
from elr.engine.evaluate import EvaluateConfig
from elr.engine.optim import OptimConfig
from elr.engine.schedule import Cosine
from elr.engine.train import Job, RuntimeConfig
from elr.methods.base import Method

FEATURES = 6


class TinyNet(nn.Module):
    """A layer, batch normalisation, a smooth activation, dropout if asked for, a layer."""

    def __init__(self, num_classes: int, *, dropout: float = 0.0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, num_classes)
        ).to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def blobs(n: int, num_classes: int, seed: int = 0, *, wrong: float = 0.3) -> tuple[Any, Any, Any]:
    """Gaussian clouds: x (n, FEATURES) float32, noisy labels, true labels. Every class occurs."""
    rng = np.random.default_rng(seed)
    y_true = rng.permutation(np.arange(n) % num_classes)
    centres = 2.0 * np.random.default_rng(99).standard_normal((num_classes, FEATURES))
    x = (centres[y_true] + rng.standard_normal((n, FEATURES))).astype(np.float32)
    y = np.where(rng.random(n) < wrong, rng.integers(num_classes, size=n), y_true)
    y[:num_classes] = np.arange(num_classes)
    return x, y, y_true


def tiny_data(n: int = 75, num_classes: int = 3, *, seed: int = 0, val_fraction: float = 0.1) -> Data:
    """Training, validation and test parts of a few blobs."""
    x, y, y_true = blobs(n, num_classes, seed)
    x_test, _, y_test = blobs(50, num_classes, seed + 1)
    config = DataConfig(val_fraction=val_fraction)
    return from_arrays(x, y, x_test=x_test, y_test=y_test, y_true=y_true, config=config)


def tiny_job(
    method: Method,
    *,
    data: Data | None = None,
    make_model: Callable[[], nn.Module] | None = None,
    seed: int = 0,
    epochs: int = 2,
    batch_size: int = 16,
    out: Path | None = None,
    **more: Any,
) -> Job:
    """A short run with dropout. The learning rate is in the middle of a cycle at the second epoch and the third."""
    data = data or tiny_data()
    return Job(
        method,
        make_model or (lambda: TinyNet(data.num_classes, dropout=0.1)),
        data,
        epochs,
        OptimConfig(lr=0.1, weight_decay=1e-3, batch_size=batch_size),
        Cosine(period=3, min_lr=0.01),
        evaluate=EvaluateConfig(),
        runtime=RuntimeConfig(device="cpu"),
        seed=seed,
        out=out,
        **more,
    )


class Stop:
    """Raises KeyboardInterrupt after an epoch."""

    def __init__(self, epoch):
        self.at = epoch

    def batch(self, epoch, done, total):
        pass

    def epoch(self, record, seconds):
        if record["epoch"] == self.at:
            raise KeyboardInterrupt
