"""CIFAR-10 and CIFAR-100 from their official files, in the binary or the python layout."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from elr.data import augment
from elr.data.config import DataConfig
from elr.data.inputs import TensorInputs
from elr.data.pickled import read_pickle
from elr.data.source import Constants, Part, Source, image_transform

_PIXELS = 3 * 32 * 32


class _Layout(NamedTuple):
    """Which files a data set consists of, in the official order."""

    folder: str
    train: tuple[str, ...]
    test: str
    names: str  # file with the class names


class _Kind(NamedTuple):
    title: str
    binary: _Layout
    python: _Layout
    label: str  # key of the labels in the python layout
    label_bytes: int  # bytes before the pixels in the binary layout; the last one is the class
    constants: Constants


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
KINDS = {
    "cifar10": _Kind(
        "CIFAR-10",
        _Layout(
            "cifar-10-batches-bin", tuple(f"{name}.bin" for name in _BATCHES), "test_batch.bin", "batches.meta.txt"
        ),
        _Layout("cifar-10-batches-py", _BATCHES, "test_batch", "batches.meta"),
        "labels",
        1,
        augment.CIFAR10,
    ),
    "cifar100": _Kind(
        "CIFAR-100",
        _Layout("cifar-100-binary", ("train.bin",), "test.bin", "fine_label_names.txt"),
        _Layout("cifar-100-python", ("train",), "test", "meta"),
        "fine_labels",
        2,
        augment.CIFAR100,
    ),
}


class _Batch(NamedTuple):
    x: NDArray[np.uint8]  # (n, 3, 32, 32)
    y: NDArray[np.int64]  # (n,)
    coarse: NDArray[np.int64] | None  # (n,) superclass; CIFAR-100 only


def read_cifar(name: str, config: DataConfig) -> Source:
    """CIFAR by name, found below data.root or $ELR_DATA."""
    kind = KINDS[name]
    root = config.root or os.environ.get("ELR_DATA")
    folder = None if root is None else find_cifar(Path(root), name)
    if folder is not None:
        return read_cifar_folder(folder, name, config)
    place = "set --data.root DIR or $ELR_DATA to the folder that holds" if root is None else f"put into {root}"
    raise FileNotFoundError(
        f"{kind.title} not found: {place} {kind.binary.folder} or {kind.python.folder} "
        "(from https://www.cs.toronto.edu/~kriz/cifar.html, unpacked)"
    )


def find_cifar(root: Path, name: str) -> Path | None:
    """The folder with its files: this one, or one of the names they unpack to below it."""
    folders = [root, *(root / layout.folder for layout in (KINDS[name].binary, KINDS[name].python))]
    return next((folder for folder in folders if holds(folder, name)), None)


def holds(folder: Path, name: str) -> bool:
    """Whether a folder has the first training file and the class names of this data set."""
    layouts = (KINDS[name].binary, KINDS[name].python)
    return any((folder / layout.train[0]).is_file() and (folder / layout.names).is_file() for layout in layouts)


def read_cifar_folder(folder: Path, name: str, config: DataConfig) -> Source:
    """CIFAR from the folder with its files. Ids are row numbers in the official order."""
    kind = KINDS[name]
    binary = (folder / kind.binary.train[0]).is_file()
    layout = kind.binary if binary else kind.python
    classes = _class_names(folder / layout.names, kind, binary)
    parts: list[Part] = []
    superclass = None
    for files in (layout.train, (layout.test,)):
        batch = _join([_read(folder / file, kind, binary, len(classes)) for file in files])
        parts.append(Part(TensorInputs(torch.from_numpy(batch.x)), batch.y, np.arange(len(batch.y))))
        if superclass is None and batch.coarse is not None:
            superclass = _superclass(batch.y, batch.coarse, len(classes), folder)
    transform = image_transform(config, kind.constants, pad=4, flip=True)
    return Source(
        name, parts[0], lambda _: transform, test=parts[1], classes=classes, superclass=superclass, clean=True
    )


def _class_names(path: Path, kind: _Kind, binary: bool) -> tuple[str, ...]:
    if binary:
        names = path.read_text().split()
    else:
        names = read_pickle(path).get(f"{kind.label.removesuffix('s')}_names", [])
    if not names:
        raise ValueError(f"{path} names no classes; it is not the official file")
    return tuple(str(name) for name in names)


def _read(path: Path, kind: _Kind, binary: bool, num_classes: int) -> _Batch:
    if not path.is_file():
        raise FileNotFoundError(f"{kind.title} is incomplete: {path} is missing")
    batch = _read_binary(path, kind.label_bytes) if binary else _read_python(path, kind.label)
    if len(batch.y) == 0 or batch.y.min() < 0 or batch.y.max() >= num_classes:
        found = f"label {batch.y.max()}" if len(batch.y) else "no image"
        raise ValueError(f"{path} holds {found} for {num_classes} classes; it is damaged")
    return batch


def _read_binary(path: Path, label_bytes: int) -> _Batch:
    record = label_bytes + _PIXELS
    content = np.fromfile(path, dtype=np.uint8)
    if len(content) % record:
        raise ValueError(f"{path} is truncated: {len(content):,} bytes are no multiple of {record:,}")
    rows = content.reshape(-1, record)
    coarse = rows[:, 0].astype(np.int64) if label_bytes == 2 else None
    return _Batch(rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1].astype(np.int64), coarse)


def _read_python(path: Path, label: str) -> _Batch:
    content = read_pickle(path)
    try:
        x = np.asarray(content["data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
        y = np.asarray(content[label], dtype=np.int64)
        coarse = np.asarray(content["coarse_labels"], dtype=np.int64) if "coarse_labels" in content else None
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(f"{path} is no CIFAR batch: {error}") from None
    if len(x) != len(y):
        raise ValueError(f"{path} is damaged: {len(x):,} images and {len(y):,} labels")
    return _Batch(x.copy(), y, coarse)


def _join(batches: Sequence[_Batch]) -> _Batch:
    if len(batches) == 1:
        return batches[0]
    coarse = [batch.coarse for batch in batches if batch.coarse is not None]
    return _Batch(
        np.concatenate([batch.x for batch in batches]),
        np.concatenate([batch.y for batch in batches]),
        np.concatenate(coarse) if coarse else None,
    )


def _superclass(y: NDArray[np.int64], coarse: NDArray[np.int64], num_classes: int, folder: Path) -> NDArray[np.int64]:
    """The superclass of each class, (C,), as the data themselves say; -1 for a class without examples."""
    superclass = np.full(num_classes, -1, dtype=np.int64)
    superclass[y] = coarse
    if (superclass[y] != coarse).any():
        raise ValueError(f"{folder} is damaged: a class has examples of two superclasses")
    return superclass
