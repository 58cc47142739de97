"""Raw batch -> network input: random crop, flip, normalisation, as a few passes over the whole batch.

Crops and flips are draws of the example's own id, so an example looks the same whatever batch it is in.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from elr.data.stream import JITTER, Inputs, Transform, mirror
from elr.parts.draw import fold, normals, uniforms

CIFAR10 = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # the authors' constants
CIFAR100 = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLOTHING1M = (0.6959, 0.6537, 0.6371), (0.3113, 0.3192, 0.3214)  # the authors' constants

# DEVIATES from authors' code (SOP+): strong views are a few operations on a whole batch instead of AutoAugment, because
# its policy is searched for CIFAR, works on one PIL image at a time, and means nothing for other channels or vectors.
COLOUR = 0.4  # brightness, contrast and saturation change by up to this fraction
STRONG_JITTER = 3 * JITTER  # of vectors, in standard deviations


@dataclass(frozen=True)
class ImageTransform:
    """(B, C, H, W) -> float32: crop out of a padded image, flip, (x - mean) / std. uint8 counts as x / 255."""

    mean: tuple[float, ...]  # per channel
    std: tuple[float, ...]
    pad: int = 0
    flip: bool = False
    padding: Literal["zeros", "reflect"] = "zeros"

    def __call__(self, x: Tensor, ids: Tensor, key: int | None, *, strong: bool = False) -> Tensor:
        """Apply to raw x (B, C, H, W); without a key only normalise. Strong: see ``_distort``."""
        shift, scale = self._byte_constants if x.dtype == torch.uint8 else self._constants
        if key is not None and strong:
            x = self._distort(x, uniforms(key, ids, 8), shift)
        elif key is not None and (self.pad or self.flip):
            x = self._augment(x, uniforms(key, ids, 3), self.pad)
        # In place after the one conversion: memory traffic is what this costs.
        return x.to(torch.float32, copy=True).sub_(shift).mul_(scale)

    def _augment(self, x: Tensor, u: Tensor, width: int) -> Tensor:
        # u (B, 3 or more): vertical offset, horizontal offset, flip
        if width:
            offsets = (u[:, :2] * (2 * width + 1)).to(torch.int64)  # (B, 2), 0 .. 2 width
            x = crop(pad(x, width, self.padding), offsets, x.shape[-2:])
        elif self.flip:
            x = x.clone()
        if self.flip:
            mirror(x, u[:, 2] < 0.5)
        return x

    def _distort(self, x: Tensor, u: Tensor, mean: Tensor) -> Tensor:
        """Crop and flip, moved further; brightness, contrast, saturation; a square of half the side cut out.

        Stands in for AutoAugment with cutout: it asks for nothing but a batch of images, of any size and number of
        channels, and is strong where a source has no augmentation of its own.
        """
        # u (B, 8): as for _augment, then brightness, contrast, saturation, row and column of the cut
        is_bytes = x.dtype == torch.uint8
        side = min(x.shape[-2:])
        x = self._augment(x, u, min(self.pad + max(1, side // 16), max(self.pad, side - 1)))
        x = recolour(x.to(torch.float32, copy=True), u[:, 3:6])
        if is_bytes:
            x.clamp_(0.0, 255.0)
        return cut_out(x, u[:, 6:8], mean)

    @cached_property
    def _constants(self) -> tuple[Tensor, Tensor]:
        mean, std = torch.tensor(self.mean, dtype=torch.float64), torch.tensor(self.std, dtype=torch.float64)
        return mean.float().view(-1, 1, 1), std.reciprocal().float().view(-1, 1, 1)

    @cached_property
    def _byte_constants(self) -> tuple[Tensor, Tensor]:
        mean, std = torch.tensor(self.mean, dtype=torch.float64), torch.tensor(self.std, dtype=torch.float64)
        return (mean * 255).float().view(-1, 1, 1), (std * 255).reciprocal().float().view(-1, 1, 1)


@dataclass(frozen=True)
class CropTransform(ImageTransform):
    """(B, C, H, W) -> (B, C, size, size): a window of the image, anywhere in training and central otherwise."""

    size: int = 224
    moves: bool = True  # in training; otherwise the window is always central

    def __call__(self, x: Tensor, ids: Tensor, key: int | None, *, strong: bool = False) -> Tensor:
        """Apply to raw x (B, C, H, W) with H and W at least ``size``."""
        if min(x.shape[-2:]) < self.size:
            raise ValueError(f"cannot crop {self.size} pixels out of an image of {x.shape[-2]} x {x.shape[-1]}")
        if key is not None and strong:
            return super().__call__(x, ids, key, strong=True)
        if key is not None and self.moves:
            x = self._augment(x, uniforms(key, ids, 3), self.pad)
        else:
            x = self._centre(x)
        return super().__call__(x, ids, None)

    def _centre(self, x: Tensor) -> Tensor:
        top, left = ((length - self.size) // 2 for length in x.shape[-2:])
        return x[..., top : top + self.size, left : left + self.size]

    def _augment(self, x: Tensor, u: Tensor, width: int) -> Tensor:
        # u (B, 3 or more): vertical offset, horizontal offset, flip
        x = pad(x, width, self.padding) if width else x
        room = torch.tensor(x.shape[-2:]) - self.size + 1  # (2,) places for the corner
        x = crop(x, (u[:, :2] * room).to(torch.int64), (self.size, self.size))
        if self.flip:
            mirror(x, u[:, 2] < 0.5)
        return x


@dataclass(frozen=True)
class VectorTransform:
    """(B, ...) -> float32, (x - mean) / std per feature; without constants x as it is; strong views get jitter."""

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    views_by_jitter: ClassVar[bool] = True  # there is no crop or flip of a vector: several views would be equal

    def __call__(self, x: Tensor, ids: Tensor, key: int | None, *, strong: bool = False) -> Tensor:
        """Apply to raw x (B, ...); strong adds a jitter three times the one that tells two views apart."""
        if self._constants is None:
            x = x.to(torch.float32)
        else:
            mean, scale = self._constants
            x = ((x - mean) * scale).to(torch.float32)
        if key is None or not strong:
            return x
        # A key of its own: the draws must not be those of the ordinary jitter, which comes on top.
        noise = normals(fold(key, "strong"), ids, math.prod(x.shape[1:]))
        return x + STRONG_JITTER * noise.view_as(x)

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


def recolour(x: Tensor, u: Tensor) -> Tensor:
    """Change brightness, contrast and, of three channels, saturation of each image by its own u (B, 3), in place."""
    brightness, contrast, saturation = (1.0 + COLOUR * (2.0 * u - 1.0)).view(-1, 3, 1, 1, 1).unbind(1)  # (B, 1, 1, 1)
    x.mul_(brightness)
    mean = x.mean(dim=(1, 2, 3), keepdim=True)
    x.sub_(mean).mul_(contrast).add_(mean)
    if x.shape[1] == 3:
        grey = x.mean(dim=1, keepdim=True)
        x.sub_(grey).mul_(saturation).add_(grey)
    return x


def cut_out(x: Tensor, u: Tensor, fill: Tensor) -> Tensor:
    """A square of half the side, centred anywhere by u (B, 2), becomes ``fill`` (C, 1, 1): DeVries and Taylor 2017."""
    inside = []
    for axis, length in enumerate(x.shape[-2:]):
        size = max(1, length // 2)
        first = (u[:, axis] * length).to(torch.int64) - size // 2  # (B,) part of the square may lie beyond the border
        place = torch.arange(length) - first[:, None]  # (B, length)
        inside.append((place >= 0) & (place < size))
    rows, columns = inside
    return torch.where((rows[:, None, :, None] & columns[:, None, None, :]), fill, x)


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


_KINDS: dict[str, type[ImageTransform] | type[VectorTransform]] = {
    "image": ImageTransform,
    "crop": CropTransform,
    "vector": VectorTransform,
}


def describe(transform: Transform) -> dict[str, Any]:
    """A transform as plain data, to be saved beside a model."""
    if not isinstance(transform, ImageTransform | VectorTransform):
        raise ValueError(f"cannot describe a transform of type {type(transform).__name__}")
    kind = next(name for name, cls in _KINDS.items() if type(transform) is cls)
    return {"kind": kind, **asdict(transform)}


def from_description(description: Mapping[str, Any]) -> ImageTransform | VectorTransform:
    """The transform that ``describe`` gave."""
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in description.items()
    }
    kind = fields.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"unknown transform {kind!r}; expected one of {', '.join(_KINDS)}")
    return _KINDS[kind](**fields)
