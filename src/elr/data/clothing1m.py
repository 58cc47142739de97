"""Clothing1M (Xiao et al. 2015) as published: a million noisy training labels, clean validation and test labels."""

from dataclasses import replace
from pathlib import Path

from elr.data.augment import CLOTHING1M
from elr.data.config import DataConfig
from elr.data.files import File, Frame, read_files
from elr.data.published import find, lines_of, pairs
from elr.data.source import Source

FOLDERS = ("clothing1m", "Clothing1M", "clothing1M")
NAMES = "category_names_eng.txt"
# split: which images, and where their labels are
LISTS = {
    "train": ("noisy_train_key_list.txt", "noisy_label_kv.txt"),
    "val": ("clean_val_key_list.txt", "clean_label_kv.txt"),
    "test": ("clean_test_key_list.txt", "clean_label_kv.txt"),
}
# PAPER Section G.2: crops of 224 after resizing to 256.
# DEVIATES from authors' code: training crops are taken from the central 256 x 256, because images share one canvas
# (docs/decisions/006); theirs move along the whole longer side. What is evaluated is the same.
FRAME = Frame(256, 224, CLOTHING1M)


def missing(folder: Path) -> list[str]:
    """What a folder lacks of Clothing1M."""
    files = dict.fromkeys([NAMES, *(name for both in LISTS.values() for name in both)])
    lacks = [name for name in files if not (folder / name).is_file()]
    return lacks if (folder / "images").is_dir() else [*lacks, "images/"]


def read_clothing1m(config: DataConfig) -> Source:
    """Train on the noisy keys with noisy labels, validate and test on the clean ones; ids are the keys."""
    root = find("Clothing1M", config, FOLDERS, missing)
    classes = tuple(name for _, name in lines_of(root / NAMES))
    labels = {file: dict(pairs(root / file, len(classes))) for file in dict.fromkeys(f for _, f in LISTS.values())}
    files: list[File] = []
    for split, (keys, label_file) in LISTS.items():
        known = labels[label_file]
        for number, key in lines_of(root / keys):
            if key not in known:
                raise ValueError(f"line {number} of {root / keys}: {key} has no label in {label_file}")
            files.append(File(root / key, classes[known[key]], split, key))
    seen: dict[str, str] = {}
    for file in files:
        if file.id in seen:
            raise ValueError(f"{root} is damaged: {file.id} is listed twice, for {seen[file.id]} and {file.split}")
        seen[file.id] = file.split
    return replace(read_files("clothing1m", files, config, FRAME), classes=classes, clean_val=True)
