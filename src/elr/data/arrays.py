"""Arrays in memory, and any map-style torch dataset that yields (x, y)."""

from collections.abc import Sized
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elr.data.augment import VectorTransform
from elr.data.config import DataConfig
from elr.data.inputs import as_inputs, channels_first, check_finite
from elr.data.source import Part, Source, fitted_transform


def read_arrays(
    x: Any,
    y: Any,
    *,
    config: DataConfig,
    x_test: Any = None,
    y_test: Any = None,
    y_true: Any = None,
    ids: Any = None,
    classes: tuple[str, ...] | None = None,
    name: str = "arrays",
) -> Source:
    """Arrays as a source; ``classes`` gives names to integer labels."""
    if (x_test is None) != (y_test is None):
        raise ValueError(f"{name}: x_test and y_test belong together; give both or neither")
    inputs = as_inputs(x, f"{name}: x")
    train = Part(inputs, _column(y), _ids(ids, len(inputs), name), None if y_true is None else _column(y_true))
    test = None
    if x_test is not None:
        test_inputs = as_inputs(x_test, f"{name}: x_test")
        if test_inputs.shape != inputs.shape:
            raise ValueError(f"{name}: examples of x have shape {inputs.shape}, of x_test {test_inputs.shape}")
        test = Part(test_inputs, _column(y_test), np.arange(len(test_inputs)))
    return Source(name, train, partial(fitted_transform, config), test=test, classes=classes)


def _column(labels: Any) -> NDArray[Any]:
    return labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)


def _ids(ids: Any, count: int, name: str) -> NDArray[Any]:
    if ids is None:
        return np.arange(count)
    column = _column(ids)
    if column.ndim != 1 or column.dtype.kind not in "iuU":
        raise ValueError(f"{name}: ids must be one integer or one text per example, got {column.dtype} {column.shape}")
    values, counts = np.unique(column, return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"{name}: id {values[counts > 1][0]!s} occurs more than once")
    return column if column.dtype.kind == "U" else column.astype(np.int64)


def read_dataset(
    dataset: Any, *, config: DataConfig, test: Any = None, classes: tuple[str, ...] | None = None
) -> Source:
    """Map-style datasets as a source. Each is read once here: for the labels, and to find what cannot be read."""
    train = _dataset_part(dataset, "dataset")
    held_out = None if test is None else _dataset_part(test, "test dataset")
    bytes_ = train.inputs.fetch(torch.tensor([0])).dtype == torch.uint8
    # Numbers that are not bytes were prepared by the dataset's own transforms.
    transform = partial(fitted_transform, config) if bytes_ else lambda _: VectorTransform()
    return Source("dataset", train, transform, test=held_out, classes=classes)


class DatasetInputs:
    """Inputs read from a dataset when they are asked for, so that its own augmentation stays random."""

    def __init__(self, dataset: Any, shape: tuple[int, ...]) -> None:
        self.dataset = dataset
        self._shape = shape

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return self._shape

    def __len__(self) -> int:
        return len(self.dataset)

    def fetch(self, rows: Tensor) -> Tensor:
        """Read these items."""
        return torch.stack([as_example(self.dataset[row][0]) for row in rows.tolist()])


def _dataset_part(dataset: Any, name: str) -> Part:
    if not (isinstance(dataset, Sized) and hasattr(dataset, "__getitem__")):
        raise ValueError(
            f"the {name} must have a length and items; an iterable dataset has no index to remember labels by"
        )
    if len(dataset) == 0:
        raise ValueError(f"the {name} is empty")
    labels: list[Any] = []
    first: Tensor | None = None
    for row in range(len(dataset)):
        item = dataset[row]
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise ValueError(f"item {row} of the {name} must be (x, y), got {type(item).__name__}")
        x = as_example(item[0])
        first = x if first is None else first
        if x.shape != first.shape or x.dtype != first.dtype:
            kinds = f"{tuple(x.shape)} {x.dtype}, the first {tuple(first.shape)} {first.dtype}"
            raise ValueError(f"item {row} of the {name} is {kinds}; all must be alike")
        if x.dtype != torch.uint8:
            check_finite(x[None], f"item {row} of the {name}:")
        labels.append(item[1].item() if isinstance(item[1], Tensor | np.generic) else item[1])
    assert first is not None
    return Part(DatasetInputs(dataset, tuple(first.shape)), np.asarray(labels), np.arange(len(labels)))


def as_example(x: Any) -> Tensor:
    """One item of a dataset: a PIL image, array or tensor as uint8 (C, H, W) or float32."""
    tensor = x if isinstance(x, Tensor) else torch.from_numpy(np.array(x))
    if tensor.ndim == 0:
        raise ValueError("an example must be an array of numbers, got a single value")
    if tensor.dtype != torch.uint8 or tensor.ndim == 1:
        tensor = tensor.to(torch.float32)
    if tensor.ndim in (2, 3):
        tensor = channels_first(tensor[None])[0]
    return tensor.contiguous()
