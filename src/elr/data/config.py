"""The [data] table of a configuration."""

from dataclasses import dataclass, field
from typing import Any, Literal


def _option(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class DataConfig:
    """Where examples come from and how they are prepared."""

    source: str = _option(
        "digits",
        "digits, cifar10, cifar100, clothing1m, mini_webvision, or a PATH: image folder (a folder a class), manifest "
        "(.csv, .tsv, .parquet), .npz, "
        "or a folder with the official files of one of these; ilsvrc12 is there to evaluate on",
    )
    root: str | None = _option(
        None,
        "folder that holds a named data set (default: $ELR_DATA), or where a manifest's relative paths start (default: "
        "its own)",
    )
    labels: str | None = _option(
        None,
        "CSV or .npz with an id and a label for every training example: replaces the training labels. An id is the "
        "path below a folder of images, the id or path of a manifest, the row number of arrays. Which of the new "
        "ones are wrong is told only where the truth is known (digits, CIFAR, y_true of an .npz)",
    )
    labels_column: str | None = _option(None, "column or array of data.labels to take (default: label)")
    val_fraction: float = _option(0.1, "part of the training examples kept for validation, stratified, in [0, 1)")
    subset: int | None = _option(
        None, "train on this many examples only, stratified; validation and test stay whole (default: all)"
    )
    seed: int | None = _option(None, "seed of validation split and subset (default: the run's seed)")
    balanced_batches: int | None = _option(
        None,
        "batches an epoch, their given labels in equal parts and their rows drawn anew each epoch, for methods that "
        "visit all data (default: every example once)",
    )
    augment: bool = _option(True, "random crops (and flips) of training images")
    pad: int | None = _option(
        None, "pixels a random crop may move (default: 1 for digits, 4 for CIFAR, an eighth of the side otherwise)"
    )
    padding: Literal["zeros", "reflect"] | None = _option(
        None, "what a crop shows beyond the border (default: reflect for image files, zeros otherwise)"
    )
    flip: bool | None = _option(
        None, "mirror half of the training images (default: true for CIFAR and image files, false otherwise)"
    )
    alternate: bool | None = _option(
        None,
        "mirror every training image in every other epoch, half of them first, instead of at random: of two epochs, "
        "both sides are seen (default: false)",
    )
    sizes: tuple[int, ...] | None = _option(
        None,
        "sides in pixels to which training images are reduced, one after the other in equal parts of training: "
        "24,28,32 costs a quarter less (default: as they are)",
    )
    standardize: bool = _option(
        True,
        "shift and scale arrays by mean and deviation of the training part (image files: ImageNet's, CIFAR: its own)",
    )
    image_size: int | None = _option(
        None,
        "pixels a side to which image files are resized and cropped (default: the median shorter side, at most 224; "
        "256 for clothing1m and mini_webvision, of which the network sees 224 and 227)",
    )
    on_bad_file: Literal["stop", "skip"] = _option(
        "stop", "a file that cannot be decoded: stop before training, or skip and list it"
    )
    cache: Literal["none", "ram", "disk"] = _option(
        "none", "keep decoded image files in memory or on disk instead of decoding them every epoch"
    )
    cache_dir: str | None = _option(None, "folder for data.cache disk")
    path_column: str = _option("path", "manifest column with the image file")
    label_column: str = _option("label", "manifest column with the label")
    split_column: str | None = _option(None, "manifest column with train, val or test (default: split, if there)")
    id_column: str | None = _option(None, "manifest column with a unique id (default: id, if there; else the path)")

    def __post_init__(self) -> None:
        if not self.source:
            raise ValueError("data.source is empty; give the name of a data set or a path")
        if not 0 <= self.val_fraction < 1:
            raise ValueError(f"data.val_fraction must lie in [0, 1), got {self.val_fraction}")
        for name, least in (("subset", 2), ("pad", 0), ("image_size", 1), ("balanced_batches", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"data.{name} must be at least {least}, got {value}")
        if self.sizes is not None and (not self.sizes or min(self.sizes) < 1):
            raise ValueError(f"data.sizes must be numbers of pixels, got {self.sizes}")
        if self.alternate and self.flip is not None:
            raise ValueError("data.alternate decides when an image is mirrored; leave data.flip out")
        for name, choices in (
            ("on_bad_file", ("stop", "skip")),
            ("cache", ("none", "ram", "disk")),
            ("padding", (None, "zeros", "reflect")),
        ):
            if getattr(self, name) not in choices:
                named = ", ".join(choice for choice in choices if choice)
                raise ValueError(f"data.{name} must be one of {named}, got {getattr(self, name)!r}")
        if (self.cache == "disk") != (self.cache_dir is not None):
            raise ValueError("data.cache 'disk' and data.cache_dir belong together; give both or neither")
        if self.labels_column is not None and self.labels is None:
            raise ValueError("data.labels_column needs data.labels")
