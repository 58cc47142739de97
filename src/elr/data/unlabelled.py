"""Inputs to predict on: no labels wanted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from elr.data.config import DataConfig
from elr.data.folder import images_below
from elr.data.images import open_images
from elr.data.inputs import Rows, as_inputs
from elr.data.load import SOURCES, read_source
from elr.data.manifest import column, optional_column
from elr.data.stream import Inputs
from elr.data.table import read_npz, read_table


class Unlabelled(NamedTuple):
    """Inputs to predict on."""

    inputs: Inputs
    ids: NDArray[Any]
    skipped: Mapping[str, str] = {}  # file left out -> why


def load_unlabelled(config: DataConfig) -> Unlabelled:
    """Images anywhere below a folder, the paths of a manifest, x of an .npz, or the test part of a named data set."""
    path = Path(config.source)
    if config.source in SOURCES or not path.exists():
        source = read_source(config)
        part = source.test
        assert part is not None
        return Unlabelled(part.inputs, part.ids, source.skipped)
    if path.suffix.lower() == ".npz":
        arrays = read_npz(path)
        if "x" not in arrays:
            raise ValueError(f"{path} has no array 'x', only {', '.join(arrays) or 'nothing'}")
        inputs = as_inputs(arrays["x"], f"{path.name}: x")
        ids = arrays.get("id", np.arange(len(inputs)))
        if ids.shape != (len(inputs),):
            raise ValueError(f"{path.name}: there are {len(inputs):,} inputs, and ids of shape {ids.shape}")
        return Unlabelled(inputs, ids)
    if path.is_dir():
        files = images_below(path)
        names = [file.relative_to(path).as_posix() for file in files]
    else:
        columns = read_table(path)
        paths = column(columns, config, "path_column", path)
        names = optional_column(columns, config, "id_column", path) or paths
        files = [(Path(config.root) if config.root else path.parent) / name for name in paths]
    if not files:
        raise ValueError(f"{path} holds no images")
    images, bad = open_images(files, config)
    rows = np.array([row for row in range(len(files)) if row not in bad], dtype=np.int64)
    skipped = {str(files[row]): reason for row, reason in bad.items()}
    return Unlabelled(Rows(images, torch.from_numpy(rows)), np.array(names)[rows], skipped)
