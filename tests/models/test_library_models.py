"""timm: and torchvision: names, built offline, with weights from local files."""

import os
import pickle
import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from elr.models import make_model

NAMES = ["timm:resnet18", "torchvision:resnet18"]
SHAPE = (3, 32, 32)


def state_of(name: str, classes: int) -> dict[str, Tensor]:
    torch.manual_seed(3)
    return make_model(name, SHAPE, classes).state_dict()


@pytest.mark.parametrize(
    "name",
    [*NAMES, "timm:vit_tiny_patch16_224", "torchvision:squeezenet1_1", "torchvision:mobilenet_v3_small"],
)
def test_head_fits_the_classes_and_nothing_is_fetched(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("network access")

    monkeypatch.setattr("socket.socket.connect", refuse)
    logits = make_model(name, SHAPE, 7)(torch.randn(2, *SHAPE))
    assert logits.shape == (2, 7)
    logits.sum().backward()


def test_timm_takes_grey_images() -> None:
    assert make_model("timm:resnet18", (1, 32, 32), 3)(torch.randn(2, 1, 32, 32)).shape == (2, 3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_local_file_fills_the_body_and_leaves_a_head_of_other_size_fresh(
    name: str, suffix: str, tmp_path: Path
) -> None:
    state = state_of(name, 11)
    file = tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(state, file)
    else:
        torch.save({"state_dict": state, "epoch": 3}, file)
    loaded = make_model(name, SHAPE, 4, weights=file).state_dict()
    assert loaded["fc.weight"].shape[0] == 4
    assert all(torch.equal(loaded[key], state[key]) for key in state if not key.startswith("fc."))
    same = make_model(name, SHAPE, 11, weights=file).state_dict()
    assert torch.equal(same["fc.weight"], state["fc.weight"])


class Malicious:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (os.environ["ELR_TEST_TRAP"],)


@pytest.mark.parametrize("plain_pickle", [False, True])
def test_a_file_with_code_in_it_is_refused_and_the_code_does_not_run(
    plain_pickle: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "trap"
    monkeypatch.setenv("ELR_TEST_TRAP", str(trap))
    file = tmp_path / "weights.pt"
    if plain_pickle:
        file.write_bytes(pickle.dumps({"fc.weight": Malicious()}))
    else:
        torch.save({"fc.weight": Malicious()}, file)
    with pytest.raises(ValueError, match=r"cannot load weights from .*weights\.pt") as error:
        make_model("torchvision:resnet18", SHAPE, 4, weights=file)
    assert not trap.exists()
    assert "\n" not in str(error.value)


def test_truncated_safetensors_and_foreign_content_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    file.write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00{")
    with pytest.raises(ValueError, match="cannot load weights"):
        make_model("timm:resnet18", SHAPE, 4, weights=file)
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(ValueError, match="not a state dict"):
        make_model("timm:resnet18", SHAPE, 4, weights=tmp_path / "list.pt")
    with pytest.raises(FileNotFoundError, match=r"no weight file .*absent\.pt"):
        make_model("timm:resnet18", SHAPE, 4, weights=tmp_path / "absent.pt")


def test_weights_of_another_architecture_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "weights.pt"
    torch.save(nn.Linear(3, 4).state_dict(), file)
    with pytest.raises(ValueError, match="another architecture"):
        make_model("torchvision:resnet18", SHAPE, 4, weights=file)
    state = state_of("torchvision:resnet18", 4)
    state["layer1.0.conv1.weight"] = torch.zeros(1)
    torch.save(state, file)
    with pytest.raises(ValueError, match=r"layer1\.0\.conv1\.weight"):
        make_model("torchvision:resnet18", SHAPE, 4, weights=file)


def test_files_older_than_the_counts_of_batch_norm_are_read(tmp_path: Path) -> None:
    state = {name: t for name, t in state_of("torchvision:resnet18", 4).items() if "num_batches" not in name}
    torch.save(state, tmp_path / "old.pt")
    model = make_model("torchvision:resnet18", SHAPE, 4, weights=tmp_path / "old.pt")
    assert all(torch.equal(model.state_dict()[name], value) for name, value in state.items())
    del state["bn1.bias"]
    torch.save(state, tmp_path / "less.pt")
    with pytest.raises(ValueError, match=r"1 are missing, for example 'bn1\.bias'"):
        make_model("torchvision:resnet18", SHAPE, 4, weights=tmp_path / "less.pt")


def test_files_of_densenets_have_names_of_their_time(tmp_path: Path) -> None:
    own = state_of("torchvision:densenet121", 4)
    old = {re.sub(r"(denselayer\d+\.[a-z]+)(\d)", r"\1.\2", name): value for name, value in own.items()}
    assert "features.denseblock1.denselayer1.norm.1.weight" in old
    torch.save(old, tmp_path / "old.pt")
    model = make_model("torchvision:densenet121", SHAPE, 4, weights=tmp_path / "old.pt")
    assert all(torch.equal(model.state_dict()[name], value) for name, value in own.items())


@pytest.mark.parametrize(
    ("name", "shape", "arguments", "message"),
    [
        ("timm:resnet81", SHAPE, {}, "did you mean timm:resnet18"),
        ("torchvision:resnet81", SHAPE, {}, "did you mean torchvision:resnet18"),
        ("torchvision:inception_v3", SHAPE, {}, "auxiliary outputs"),
        ("torchvision:resnet18", (1, 32, 32), {}, "colour images"),
        ("timm:resnet18", (64,), {}, "needs images"),
        ("timm:resnet18", SHAPE, {"pretrained": True, "weights": "a.pt"}, "not both"),
        ("timm:resnet18", SHAPE, {"weight": "a.pt"}, "did you mean 'weights'"),
    ],
)
def test_bad_requests_get_one_clear_sentence(name: str, shape: tuple, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        make_model(name, shape, 4, **arguments)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", NAMES)
def test_missing_library_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name.partition(":")[0], None)
    with pytest.raises(ValueError, match=r"pip install elr\[vision\]"):
        make_model(name, SHAPE, 4)
