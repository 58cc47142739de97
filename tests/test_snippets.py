"""What the pages tell people to type runs as it stands, one epoch of it."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset

from elr.audit.corrections import Correction, write_corrections
from elr.cli import main
from elr.data.table import read_table

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/audit.md")
SHORT = ("--epochs", "1", "--data.image_size", "32")


def blocks(page: str, language: str) -> str:
    """All fenced blocks of a language, one after the other: a later one may use what an earlier one made."""
    inside, kept = None, []
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = line[3:] if inside is None else None
        elif inside == language:
            kept.append(line)
    return "\n".join(kept)


def commands(page: str) -> Iterator[list[str]]:
    for line in blocks(page, "").splitlines():
        if line.startswith("elr "):
            yield shlex.split(line, comments=True)[1:]


@pytest.fixture
def workplace(tmp_path, monkeypatch) -> Path:
    """A folder with what the examples take for granted: photographs, and some new ones."""
    rng = np.random.default_rng(0)
    for number in range(24):
        name = ("cat", "dog")[number % 2]
        for folder in (f"photos/{name}", *(["new_photos"] if number < 4 else [])):
            place = tmp_path / folder
            place.mkdir(parents=True, exist_ok=True)
            picture = rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(picture).save(place / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_python_runs_as_it_is_written(page, workplace):
    x, y = torch.randn(60, 8), torch.arange(60) % 10
    model = nn.Linear(8, 10)
    probabilities = np.random.default_rng(0).dirichlet(np.ones(10), 60)
    names = {
        "dataset": TensorDataset(x, y),
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "X": x.numpy(),
        "labels": y.numpy(),
        "pred_probs": probabilities,
    }
    source = "import elr\n" + blocks(page, "python")
    short = re.sub(r"epochs=\d+", "epochs=1", source).replace('"photos/")', '"photos/", epochs=1)')
    small = short.replace('"photos/"', '{"source": "photos/", "image_size": 32}')
    # The names that a reader has: y is both the labels of an array and what the loop calls those of a batch.
    exec(compile(small.replace("fit(X, y)", "fit(X, labels)"), page, "exec"), names)
    assert names.get("issues") is not None


def decide(run: Path, file: Path) -> None:
    """What the page would download: labels that were kept, of all rows that were drawn, or of the first two."""
    rows = read_table(run / ("review.csv" if file.name == "checked.csv" else "rows.csv"))
    kept = [Correction(id_, y, "keep", y) for id_, y in zip(rows["id"], rows["given_label"], strict=True)]
    write_corrections(file, kept if file.name == "checked.csv" else kept[:2])


@pytest.mark.parametrize("page", PAGES)
def test_commands_run_as_they_are_written(page, workplace, capsys):
    asked = list(commands(page))
    assert any(words[0] == "train" for words in asked)
    if "runs/first" in asked[0]:  # "a finished run"
        asked.insert(0, ["train", "photos/", "--model", "resnet18", "--out", "runs/first"])
    for words in asked:
        trains = "photos/" in words
        for name in {"corrections.csv", "checked.csv"} & set(words):
            decide(workplace / words[1], workplace / name)
        few = ["20" if word == "200" else word for word in words]  # of 24 photographs
        status = main([*few, *SHORT] if trains else few)
        printed = capsys.readouterr()
        assert status == 0, f"elr {shlex.join(words)}: {printed.err}"
