"""A folder of image folders, one a class; optionally train/, val/ and test/ above them, in capitals or not."""

import os
from pathlib import Path

from elr.data.config import DataConfig
from elr.data.files import SPLITS, File, read_files
from elr.data.images import SUFFIXES
from elr.data.source import Source


def read_folder(root: Path, config: DataConfig) -> Source:
    """The label is the class folder's name, the id the path below ``root``; other files than images are ignored."""
    files = [
        File(path, label, split, path.relative_to(root).as_posix())
        for split, folder in _splits(root)
        for label in _folders(folder)
        for path in images_below(folder / label)
    ]
    if not files:
        raise ValueError(f"{root} holds no images; expected a folder for each class with images inside")
    return read_files(root.resolve().name, files, config)


def _splits(root: Path) -> list[tuple[str, Path]]:
    """The parts and where their classes are; without parts, all is for training.

    A class may be called test or train, too: its pictures are not in further folders.
    """
    tops = _folders(root)
    split_of = {name: SPLITS[name.lower()] for name in tops if name.lower() in SPLITS}
    if "train" in split_of.values() and len(split_of) == len(tops):
        return [(split, root / name) for name, split in split_of.items()]
    for name in split_of:
        if _folders(root / name) and not any(map(_is_image, os.listdir(root / name))):
            odd = [other for other in tops if other not in split_of]
            why = f"{odd[0]!r} beside it is neither train, val nor test" if odd else "no part 'train'"
            raise ValueError(f"{root} has a part {name!r} with folders inside, but {why}")
    return [("train", root)]


def images_below(folder: Path) -> list[Path]:
    """Every image file below a folder, in a fixed order."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders.sort()
        found += [Path(place) / name for name in sorted(names) if _is_image(name)]
    for path in found:
        try:
            str(path).encode()
        except UnicodeEncodeError:  # ids are written as UTF-8
            raise ValueError(f"the name of file {str(path)!r} is not UTF-8; rename it") from None
    return found


def _is_image(name: str) -> bool:
    return not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES


def _folders(root: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
