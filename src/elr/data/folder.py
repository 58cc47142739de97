"""A folder of image folders, one a class; optionally train/, val/ and test/ above them."""

import os
from pathlib import Path

from elr.data.config import DataConfig
from elr.data.files import SPLITS, File, read_files
from elr.data.images import SUFFIXES
from elr.data.source import Source


def read_folder(root: Path, config: DataConfig) -> Source:
    """The label is the class folder's name, the id the path below ``root``; other files than images are ignored."""
    tops = _folders(root)
    split_layout = "train" in tops and all(name in SPLITS for name in tops)
    splits = [(SPLITS[name], root / name) for name in tops] if split_layout else [("train", root)]
    files = [
        File(path, label, split, path.relative_to(root).as_posix())
        for split, folder in splits
        for label in _folders(folder)
        for path in images_below(folder / label)
    ]
    if not files:
        raise ValueError(f"{root} holds no images; expected a folder for each class with images inside")
    return read_files(root.resolve().name, files, config)


def images_below(folder: Path) -> list[Path]:
    """Every image file below a folder, in a fixed order."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders.sort()
        found += [
            Path(place) / name
            for name in sorted(names)
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES
        ]
    return found


def _folders(root: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
