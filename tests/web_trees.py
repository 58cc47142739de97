"""Small trees in the layouts of Clothing1M, WebVision and ILSVRC12, with crops of two real photographs as images."""

from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat
from sklearn.datasets import load_sample_image

SYNSETS = tuple(f"n{1440764 + 7919 * k:08d}" for k in range(60))  # ascending, as the official ones
CATEGORIES = (
    *("T-Shirt", "Shirt", "Knitwear", "Chiffon", "Sweater", "Hoodie", "Windbreaker"),
    *("Jacket", "Downcoat", "Suit", "Shawl", "Dress", "Vest", "Underwear"),
)


class Camera:
    """Takes a different crop each time; pictures of even classes are of one photograph, of odd ones of the other."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.photographs = [load_sample_image(name) for name in ("china.jpg", "flower.jpg")]  # 427 x 640

    def take(self, path: Path, label: int, size: tuple[int, int] = (80, 72)) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        top, left = self.rng.integers(0, 427 - 200), self.rng.integers(0, 640 - 200)
        crop = self.photographs[label % 2][top : top + 200, left : left + 200]
        Image.fromarray(crop).resize(size).save(path, "JPEG", quality=90)


def clothing1m(root: Path, train: int = 30, held_out: int = 14) -> Path:
    """Noisy labels are what the picture shows, plus 2, for every fifth key; class 0 has half of the training keys."""
    camera = Camera()
    keys: dict[str, list[str]] = {"noisy_train": [], "clean_train": [], "clean_val": [], "clean_test": []}
    labels: dict[str, list[str]] = {"noisy": [], "clean": []}
    for split, count in (("noisy_train", train), ("clean_train", 2), ("clean_val", held_out), ("clean_test", held_out)):
        for number in range(count):
            label = 0 if split == "noisy_train" and number % 2 else number % 14
            key = f"images/{number % 10}/{len(keys)}/{split}{number},{label}.jpg"
            camera.take(root / key, label)
            keys[split].append(key)
            kind = split.partition("_")[0]
            given = (label + 2) % 14 if kind == "noisy" and number % 5 == 0 else label
            labels[kind].append(f"{key} {given}")
    for split, names in keys.items():
        (root / f"{split}_key_list.txt").write_text("\n".join(names) + "\n")
    for kind, lines in labels.items():
        (root / f"{kind}_label_kv.txt").write_text("\n".join(lines) + "\n")
    (root / "category_names_eng.txt").write_text("\n".join(CATEGORIES) + "\n")
    return root


def webvision(root: Path, *, google: str = "", held_out: str = "val_images_256", classes: int = 60) -> Path:
    """Two Google pictures and one held-out picture a class; labels from 50 on are not of the mini set."""
    camera = Camera()
    train, test = [], []
    for label in range(classes):
        for number in range(2):
            name = f"google/q{label + 1:04d}/{number}.jpg"
            camera.take(root / google / name, label)
            train.append(f"{name} {label}")
        name = f"val{label + 1:06d}.jpg"
        camera.take(root / held_out / name, label)
        test.append(f"{name} {label}")
    (root / "info").mkdir(exist_ok=True)
    (root / "info" / "train_filelist_google.txt").write_text("\n".join(train) + "\n")
    (root / "info" / "val_filelist.txt").write_text("\n".join(test) + "\n")
    (root / "info" / "synsets.txt").write_text("".join(f"{name} thing {k}, stuff\n" for k, name in enumerate(SYNSETS)))
    return root


def ilsvrc(root: Path, layout: str) -> Path:
    """One picture of each of 60 synsets, 60 first: sorted, or flat with val.txt, or flat with the devkit's numbers."""
    camera = Camera()
    # The devkit numbers classes in an order of its own; here it is the synsets' order turned round.
    for number in range(1, 61):
        label = 60 - number
        name = f"ILSVRC2012_val_{number:08d}.JPEG"
        camera.take(root / "val" / (f"{SYNSETS[label]}/{name}" if layout == "sorted" else name), label, (120, 90))
    if layout == "list":
        lines = [f"ILSVRC2012_val_{number:08d}.JPEG {60 - number}\n" for number in range(1, 61)]
        (root / "val.txt").write_text("".join(lines))
    if layout == "devkit":
        data = root / "ILSVRC2012_devkit_t12" / "data"
        data.mkdir(parents=True)
        (data / "ILSVRC2012_validation_ground_truth.txt").write_text("".join(f"{n}\n" for n in range(1, 61)))
        table = np.zeros((61, 1), dtype=[("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O")])
        for n in range(1, 61):
            table[n - 1, 0] = (n, SYNSETS[60 - n], "thing")
        table[60, 0] = (1001, "n00001740", "a parent of others")
        savemat(data / "meta.mat", {"synsets": table})
    return root
