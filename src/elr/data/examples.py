"""Plain records of loaded data. True labels exist here and nowhere else."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elr.data.inputs import Rows
from elr.data.stream import Inputs, Transform
from elr.noise import NoiseManifest


@dataclass(frozen=True, eq=False)
class Examples:
    """One split: inputs, the labels given, ids that survive splits and filters, and true labels if they are known."""

    inputs: Inputs
    y: NDArray[np.int64]  # (n,) class numbers
    ids: NDArray[Any]  # (n,) int64 or str
    y_true: NDArray[np.int64] | None = None  # (n,)

    def __post_init__(self) -> None:
        lengths = {"inputs": len(self.inputs), "labels": len(self.y), "ids": len(self.ids)}
        if self.y_true is not None:
            lengths["true labels"] = len(self.y_true)
        if len(set(lengths.values())) > 1:
            raise ValueError("lengths differ: " + ", ".join(f"{length:,} {name}" for name, length in lengths.items()))

    def __len__(self) -> int:
        return len(self.y)

    @cached_property  # asked for with every evaluation, and a million names take seconds to hash
    def keys(self) -> Tensor:
        """(n,) int64: the ids themselves if they are integers, else a hash of each. Augmentation draws from these."""
        if self.ids.dtype.kind == "i":
            return torch.from_numpy(self.ids.astype(np.int64))
        digests = b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in self.ids.tolist())
        return torch.from_numpy(np.frombuffer(digests, dtype="<i8").astype(np.int64))

    def take(self, rows: NDArray[np.int64]) -> "Examples":
        """These rows, in this order; inputs are not copied."""
        y_true = None if self.y_true is None else self.y_true[rows]
        return Examples(Rows(self.inputs, torch.from_numpy(rows)), self.y[rows], self.ids[rows], y_true)

    def relabel(self, y: NDArray[np.int64]) -> "Examples":
        """Other labels for the same examples; the labels so far become the true ones unless those were known."""
        return replace(self, y=y, y_true=self.y if self.y_true is None else self.y_true)


@dataclass(frozen=True, eq=False)
class Data:
    """A loaded data set: what a run trains, validates and tests on."""

    name: str
    train: Examples
    val: Examples | None
    test: Examples | None
    classes: tuple[str, ...]
    transform: Transform
    noise: NoiseManifest | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)  # file left out -> why
    clean_val: bool = False  # labels of the validation part were checked by people, not drawn with the training labels
    balanced_batches: int | None = None  # an epoch is so many class-balanced batches; None: every example once
    alternate: bool = False  # mirror every training image in every other epoch
    numbered: bool = False  # labels came as whole numbers, and classes have no other names
    sizes: tuple[int, ...] = ()  # sides of training images, in equal parts of a stage; empty: as they are

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.classes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one network input: (C, H, W) or (D,)."""
        return tuple(self.transform(self.train.inputs.fetch(torch.tensor([0])), torch.tensor([0]), None).shape[1:])
