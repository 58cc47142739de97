from pathlib import Path

import numpy as np
import pytest

from elr.reproduce import scale

NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


@pytest.fixture
def tiny_cifar(tmp_path: Path) -> Path:
    """CIFAR-10 in its official layout with 40 images in a file, each class a colour of its own."""
    folder = tmp_path / "data" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]:
        y = np.arange(40) % 10
        x = np.clip(rng.normal(25 * y[:, None], 20, (40, 3072)), 0, 255)
        np.concatenate([y[:, None], x], axis=1).astype(np.uint8).tofile(folder / f"{name}.bin")
    (folder / "batches.meta.txt").write_text("\n".join(NAMES) + "\n")
    return tmp_path / "data"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs of a small network at the laptop's scale."""
    few = {**scale.LAPTOP, "epochs": 2, "model.name": "small_cnn", "model.width": 4, "optim.batch_size": 64}
    monkeypatch.setattr(scale, "LAPTOP", few)
    monkeypatch.setattr(scale, "quick_precision", lambda: "float32")
