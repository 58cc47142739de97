"""From a configuration, or from arrays, to data ready for a run."""

import difflib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elr.data.arrays import read_arrays, read_dataset
from elr.data.augment import ImageTransform
from elr.data.cifar import KINDS, holds, read_cifar, read_cifar_folder
from elr.data.clothing1m import missing as missing_clothing1m
from elr.data.clothing1m import read_clothing1m
from elr.data.config import DataConfig
from elr.data.digits import read_digits
from elr.data.examples import Data, Examples
from elr.data.folder import read_folder
from elr.data.ilsvrc import holds as holds_ilsvrc
from elr.data.ilsvrc import read_ilsvrc
from elr.data.labels import as_names, class_names, encode, match, read_labels
from elr.data.manifest import read_manifest
from elr.data.noisy import add_noise
from elr.data.npz import read_npz_source
from elr.data.published import NAMES
from elr.data.source import Part, Source
from elr.data.split import stratified
from elr.data.stream import Transform
from elr.data.webvision import missing as missing_webvision
from elr.data.webvision import read_webvision
from elr.noise import NoiseConfig
from elr.parts.draw import fold, generator

SOURCES = ("digits", *KINDS, *NAMES)
PYTHON = "python:"  # data that were given as objects: python:arrays, python:dataset
_NO_NOISE = NoiseConfig()
_DEFAULTS = DataConfig()


def load(
    config: DataConfig,
    noise: NoiseConfig = _NO_NOISE,
    seed: int = 0,
    *,
    classes: tuple[str, ...] | None = None,
) -> Data:
    """Read a source, then: other labels if asked for, validation split, subset, noise.

    ``classes`` fixes classes and their order, for data that meet a trained model.
    """
    return prepare(read_source(config, classes), config, noise, seed, classes)


def from_arrays(
    x: Any,
    y: Any,
    *,
    x_test: Any = None,
    y_test: Any = None,
    y_true: Any = None,
    ids: Any = None,
    classes: tuple[str, ...] | None = None,
    config: DataConfig = _DEFAULTS,
    noise: NoiseConfig = _NO_NOISE,
    seed: int = 0,
) -> Data:
    """The same from NumPy arrays or tensors: x (N, D), (N, H, W), (N, H, W, C) or (N, C, H, W), y names or integers."""
    source = read_arrays(x, y, config=config, x_test=x_test, y_test=y_test, y_true=y_true, ids=ids, classes=classes)
    return prepare(source, config, noise, seed)


def from_dataset(
    dataset: Any,
    *,
    test: Any = None,
    classes: tuple[str, ...] | None = None,
    config: DataConfig = _DEFAULTS,
    noise: NoiseConfig = _NO_NOISE,
    seed: int = 0,
) -> Data:
    """The same from map-style torch datasets of (x, y); x a PIL image, bytes, or numbers ready for the network."""
    return prepare(read_dataset(dataset, config=config, test=test, classes=classes), config, noise, seed)


def read_source(config: DataConfig, classes: tuple[str, ...] | None = None) -> Source:
    """A name, or a path by its kind. A second test set needs only what is of ``classes``."""
    if config.source == "digits":
        return read_digits(config)
    if config.source in KINDS:
        return read_cifar(config.source, config)
    if config.source == "clothing1m":
        return read_clothing1m(config)
    if config.source == "mini_webvision":
        return read_webvision(config)
    if config.source == "ilsvrc12":
        return read_ilsvrc(config, classes)
    if config.source.startswith(PYTHON):
        what = config.source.removeprefix(PYTHON)
        raise FileNotFoundError(
            f"the run was given its {what} from Python and does not keep them: go on there, or name data"
        )
    path = Path(config.source)
    if path.is_dir():
        return _read_directory(path, config, classes)
    if not path.exists():
        near = difflib.get_close_matches(config.source.lower(), SOURCES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"give {', '.join(SOURCES)} or a path"
        raise FileNotFoundError(f"no data source and no path {config.source!r}; {hint}")
    kind = path.suffix.lower()
    if kind == ".npz":
        return read_npz_source(path, config)
    if kind in (".csv", ".tsv", ".parquet"):
        return read_manifest(path, config)
    raise ValueError(f"cannot tell what {path} is; expected a folder, .npz, .csv, .tsv or .parquet")


def _read_directory(path: Path, config: DataConfig, classes: tuple[str, ...] | None) -> Source:
    for name in KINDS:
        if holds(path, name):
            return read_cifar_folder(path, name, config)
    if not missing_clothing1m(path):
        return read_clothing1m(config)
    if not missing_webvision(path):
        return read_webvision(config)
    if classes is not None and holds_ilsvrc(path):  # by itself it is a folder of images like any other
        return read_ilsvrc(config, classes)
    return read_folder(path, config)


def prepare(
    source: Source, config: DataConfig, noise: NoiseConfig, seed: int, classes: tuple[str, ...] | None = None
) -> Data:
    """Everything that happens to a source before a run sees it."""
    where = f"the train part of {source.name}"
    if source.test_only and classes is None:
        raise ValueError(f"{source.name} is a test set: use it as `elr evaluate RUN {source.name}`")
    if repeated := [name for name, count in Counter(source.classes or ()).items() if count > 1]:
        raise ValueError(f"{source.name} has two classes called {repeated[0]!r}")
    classes = classes or source.classes or class_names(as_names(source.train.labels, where))
    train = _examples(source.train, source, classes, "train")
    val = None if source.val is None else _examples(source.val, source, classes, "val")
    test = None if source.test is None else _examples(source.test, source, classes, "test")
    if config.labels is not None:
        train, val = _relabel(train, val, config, classes, clean=source.clean)
    _check_classes(train, classes, where)
    split_seed = seed if config.seed is None else config.seed
    if val is None and config.val_fraction > 0:
        train, val = _split(train, config, split_seed, source.name)
    train = _subset(train, config, split_seed)
    _check_classes(train, classes, where)  # again: a small subset may have lost some
    train, val, manifest = add_noise(train, val, source, classes, noise, seed)
    transform = source.transform(train.inputs)
    transform(
        train.inputs.fetch(torch.tensor([0])), torch.tensor([0]), 0
    )  # a crop that cannot work fails here, not later
    return Data(
        source.name,
        train,
        val,
        test,
        classes,
        transform,
        manifest,
        source.skipped,
        clean_val=source.clean_val and manifest is None and config.labels is None,
        balanced_batches=config.balanced_batches,
        numbered=source.classes is None and source.train.labels.dtype.kind in "iu",
        **_by_epoch(config, transform),
    )


def _examples(part: Part, source: Source, classes: tuple[str, ...], split: str) -> Examples:
    where = f"the {split} part of {source.name}"
    if len(part.labels) == 0 or len(part.inputs) == 0:
        raise ValueError(f"{where} is empty")
    if len(part.labels) != len(part.inputs):
        raise ValueError(f"{where} has {len(part.inputs):,} inputs and {len(part.labels):,} labels")
    y = encode(_names(part.labels, source, where), classes, where)
    y_true = None
    if part.true_labels is not None:
        y_true = encode(_names(part.true_labels, source, where), classes, f"y_true of {where}")
    return Examples(part.inputs, y, part.ids, y_true)


def _names(labels: NDArray[Any], source: Source, where: str) -> NDArray[np.str_]:
    """Class numbers of a source with named classes by their names: another order of classes may have been asked for."""
    known = np.array(source.classes or (), dtype=np.str_)
    if labels.dtype.kind in "iu" and labels.min(initial=0) >= 0 and labels.max(initial=0) < len(known):
        labels = known[labels]
    return as_names(labels, where)


def _relabel(
    train: Examples, val: Examples | None, config: DataConfig, classes: tuple[str, ...], *, clean: bool
) -> tuple[Examples, Examples | None]:
    """Labels from a file: for the whole training part, and for all or none of a validation part the source has.

    They may be better than those of the source (``elr relabel``), so these become the truth only if they are ``clean``.
    """
    assert config.labels is not None
    ids, names = read_labels(config.labels, config.labels_column)
    if ids is None:
        if train.ids.dtype.kind != "i" or len(names) != len(train):
            raise ValueError(
                f"label file {config.labels} has {len(names):,} labels and no ids for {len(train):,} training examples"
            )
        ids = train.ids
    y = encode(names, classes, f"label file {config.labels}")
    rows = match(train.ids, ids)
    if (missing := train.ids[rows < 0]).size:
        raise ValueError(
            f"ids of label file {config.labels} do not match: {len(missing):,} of {len(train):,} training examples are "
            f"not in it, first {missing[0]!s}"
        )
    train = train.relabel(y[rows]) if clean else replace(train, y=y[rows])
    if val is not None:
        rows = match(val.ids, ids)
        if 0 < (rows < 0).sum() < len(val):
            raise ValueError(f"label file {config.labels} lacks validation example {val.ids[rows < 0][0]!s}")
        if not (rows < 0).any():
            val = val.relabel(y[rows]) if clean else replace(val, y=y[rows])
    return train, val


def _check_classes(train: Examples, classes: tuple[str, ...], where: str) -> None:
    if (train.y == train.y[0]).all():
        raise ValueError(f"{where} has 1 class only, {classes[train.y[0]]!r}; a classifier needs two or more")


def _split(train: Examples, config: DataConfig, seed: int, name: str) -> tuple[Examples, Examples]:
    count = round(config.val_fraction * len(train))
    if count == 0:
        raise ValueError(
            f"the val part of {name} is empty: {config.val_fraction:g} of {len(train)} examples is none; "
            "raise data.val_fraction, or set it to 0"
        )
    rest, held_out = stratified(train.y, count, generator(fold(seed, "split")), keep=1)
    return train.take(rest), train.take(held_out)


def _subset(train: Examples, config: DataConfig, seed: int) -> Examples:
    if config.subset is None or config.subset == len(train):
        return train
    if config.subset > len(train):
        raise ValueError(f"data.subset {config.subset:,} exceeds the {len(train):,} training examples")
    return train.take(stratified(train.y, config.subset, generator(fold(seed, "subset")))[1])


def _by_epoch(config: DataConfig, transform: Transform) -> dict[str, Any]:
    """What changes from epoch to epoch, for images that are augmented."""
    asked = [name for name in ("alternate", "sizes") if getattr(config, name)]
    if asked and not (isinstance(transform, ImageTransform) and config.augment):
        raise ValueError(f"data.{asked[0]} is for images that are augmented")
    return {"alternate": bool(config.alternate), "sizes": tuple(config.sizes or ())}
