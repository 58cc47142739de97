"""Mini-WebVision (Li et al. 2017) as published: the Google images of the first 50 classes, and no validation part."""

from dataclasses import replace
from pathlib import Path

from elr.data.augment import IMAGENET
from elr.data.config import DataConfig
from elr.data.files import File, Frame, read_files
from elr.data.published import find, lines_of, pairs
from elr.data.source import Source

FOLDERS = ("webvision", "WebVision", "webvision1.0")
TRAIN, TEST, SYNSETS = "info/train_filelist_google.txt", "info/val_filelist.txt", "info/synsets.txt"
GOOGLE, HELD_OUT = "google", ("val_images_256", "val_images")
ALL_CLASSES = 1000
CLASSES = 50  # mini: line 356 of the paper
# PAPER Section G.2: crops of 227; Table G.1: images of 256 x 256.
# DEVIATES from authors' code: training crops are taken from the central 256 x 256, because images share one canvas
# (docs/decisions/006); theirs move along the whole longer side. What is evaluated is the same.
FRAME = Frame(256, 227, IMAGENET)


def missing(folder: Path) -> list[str]:
    """What a folder lacks of WebVision."""
    lacks = [name for name in (TRAIN, TEST, SYNSETS) if not (folder / name).is_file()]
    lacks += [] if _google(folder) is not None else [f"{GOOGLE}/"]
    return lacks if _held_out(folder) is not None else [*lacks, " or ".join(f"{name}/" for name in HELD_OUT)]


def read_webvision(config: DataConfig) -> Source:
    """Classes are called by their synset, which is how ILSVRC12 knows them; test is WebVision's validation part."""
    root = find("WebVision", config, FOLDERS, missing)
    google, held_out = _google(root), _held_out(root)
    assert google is not None
    assert held_out is not None
    classes = synsets(root / SYNSETS)[:CLASSES]
    if len(classes) < CLASSES:
        raise ValueError(f"{root / SYNSETS} is damaged: {len(classes)} of {ALL_CLASSES:,} synsets")
    files = [
        File(folder / name, classes[label], split, name)
        for split, folder, listed in (("train", google, TRAIN), ("test", held_out, TEST))
        for name, label in pairs(root / listed, ALL_CLASSES)
        if label < CLASSES
    ]
    return replace(read_files("mini_webvision", files, config, FRAME), classes=classes)


def synsets(path: Path) -> tuple[str, ...]:
    """The first word of every line: WordNet ids in ILSVRC12's order, which is that of the labels."""
    return tuple(text.split()[0] for _, text in lines_of(path))


def _google(root: Path) -> Path | None:
    """Where listed names such as google/q0001/... start: the root, or a folder of training images in it."""
    bases = [root, *sorted(root.glob("train_images*")), root / "google_resized_256"]
    return next((base for base in bases if (base / GOOGLE).is_dir()), None)


def _held_out(root: Path) -> Path | None:
    return next((root / name for name in HELD_OUT if (root / name).is_dir()), None)
