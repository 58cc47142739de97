"""Training data as a method sees it: labels, and batches that are a pure function of (stream, clock).

True labels do not exist here; the evaluator has them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elr.data.split import balanced
from elr.parts.clock import Clock
from elr.parts.draw import fold, generator, normals, uniforms

JITTER = 0.1  # standard deviations: what tells two views of a vector apart


@dataclass(slots=True)
class Batch:
    """What a method may see of some examples."""

    index: Tensor  # (B,) row of the training set: the key into per-example state
    x: Tensor  # (B, ...) augmented, normalised input
    y: Tensor  # (B,) noisy label
    views: tuple[Tensor, ...] = ()  # further augmentations of the same rows
    beside: "Batch | None" = None  # a batch of the stream beside this one; None without one, or if it has no rows


class Stream(NamedTuple):
    """Which examples a pass visits and how: data, not a live iterator, so that a pass can be repeated or cut."""

    indices: Tensor | None = None  # None: every training example
    batch_size: int | None = None  # None: the run's batch size
    views: int = 1
    augment: bool = True
    shuffle: bool = True
    strong: bool = False  # the last view is augmented strongly
    beside: "Stream | None" = None  # drawn in step with this one and started anew when it ends: unlabelled rows, say


class Inputs(Protocol):
    """Inputs of one split, wherever they are kept."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example: (C, H, W) or (D,)."""
        ...

    def __len__(self) -> int: ...

    def fetch(self, rows: Tensor) -> Tensor:
        """Raw inputs of these rows, (B, *shape): uint8 for images, float32 for anything else."""
        ...


class Transform(Protocol):
    """Raw batch -> network input. With a key it augments, each example by draws of its own; without, it normalises."""

    def __call__(self, x: Tensor, ids: Tensor, key: int | None, *, strong: bool = False) -> Tensor:
        """Apply to raw x (B, ...), ids (B,) int64."""
        ...


class TrainData:
    """The training split: inputs, noisy labels, and the transform."""

    def __init__(
        self,
        inputs: Inputs,
        y: Tensor,
        num_classes: int,
        transform: Transform,
        *,
        ids: Tensor,
        batch_size: int,
        device: torch.device,
        channels_last: bool = False,
        bfloat16: bool = False,
        balanced_batches: int | None = None,
        alternate: bool = False,
        sizes: tuple[int, ...] = (),
    ) -> None:
        if not len(inputs) == len(y) == len(ids):
            raise ValueError(f"lengths differ: {len(inputs)} inputs, {len(y)} labels, {len(ids)} ids")
        self.inputs = inputs
        self.y = y.to(device)
        self.num_classes = num_classes
        self.transform = transform
        self.ids = ids
        self.batch_size = batch_size
        self.device = device
        self.channels_last = channels_last and len(inputs.shape) == 3
        self.bfloat16 = bfloat16  # the run's precision, for whoever sends all of it through a network
        self.balanced_batches = balanced_batches  # None: a pass over all data visits every example once
        self.alternate = alternate  # mirror every image in every other epoch
        self.sizes = sizes  # sides of training images, in equal parts of a stage; empty: as they are

    def __len__(self) -> int:
        return len(self.y)

    def num_batches(self, stream: Stream) -> int:
        """Batches in one pass over the stream; the last one may be smaller, no example is left out."""
        if (drawn := self._drawn(stream)) is not None:
            return drawn
        rows = len(self) if stream.indices is None else len(stream.indices)
        return len(batch_sizes(rows, stream.batch_size or self.batch_size))

    def batches(self, stream: Stream, clock: Clock) -> Iterator[Batch]:
        """The batches of one pass. Depends on seed, stage, epoch, pass: the same call gives the same batches again."""
        where = (clock.stage, clock.epoch, clock.turn)
        trained = stream.augment and stream.shuffle  # what is only looked at, in order, is looked at in full size
        side = self.sizes[len(self.sizes) * clock.epoch // clock.epochs] if self.sizes and trained else None
        beside = self._endless(stream.beside, clock.seed, where, side) if stream.beside is not None else None
        for batch in self._lap(stream, clock.seed, where, side):
            batch.beside = next(beside, None) if beside is not None else None
            yield batch

    def _lap(self, stream: Stream, seed: int, where: tuple[int, ...], side: int | None) -> Iterator[Batch]:
        """Once over the rows of a stream."""
        order = torch.from_numpy(self._order(stream, seed, where))
        sizes = batch_sizes(len(order), stream.batch_size or self.batch_size)
        for b, index in enumerate(torch.split(order, sizes)):
            # A dataset of the user's may draw its own augmentation: the same here after a restart.
            torch.default_generator.manual_seed(fold(seed, "fetch", *where, b))
            raw = self.inputs.fetch(index)
            views = (self._view(raw, index, stream, view, seed, where) for view in range(stream.views))
            first, *others = views if side is None else (resized(x, side) for x in views)
            index = index.to(self.device)
            yield Batch(index, first, self.y[index], tuple(others))

    def _order(self, stream: Stream, seed: int, where: tuple[int, ...]) -> NDArray[np.int64]:
        """The rows of a lap in the order they come."""
        if (drawn := self._drawn(stream)) is not None:
            # PAPER Section G.3, Clothing1M: an epoch is 2,000 batches with balanced noisy labels.
            # DEVIATES from authors' code: drawn anew each epoch, as the paper says; theirs is one subset of 3,000
            # batches for all epochs, so that most of the million images are never seen.
            count = drawn * (stream.batch_size or self.batch_size)
            return balanced(self.y.cpu().numpy(), count, generator(fold(seed, "balanced", *where)))
        rows = np.arange(len(self)) if stream.indices is None else stream.indices.cpu().numpy()
        return generator(fold(seed, "shuffle", *where)).permutation(rows) if stream.shuffle else rows

    def _drawn(self, stream: Stream) -> int | None:
        """Batches of a class-balanced lap; None for rows that a method chose and for a sweep in order."""
        return self.balanced_batches if stream.indices is None and stream.shuffle else None

    def _endless(self, stream: Stream, seed: int, where: tuple[int, ...], side: int | None) -> Iterator[Batch]:
        """Lap after lap, each in an order of its own; nothing if the stream has no rows."""
        lap = 0
        while self.num_batches(stream):
            lap += 1  # the lap is a fourth coordinate, so no lap shares a draw with the stream it runs beside
            yield from self._lap(stream, seed, (*where, lap), side)

    def _view(self, raw: Tensor, index: Tensor, stream: Stream, view: int, seed: int, where: tuple[int, ...]) -> Tensor:
        ids = self.ids[index]
        if not stream.augment:
            return place(self.transform(raw, ids, None), self.device, self.channels_last)
        key = fold(seed, "augment", *where, view)
        if stream.strong and view == stream.views - 1:
            x = self.transform(raw, ids, key, strong=True)
        else:
            x = self.transform(raw, ids, key)
        if stream.views > 1 and getattr(self.transform, "views_by_jitter", x.dim() == 2):
            x = x + JITTER * normals(key, ids, math.prod(x.shape[1:])).view_as(x)
        if self.alternate:
            mirror(x, (uniforms(fold(seed, "mirror"), ids, 1)[:, 0] < 0.5) ^ bool(where[1] % 2))
        return place(x, self.device, self.channels_last)


def batch_sizes(rows: int, size: int) -> list[int]:
    """Sizes of the batches of a pass. A single example left over joins the batch before it: batch norm needs two."""
    whole, rest = divmod(rows, size)
    if rest == 1 and whole:
        return [size] * (whole - 1) + [size + 1]
    return [size] * whole + [rest] * (rest > 0)


def mirror(x: Tensor, rows: Tensor) -> None:
    """Flip these images left to right, in place."""
    picked = rows.numpy()
    array = x.numpy()
    array[picked] = torch.from_numpy(array[picked]).flip(-1).numpy()


def resized(x: Tensor, side: int) -> Tensor:
    """Images (B, C, H, W) at another size."""
    if x.shape[-1] == side:
        return x
    return torch.nn.functional.interpolate(x, (side, side), mode="bilinear", antialias=True)


def place(x: Tensor, device: torch.device, channels_last: bool) -> Tensor:
    """Move network input to where the network is, in the memory layout it wants."""
    if channels_last:
        return x.to(device, memory_format=torch.channels_last)
    return x.to(device)
