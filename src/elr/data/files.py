"""Splits of labelled image files -> a source: what the folder and the manifest have in common."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from elr.data.augment import IMAGENET
from elr.data.config import DataConfig
from elr.data.images import open_images
from elr.data.inputs import Rows
from elr.data.source import Constants, Part, Source, crop_transform, image_transform

SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val", "test": "test"}


class File(NamedTuple):
    """One labelled image file."""

    path: Path
    label: str
    split: str  # train, val or test
    id: str


class Frame(NamedTuple):
    """How a published data set shows its images: resized to ``side``, of which the network sees ``size``."""

    side: int
    size: int
    constants: Constants


def read_files(name: str, files: Sequence[File], config: DataConfig, frame: Frame | None = None) -> Source:
    """Check every file, then hand over the splits. One store serves all of them."""
    if frame is not None:
        config = replace(config, image_size=config.image_size or frame.side)
    inputs, bad = open_images([file.path for file in files], config)
    parts: dict[str, Part] = {}
    for split in ("train", "val", "test"):
        rows = [row for row, file in enumerate(files) if file.split == split and row not in bad]
        if not rows and not any(file.split == split for file in files) and split != "train":
            continue
        labels, ids = ([getattr(files[row], field) for row in rows] for field in ("label", "id"))
        chosen = Rows(inputs, torch.tensor(rows, dtype=torch.int64))
        parts[split] = Part(chosen, np.array(labels, dtype=np.str_), np.array(ids, dtype=np.str_))
    if frame is None:
        transform = image_transform(config, IMAGENET, pad=inputs.shape[-1] // 8, flip=True, reflect=True)
    else:
        size = inputs.shape[-1] * frame.size // frame.side  # the same share of an image of another size
        transform = crop_transform(config, frame.constants, size)
    return Source(
        name,
        parts["train"],
        lambda _: transform,
        val=parts.get("val"),
        test=parts.get("test"),
        skipped={str(files[row].path): reason for row, reason in bad.items()},
    )
