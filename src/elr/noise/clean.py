"""What a noise process may look at."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Labels: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Clean:
    """Some examples before the noise. ``y`` and ``classes`` are always there; a process says what else it needs."""

    y: Labels  # (n,)
    classes: tuple[str, ...]
    superclass: Labels | None = None  # (C,) the group each class belongs to
    features: Callable[[Labels], NDArray[np.float32]] | None = None  # rows (b,) -> inputs (b, S)
    matrix: NDArray[np.float64] | None = None  # (C, C) rows sum to one
    key: int = 0  # for draws the training and validation parts share: one annotator labelled both


Noise: TypeAlias = Callable[[Clean, float, np.random.Generator], Labels]
