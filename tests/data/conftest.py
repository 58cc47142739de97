from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def paint():
    """Write a picture of one colour."""

    def write(path: Path, colour, size=(40, 30)) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, colour).save(path)

    return write


@pytest.fixture
def photos(tmp_path, paint) -> Path:
    """Twelve photographs of two classes; cats are red, dogs blue, each a little different."""
    for number in range(6):
        paint(tmp_path / "photos" / "cat" / f"{number}.jpg", (200 + number, 0, 0))
        paint(tmp_path / "photos" / "dog" / f"{number}.png", (0, 0, 200 + number))
    return tmp_path / "photos"


@pytest.fixture
def blobs():
    """Vectors of three classes."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    return rng.normal(size=(60, 5)) + y[:, None], y
