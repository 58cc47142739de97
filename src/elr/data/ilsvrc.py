"""The ILSVRC12 validation images as a second test set for a run whose classes are synsets."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from elr.data.config import DataConfig
from elr.data.files import File, read_files
from elr.data.folder import images_below
from elr.data.published import find, lines_of, pairs, places
from elr.data.source import Source
from elr.data.webvision import ALL_CLASSES, FRAME, SYNSETS, synsets
from elr.data.webvision import FOLDERS as WEBVISION

FOLDERS = ("ilsvrc12", "ILSVRC2012", "imagenet")
IMAGES = (".", "val", "ILSVRC2012_img_val")
TRUTH, META = "ILSVRC2012_validation_ground_truth.txt", "meta.mat"
LIST = "val.txt"
DEVKIT = "ILSVRC2012_devkit_t12/data"
_SYNSET = re.compile(r"n\d{8}")
_IMAGE = "ILSVRC2012_val_*"


def missing(folder: Path) -> list[str]:
    """What a folder lacks of the validation images; lists of labels are looked for when the images are not sorted."""
    if _images(folder) is None:
        return ["ILSVRC2012_val_*.JPEG or a folder a synset (itself or in val/)"]
    return []


def holds(folder: Path) -> bool:
    """Whether a folder is ILSVRC12's validation part by the names of its images."""
    place = _images(folder)
    if place is None:
        return False
    first = _sorted_by_synset(place)
    return not first or next((place / first[0]).glob(_IMAGE), None) is not None


def read_ilsvrc(config: DataConfig, classes: Sequence[str] | None = None) -> Source:
    """The images of these synsets, or of all; a test part and nothing else."""
    root = find("ILSVRC12 validation", config, FOLDERS, missing)
    place = _images(root)
    assert place is not None
    if _sorted_by_synset(place):
        found = [(path, synset) for synset in _sorted_by_synset(place) for path in images_below(place / synset)]
    else:
        found = _labelled(place, root, config)
    present = {synset for _, synset in found}
    if lacking := [name for name in classes or () if name not in present]:
        raise ValueError(
            f"{place} has no image of {len(lacking)} of the run's {len(classes or ())} classes, first {lacking[0]!r}; "
            "they should be synsets of ILSVRC12"
        )
    wanted = present.intersection(classes or present)
    files = [File(path, synset, "train", str(path.relative_to(place))) for path, synset in found if synset in wanted]
    # DEVIATES from authors' code: images are resized to 256 before the central crop of 227; their transform with the
    # resize is never passed on, so they crop 227 pixels out of whole photographs.
    source = read_files("ilsvrc12", files, config, FRAME)
    return replace(source, test=source.train, test_only=True)


def _images(folder: Path) -> Path | None:
    """The folder with the images, sorted into synsets or not."""
    for name in IMAGES:
        place = folder / name
        if place.is_dir() and (_sorted_by_synset(place) or next(place.glob(_IMAGE), None)):
            return place
    return None


def _sorted_by_synset(place: Path) -> list[str]:
    return sorted(entry.name for entry in place.iterdir() if _SYNSET.fullmatch(entry.name) and entry.is_dir())


def _labelled(place: Path, root: Path, config: DataConfig) -> list[tuple[Path, str]]:
    """Images in one folder with the synset that a list gives them."""
    homes = list(dict.fromkeys([place, root, root / DEVKIT, place.parent, place.parent / DEVKIT]))
    if (truth := _first(homes, TRUTH)) is not None:
        return _by_ground_truth(place, truth, _first([truth.parent, *homes], META))
    if (listed := _first(homes, LIST)) is not None:
        webvision = [home / SYNSETS for home in places(replace(config, source="mini_webvision"), WEBVISION)]
        beside = [home / "synsets.txt" for home in (listed.parent, *homes)]
        order = next((path for path in (*beside, *webvision) if path.is_file()), None)
        if order is None:
            raise FileNotFoundError(f"ILSVRC12 validation is not complete: {listed} needs a synsets.txt beside it")
        names = synsets(order)
        return [(place / Path(name).name, names[label]) for name, label in pairs(listed, len(names))]
    raise FileNotFoundError(
        f"ILSVRC12 validation is not complete: no {TRUTH} (with {META}) and no {LIST} for the images in {place}"
    )


def _by_ground_truth(place: Path, truth: Path, meta: Path | None) -> list[tuple[Path, str]]:
    """Line k of the file is the devkit's own class number of image k, whose synset only meta.mat knows."""
    if meta is None:
        raise FileNotFoundError(
            f"ILSVRC12 validation is not complete: {truth.name} numbers classes by {META} of the devkit, not beside it"
        )
    synset = _devkit_synsets(meta)
    found: list[tuple[Path, str]] = []
    for number, text in lines_of(truth):
        if text not in synset:
            raise ValueError(f"line {number} of {truth} is {text[:40]!r}, no class of {meta}")
        found.append((place / f"ILSVRC2012_val_{number:08d}.JPEG", synset[text]))
    return found


def _devkit_synsets(meta: Path) -> dict[str, str]:
    """ILSVRC2012_ID -> WordNet id, of the classes that images have (the others are their parents)."""
    from scipy.io import loadmat

    try:
        table = loadmat(meta, squeeze_me=True, variable_names=["synsets"])["synsets"]
        rows = [(int(row["ILSVRC2012_ID"]), str(row["WNID"])) for row in table]
    except Exception as error:  # scipy raises almost anything on damaged files
        raise ValueError(f"cannot read {meta}: {str(error) or type(error).__name__}") from error
    return {str(number): name for number, name in rows if number <= ALL_CLASSES}


def _first(homes: Sequence[Path], name: str) -> Path | None:
    return next((home / name for home in homes if (home / name).is_file()), None)
