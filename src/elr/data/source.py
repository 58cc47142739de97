"""What every source hands over: splits with labels still as the user wrote them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elr.data.augment import CropTransform, ImageTransform, VectorTransform, measure
from elr.data.config import DataConfig
from elr.data.stream import Inputs, Transform


@dataclass(frozen=True, eq=False)
class Part:
    """One split as read."""

    inputs: Inputs
    labels: NDArray[Any]  # (n,) class names, or class numbers where the source knows its classes
    ids: NDArray[Any]  # (n,) int64 or str
    true_labels: NDArray[Any] | None = None


@dataclass(frozen=True, eq=False)
class Source:
    """A data set as read. The transform is made later, from the inputs that remain for training."""

    name: str
    train: Part
    transform: Callable[[Inputs], Transform]
    val: Part | None = None
    test: Part | None = None
    classes: tuple[str, ...] | None = None  # None: the labels found
    superclass: NDArray[np.int64] | None = None  # (C,)
    skipped: Mapping[str, str] = field(default_factory=dict)
    clean: bool = False  # all labels are known to be right: what a label file says otherwise is wrong
    clean_val: bool = False  # the validation part has labels that were checked by people
    test_only: bool = False  # not to be trained on; ``train`` is then the test part


Constants = tuple[tuple[float, ...], tuple[float, ...]]


def image_transform(
    config: DataConfig, constants: Constants, *, pad: int, flip: bool, reflect: bool = False
) -> ImageTransform:
    """The source's own augmentation, unless the configuration says otherwise."""
    if not config.augment:
        return ImageTransform(*constants)
    return ImageTransform(
        *constants,
        pad=pad if config.pad is None else config.pad,
        flip=not config.alternate and (flip if config.flip is None else config.flip),
        padding=config.padding or ("reflect" if reflect else "zeros"),
    )


def crop_transform(config: DataConfig, constants: Constants, size: int) -> CropTransform:
    """A window of ``size`` pixels out of a larger image, mirrored half of the time, unless told otherwise."""
    if not config.augment:
        return CropTransform(*constants, size=size, moves=False)
    flip = not config.alternate and (True if config.flip is None else config.flip)
    return CropTransform(*constants, pad=config.pad or 0, flip=flip, padding=config.padding or "zeros", size=size)


def fitted_transform(config: DataConfig, inputs: Inputs) -> Transform:
    """The transform for arrays of unknown origin: standardised by the training part, images shifted, never flipped."""
    if len(inputs.shape) == 1:
        return VectorTransform(*measure(inputs)) if config.standardize else VectorTransform()
    channels, height, width = inputs.shape
    unit = (0.0,) * channels, (1.0,) * channels
    constants = measure(inputs) if config.standardize else unit
    return image_transform(config, constants, pad=min(height, width) // 8, flip=False)
