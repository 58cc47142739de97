"""Noise in the training and validation parts of loaded data."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elr.data.examples import Examples
from elr.data.labels import match
from elr.data.source import Source
from elr.data.stream import Inputs
from elr.noise import NOISES, Clean, NoiseConfig, NoiseManifest, read_matrix
from elr.parts.draw import fold, generator


def add_noise(
    train: Examples, val: Examples | None, source: Source, classes: tuple[str, ...], noise: NoiseConfig, seed: int
) -> tuple[Examples, Examples | None, NoiseManifest | None]:
    """Noise in the training and validation parts, drawn apart so that both have the rate asked for."""
    if noise.kind == "none":
        return train, val, None
    parts = [train] if val is None else [train, val]
    saved = NoiseManifest.load(noise.file) if noise.file is not None else None
    noise_seed = seed if noise.seed is None else noise.seed
    matrix = None if noise.matrix is None else read_matrix(noise.matrix)
    noisy: list[Examples] = []
    for place, part in enumerate(parts):
        if saved is not None:
            noisy.append(part.relabel(_saved_labels(part, saved, classes, str(noise.file))))
            continue
        clean = Clean(
            part.y, classes, source.superclass, _features(part.inputs), matrix, key=fold(noise_seed, "noise shared")
        )
        rng = generator(fold(noise_seed, "noise", place))
        noisy.append(part.relabel(NOISES[noise.kind](clean, noise.rate, rng)))
    old = np.concatenate([part.y for part in parts])
    rate = noise.rate if matrix is None else float(1 - np.diag(matrix)[old].mean())
    kind, rate, noise_seed = (noise.kind, rate, noise_seed) if saved is None else (saved.kind, saved.rate, saved.seed)
    ids, new = (np.concatenate([getattr(part, name) for part in noisy]) for name in ("ids", "y"))
    manifest = NoiseManifest(kind, rate, noise_seed, ids, old, new, classes)
    return noisy[0], noisy[1] if val is not None else None, manifest


def _saved_labels(part: Examples, saved: NoiseManifest, classes: tuple[str, ...], name: str) -> NDArray[np.int64]:
    if saved.classes != classes:
        raise ValueError(f"noise file {name} was made for other classes")
    rows = match(part.ids, saved.ids)
    if (rows < 0).any():
        raise ValueError(f"noise file {name} has no label for example {part.ids[rows < 0][0]!s}")
    if (saved.old[rows] != part.y).any():
        example = part.ids[saved.old[rows] != part.y][0]
        raise ValueError(f"noise file {name} was made from other labels: example {example!s} differs")
    return saved.new[rows]


def _features(inputs: Inputs) -> Any:
    """Rows -> flat inputs (b, S), for noise that depends on them; bytes as x / 255, large images reduced."""

    def features(rows: NDArray[np.int64]) -> NDArray[np.float32]:
        x = inputs.fetch(torch.from_numpy(rows))
        x = x.float() / 255 if x.dtype == torch.uint8 else x
        if x.ndim == 4 and max(x.shape[2:]) > 32:
            x = torch.nn.functional.adaptive_avg_pool2d(x, 32)
        flat: NDArray[np.float32] = x.flatten(1).numpy()
        return flat

    return features
