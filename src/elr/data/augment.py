"""Raw batch -> network input: random crop, flip, normalisation, as a few passes over the whole batch.

Crops and flips are draws of the example's own id, so an example looks the same whatever batch it is in.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from elr.data.stream import Inputs, Transform
from elr.parts.draw import uniforms

CIFAR10 = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # the authors' constants
CIFAR100 = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ImageTransform:
    """(B, C, H, W) -> float32: crop out of a padded image, flip, (x - mean) / std. uint8 counts as x / 255."""

    mean: tuple[float, ...]  # per channel
    std: tuple[float, ...]
    pad: int = 0
    flip: bool = False
    padding: Literal["zeros", "reflect"] = "zeros"

    def __call__(self, x: Tensor, ids: Tensor, key: int | None) -> Tensor:
        """Apply to raw x (B, C, H, W); without a key only normalise."""
        if key is not None and (self.pad or self.flip):
            x = self._augment(x, uniforms(key, ids, 3))
        # In place after the one conversion: memory traffic is what this costs.
        shift, scale = self._byte_constants if x.dtype == torch.uint8 else self._constants
        return x.to(torch.float32, copy=True).sub_(shift).mul_(scale)

    def _augment(self, x: Tensor, u: Tensor) -> Tensor:
        # u (B, 3): vertical offset, horizontal offset, flip
        if self.pad:
            offsets = (u[:, :2] * (2 * self.pad + 1)).to(torch.int64)  # (B, 2), 0 .. 2 pad
            x = crop(pad(x, self.pad, self.padding), offsets, x.shape[-2:])
        elif self.flip:
            x = x.clone()
        if self.flip:
            mirror(x, u[:, 2] < 0.5)
        return x

    @cached_property
    def _constants(self) -> tuple[Tensor, Tensor]:
        mean, std = torch.tensor(self.mean, dtype=torch.float64), torch.tensor(self.std, dtype=torch.float64)
        return mean.float().view(-1, 1, 1), std.reciprocal().float().view(-1, 1, 1)

    @cached_property
    def _byte_constants(self) -> tuple[Tensor, Tensor]:
        mean, std = torch.tensor(self.mean, dtype=torch.float64), torch.tensor(self.std, dtype=torch.float64)
        return (mean * 255).float().view(-1, 1, 1), (std * 255).reciprocal().float().view(-1, 1, 1)


@dataclass(frozen=True)
class VectorTransform:
    """(B, ...) -> float32, (x - mean) / std per feature; without constants x as it is. Vectors are not augmented."""

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __call__(self, x: Tensor, ids: Tensor, key: int | None) -> Tensor:
        """Apply to raw x (B, D)."""
        if self._constants is None:
            return x.to(torch.float32)
        mean, scale = self._constants
        return ((x - mean) * scale).to(torch.float32)

    @cached_property
    def _constants(self) -> tuple[Tensor, Tensor] | None:
        if self.mean is None or self.std is None:
            return None
        mean, std = torch.tensor(self.mean, dtype=torch.float64), torch.tensor(self.std, dtype=torch.float64)
        return mean, std.reciprocal()


def pad(x: Tensor, width: int, padding: str) -> Tensor:
    """(B, C, H, W) with a border of ``width`` pixels: zeros, or the image mirrored at its edge."""
    batch, channels, height, breadth = x.shape
    if padding == "reflect" and width >= min(height, breadth):
        raise ValueError(f"cannot reflect {width} pixels of an image of {height} x {breadth}; lower data.pad")
    out = x.new_zeros((batch, channels, height + 2 * width, breadth + 2 * width))
    out[..., width : width + height, width : width + breadth] = x
    if padding == "reflect":  # torch has no reflection for bytes
        middle = out[..., width : width + height, :]
        middle[..., :width] = x[..., 1 : width + 1].flip(-1)
        middle[..., width + breadth :] = x[..., -width - 1 : -1].flip(-1)
        out[..., :width, :] = middle[..., 1 : width + 1, :].flip(-2)
        out[..., width + height :, :] = middle[..., -width - 1 : -1, :].flip(-2)
    return out


def crop(x: Tensor, offsets: Tensor, size: tuple[int, ...]) -> Tensor:
    """One window (C, *size) of each image, its corner at offsets (B, 2)."""
    # All windows as a strided view (B, rows, columns, C, *size), of which one index picks a window each. NumPy copies
    # whole pixel rows here, five times as fast as torch's element-wise indexing or gather.
    batch, channels, height, width = x.shape
    of_batch, of_channel, of_row, of_column = (stride * x.element_size() for stride in x.stride())
    windows = np.lib.stride_tricks.as_strided(
        x.numpy(),
        (batch, height - size[0] + 1, width - size[1] + 1, channels, *size),
        (of_batch, of_row, of_column, of_channel, of_row, of_column),
        writeable=False,
    )
    rows, columns = offsets.numpy().T
    return torch.from_numpy(windows[np.arange(batch), rows, columns])


def mirror(x: Tensor, rows: Tensor) -> None:
    """Flip these images left to right, in place."""
    picked = rows.numpy()
    array = x.numpy()
    array[picked] = torch.from_numpy(array[picked]).flip(-1).numpy()


def measure(inputs: Inputs) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel (bytes as x / 255) or feature; a constant one gets deviation 1."""
    count, mean, square = 0.0, torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    chunk = max(1, (1 << 22) // max(1, math.prod(inputs.shape)))  # 32 MiB of float64
    for start in range(0, len(inputs), chunk):
        rows = torch.arange(start, min(start + chunk, len(inputs)))
        x = inputs.fetch(rows)
        x = x.double() / 255 if x.dtype == torch.uint8 else x.double()
        x = x.reshape(len(x), x.shape[1], -1)  # (b, C, H W), or (b, D, 1)
        # Chan et al. 1979: merged means and squared deviations, no difference of large sums.
        size = float(x.numel() // x.shape[1])
        here = x.mean((0, 2))
        gap, total = here - mean, count + size
        square = square + ((x - here[:, None]) ** 2).sum((0, 2)) + gap**2 * (count * size / total)
        mean, count = mean + gap * (size / total), total
    std = (square / count).sqrt()
    std = torch.where(std > 1e-12 * mean.abs(), std, torch.ones_like(std))
    return tuple(mean.tolist()), tuple(std.tolist())


def describe(transform: Transform) -> dict[str, Any]:
    """A transform as plain data, to be saved beside a model."""
    if not isinstance(transform, ImageTransform | VectorTransform):
        raise ValueError(f"cannot describe a transform of type {type(transform).__name__}")
    kind = "image" if isinstance(transform, ImageTransform) else "vector"
    return {"kind": kind, **asdict(transform)}


def from_description(description: Mapping[str, Any]) -> ImageTransform | VectorTransform:
    """The transform that ``describe`` gave."""
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in description.items()
    }
    kind = fields.pop("kind", None)
    if kind not in ("image", "vector"):
        raise ValueError(f"unknown transform {kind!r}; expected image or vector")
    return ImageTransform(**fields) if kind == "image" else VectorTransform(**fields)
