"""Inputs of a split: in memory (or mapped from a file), or a selection of rows of others."""

import hashlib
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elr.data.stream import Inputs

BYTES, NUMBERS = "bytes", "numbers"  # what pixels are: bytes count as x/255, other numbers as they are


@runtime_checkable
class Steady(Protocol):
    """Inputs that are the same at every look."""

    @property
    def pixels(self) -> str:
        """``bytes`` or ``numbers``."""
        ...

    def fingerprint(self, rows: Tensor) -> dict[str, str]:
        """What tells these rows from others, under a name that says of what it is made."""
        ...


class TensorInputs:
    """Inputs kept as one tensor, (N, ...): uint8 for images, float32 for anything else."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return tuple(self.x.shape[1:])

    def __len__(self) -> int:
        return len(self.x)

    def fetch(self, rows: Tensor) -> Tensor:
        """Copy these rows."""
        return self.x.index_select(0, rows)

    @property
    def pixels(self) -> str:
        """``bytes`` or ``numbers``."""
        return BYTES if self.x.dtype == torch.uint8 else NUMBERS

    def fingerprint(self, rows: Tensor) -> dict[str, str]:
        """What tells these rows from others."""
        return {"inputs_sha256": hashlib.sha256(self.fetch(rows).numpy().tobytes()).hexdigest()}


class Rows:
    """Some rows of other inputs, in a given order, without copying them."""

    def __init__(self, inputs: Inputs, rows: Tensor) -> None:
        self.inputs: Inputs = inputs
        self.rows: Tensor = rows
        if isinstance(inputs, Rows):  # one level only, however often a split is split again
            self.inputs, self.rows = inputs.inputs, inputs.rows[rows]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return self.inputs.shape

    def __len__(self) -> int:
        return len(self.rows)

    def fetch(self, rows: Tensor) -> Tensor:
        """Read these rows of the selection."""
        return self.inputs.fetch(self.rows[rows])


def as_inputs(x: Any, name: str = "x") -> TensorInputs:
    """An array as inputs: (N, D), (N, H, W), (N, H, W, C) or (N, C, H, W), numbers of any type, all finite."""
    tensor = torch.as_tensor(x) if isinstance(x, Tensor) else torch.from_numpy(_numbers(x, name))
    tensor = tensor.detach().cpu()
    if tensor.ndim not in (2, 3, 4) or 0 in tensor.shape[1:]:
        raise ValueError(
            f"{name} must have shape (N, D), (N, H, W), (N, H, W, C) or (N, C, H, W), got {tuple(tensor.shape)}"
        )
    if tensor.ndim == 2:
        # A time stamp has no digits to lose before the mean is taken off, so what comes in 64 bits stays there.
        tensor = tensor.to(torch.float64 if tensor.itemsize > 4 else torch.float32)
        check_finite(tensor.to(torch.float32), name)
    elif tensor.dtype != torch.uint8:
        tensor = tensor.to(torch.float32)
        check_finite(tensor, name)
    return TensorInputs(channels_first(tensor).contiguous())


def _numbers(x: Any, name: str) -> NDArray[Any]:
    array = np.asarray(x)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers, got {array.dtype}")
    if array.dtype == np.uint8:
        # A copy only when torch would otherwise share memory that cannot be written.
        return array if array.flags.writeable else array.copy()
    wide = array.ndim == 2 and array.dtype.itemsize > 4
    with np.errstate(over="ignore"):  # what overflows becomes inf, which check_finite reports
        return array.astype(np.float64 if wide else np.float32)


def channels_first(x: Tensor) -> Tensor:
    """(N, H, W), (N, H, W, C) or (N, C, H, W) as (N, C, H, W); anything else as it is."""
    if x.ndim == 3:
        return x.unsqueeze(1)
    if x.ndim < 4:
        return x
    # Square images show which axis is which; for others the channels are the shorter of the two outer axes.
    first, middle, last = x.shape[1:]
    return x.permute(0, 3, 1, 2) if middle != last and (first == middle or last < first) else x


def check_finite(x: Tensor, name: str) -> None:
    """Refuse NaN and infinity with the first row that has one."""
    for start in range(0, len(x), 4096):
        fine = torch.isfinite(x[start : start + 4096]).flatten(1).all(1)
        if not fine.all():
            row = start + int((~fine).nonzero()[0])
            raise ValueError(f"{name} holds NaN, infinity or a value beyond float32 in row {row}")


def fingerprint(inputs: Inputs, most: int = 4096) -> dict[str, str]:
    """What tells some rows, evenly spread, from others; nothing of a dataset, which may draw at every look."""
    held = _held(inputs)
    rows = torch.linspace(0, len(inputs) - 1, min(most, len(inputs))).long()
    if not isinstance(held, Steady):
        return {}
    return held.fingerprint(inputs.rows[rows] if isinstance(inputs, Rows) else rows)


def pixels_of(inputs: Inputs) -> str | None:
    """What the pixels of images are; None for vectors, and for a dataset, which may give either."""
    held = _held(inputs)
    return held.pixels if len(inputs.shape) == 3 and isinstance(held, Steady) else None


def in_units_of(trained: str | None, inputs: Inputs) -> Inputs:
    """Images in the units of those that a model was trained on: the same picture as bytes and as floats is the same."""
    given = pixels_of(inputs)
    if trained is None or given is None or given == trained:
        return inputs
    if given == BYTES:
        raise ValueError(
            "images are bytes (uint8), but the model was trained on other numbers: give floats in the same units"
        )
    held = _held(inputs)
    assert isinstance(held, TensorInputs)
    low, high = (float(value) for value in held.x.aminmax()) if len(held) else (0.0, 0.0)
    if low < 0 or high > 255:
        raise ValueError(
            f"pixels lie between {low:g} and {high:g}, but the model was trained on bytes: give them from 0 to 255"
        )
    if high <= 1:  # the units that bytes are brought to
        return inputs
    scaled = TensorInputs(held.x / 255)
    return Rows(scaled, inputs.rows) if isinstance(inputs, Rows) else scaled


def _held(inputs: Inputs) -> Inputs:
    return inputs.inputs if isinstance(inputs, Rows) else inputs
