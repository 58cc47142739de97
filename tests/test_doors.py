"""Every way in: the command line and the Python calls, from data to a prediction."""

import csv
import io
import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import elr
from elr.cli import main
from elr.report.lock import alone

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "TERM": "xterm"}
SMALL = ["--model", "small_cnn", "--model.width", "4"]
NOISE = ["--noise", "symmetric", "--noise.rate", "0.4"]
RUN_FILES = {
    "config.toml",
    "summary.json",
    "records.jsonl",
    "timing.jsonl",
    "noise.json",
    "noise.npz",
    "classes.json",
    "data.json",
    "model.safetensors",
    "selected.safetensors",
    "rows.csv",
    "evidence.safetensors",
    "features.safetensors",
    "checkpoint",
}


def command(*words: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "elr", *map(str, words)],
        **{"env": ENVIRONMENT, "text": True, "capture_output": True, "timeout": 120, "check": False, **options},
    )


class Trained:
    """A run on digits through the shell, and what it printed."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "run"
        words = ("train", "digits", *NOISE, *SMALL, "--epochs", "2", "--out", self.path)
        self.process = command(*words)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dark cats and bright dogs, 24 pictures of each, some not square."""
    folder = tmp_path_factory.mktemp("pictures") / "photos"
    rng = np.random.default_rng(0)
    for label, low in (("cat", 0), ("dog", 128)):
        (folder / label).mkdir(parents=True)
        for row in range(24):
            pixels = rng.integers(low, low + 128, (16, 16 + row % 3, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{row:02d}.{'png' if row % 2 else 'jpg'}")
    return folder


# Training from the shell


def test_train_ends_well_and_prints_the_result(trained: Trained) -> None:
    assert trained.process.returncode == 0, trained.process.stderr
    assert "test accuracy, last epoch" in trained.process.stdout
    assert f"run directory: {trained.path}" in trained.process.stdout


def test_off_a_terminal_there_are_plain_lines(trained: Trained) -> None:
    lines = trained.process.stderr.splitlines()
    assert lines[0] == "digits: 1,293 train, 144 val, 360 test; 10 classes; inputs 1x8x8"
    assert lines[1].startswith("noise: symmetric, asked for 40.0%, labels changed 3")
    assert [line.split("  ")[1] for line in lines[3:]] == ["epoch 1/2", "epoch 2/2"]
    assert lines[-1].endswith("left 0:00")
    assert all(character.isprintable() for line in lines for character in line)


def test_a_run_directory_holds_what_it_should(trained: Trained) -> None:
    assert {path.name for path in trained.path.iterdir()} == RUN_FILES
    assert json.loads((trained.path / "classes.json").read_text()) == list("0123456789")
    with np.load(trained.path / "noise.npz", allow_pickle=False) as noise:
        assert {name: noise[name].shape for name in noise.files} == {"id": (1437,), "old": (1437,), "new": (1437,)}


def test_the_summary_has_the_headline_numbers(trained: Trained) -> None:
    summary = json.loads((trained.path / "summary.json").read_text())
    fractions = ("test_accuracy", "selected_test_accuracy", "clean_correct", "wrong_correct", "wrong_memorized")
    assert all(0.0 <= summary[key] <= 1.0 for key in fractions)
    assert summary["wrong_correct"] + summary["wrong_memorized"] + summary["wrong_other"] == pytest.approx(1.0)
    assert summary["seconds"] > 0.0
    assert summary["method"] == "elr"
    assert summary["noise"]["flip_rate"] == pytest.approx(0.36, abs=0.03)
    assert summary["facts"]["torch"] == version("torch")


def test_looking_seldom_gives_the_same_summary(tmp_path: Path) -> None:
    summaries = []
    for every in ("1", "0"):
        words = ["digits", *NOISE, *SMALL, "--epochs", "6", "--evaluate.test_every", every]
        assert main(["train", *words, "--evaluate.train_every", every, "--out", str(tmp_path / every), "--quiet"]) == 0
        summaries.append(json.loads((tmp_path / every / "summary.json").read_text()))
    keys = ("selected_epoch", "selected_test_accuracy", "selected_wrong_memorized", "test_accuracy", "wrong_memorized")
    often, seldom = ({key: summary[key] for key in keys} for summary in summaries)
    assert often == seldom
    assert None not in often.values()
    assert often["selected_epoch"] < 6  # else nothing was read from the weights of an earlier epoch
    assert often["selected_wrong_memorized"] != often["wrong_memorized"]


def test_records_hold_deterministic_numbers_only(trained: Trained) -> None:
    records = [json.loads(line) for line in (trained.path / "records.jsonl").read_text().splitlines()]
    timing = [json.loads(line) for line in (trained.path / "timing.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == [timed["epoch"] for timed in timing] == [1, 2]
    wanted = {"ce", "penalty", "agreement", "lr", "loss", "val_accuracy", "test_accuracy", "clean_correct"}
    assert all(wanted <= set(record) for record in records)
    assert not any("seconds" in key for key in records[0])
    assert set(timing[0]) == {"epoch", "train_seconds", "evaluate_seconds", "evidence_seconds"}


def test_the_saved_configuration_is_whole_and_gives_the_same_run(trained: Trained, tmp_path: Path) -> None:
    config = trained.path / "config.toml"
    assert main(["train", "--config", str(config), "--out", str(tmp_path / "again"), "--quiet"]) == 0
    for name in ("config.toml", "records.jsonl", "model.safetensors", "selected.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (trained.path / name).read_bytes()


def test_the_weights_are_a_plain_safetensors_file(trained: Trained) -> None:
    with safe_open(trained.path / "model.safetensors", framework="pt") as file:
        assert any(name.startswith("nets.0.") for name in file.keys())  # noqa: SIM118 (not a dict)
    assert (trained.path / "model.safetensors").stat().st_mode & 0o777 == trained.path.stat().st_mode & 0o666


def test_on_a_terminal_there_is_a_bar(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    words = ("train", "digits", *SMALL, "--data.subset", "64", "--epochs", "2", "--out", tmp_path / "run")
    with subprocess.Popen(
        [sys.executable, "-m", "elr", *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=ENVIRONMENT,
    ) as process:
        os.close(theirs)
        shown = b"".join(_read(ours)).decode()
        assert process.stdout is not None
        printed = process.stdout.read().decode()
    os.close(ours)
    assert process.returncode == 0
    assert "\x1b[" in shown  # the bar redraws its line
    assert "━" in shown
    assert "2/2" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1  # the cursor comes back
    assert "\x1b" not in printed


def _read(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            yield os.read(descriptor, 4096)
        except OSError:  # Linux reports the end of a pseudo terminal as an error
            return


def test_quiet_prints_the_result_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "digits", *SMALL, "--data.subset", "64", "--epochs", "1", "--out", str(tmp_path / "run")]
    assert main([*words, "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[-1] == f"run directory: {tmp_path / 'run'}"


def test_a_dry_run_prints_the_plan_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits", "--method", "elr_plus", *SMALL, "--dry-run"]) == 0
    out, err = capsys.readouterr()
    plan = {line.partition("  ")[0]: line.partition("  ")[2].strip() for line in out.splitlines()}
    assert list(plan) == ["steps", "cost", "parameters", "targets", "step", "time"]
    assert plan["steps"] == "11 a pass, batch 128"
    assert plan["cost"].startswith("2.67 x cross entropy")
    assert plan["parameters"].endswith("in 2 network(s)")
    assert plan["targets"].startswith("1,293 x 10+10 floats: 0.1 MiB")
    assert "minutes in all" in plan["time"]
    assert "1,293 train" in err
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_reckons_with_what_a_method_costs_after_its_warm_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "digits", "--method", "dividemix", *SMALL, "--dry-run"]) == 0
    out = capsys.readouterr().out
    cost, step, epoch = (float(out.partition(f"{word} ")[2].split()[0]) for word in ("cost", "step", "about"))
    assert cost == pytest.approx(7.67)
    assert epoch == pytest.approx(cost * 11 * step / 1e3, abs=0.06 + 0.05 * epoch)  # as rounded


def test_without_out_the_same_settings_go_to_the_same_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "digits", *SMALL, "--data.subset", "64", "--epochs", "1", "--quiet"]
    assert main(words) == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("digits-elr-")
    assert main(words) == 2
    assert f"runs/{run.name} already holds a run" in capsys.readouterr().err
    assert main([*words, "--resume"]) == 0


def test_hyphens_and_equal_signs_are_accepted(tmp_path: Path) -> None:
    words = ["train", "--data=digits", "--method", "elr-plus", "--method.mix-per=example", "--data.subset=64", *SMALL]
    assert main([*words, "--epochs=1", "--data.val-fraction", "0.2", "--quiet", "--out", str(tmp_path / "run")]) == 0
    config = elr.Run(tmp_path / "run").config
    assert (config.method.name, config.method.arguments["mix_per"]) == ("elr_plus", "example")
    assert config.data.val_fraction == 0.2


def test_flags_come_on_top_of_the_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'epochs = 5\ndata = "digits"\n[method]\nname = "elr"\nlam = 2\n[model]\nname = "mlp"\n[optim]\nlr = 0.1\n'
    )
    words = ["train", "--config", tmp_path / "mine.toml", "--epochs", "1", "--optim.lr", "0.05", "--data.subset", "64"]
    assert main([*map(str, words), "--quiet", "--out", str(tmp_path / "run")]) == 0
    config = elr.Run(tmp_path / "run").config
    assert (config.epochs, config.optim.lr, config.method.arguments["lam"]) == (1, 0.05, 2.0)
    assert (config.data.source, config.model.name) == ("digits", "mlp")


# A folder of pictures


@pytest.fixture(scope="module")
def photo_run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("photos") / "run"
    words = ["train", f"{photos}/", "--method", "elr", *SMALL, "--epochs", "8", "--optim.batch_size", "8", "--quiet"]
    assert main([*words, "--out", str(out)]) == 0
    return out


def test_a_folder_of_pictures_is_learned_and_predicted(photos: Path, photo_run: Path) -> None:
    run = elr.Run(photo_run)
    assert run.classes == ("cat", "dog")
    predicted = run.predict(photos)
    assert np.mean(predicted == np.repeat(["cat", "dog"], 24)) > 0.9


def test_evaluate_takes_a_folder_without_a_test_part(
    photos: Path, photo_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(photo_run), str(photos), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["examples"] == 48
    assert result["accuracy"] > 0.9
    assert set(result["classes"]) == {"cat", "dog"}


def test_predict_names_the_files(photos: Path, photo_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(photo_run), str(photos)]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 48
    assert rows[0]["id"] == "cat/00.jpg"
    assert set(rows[0]) == {"id", "predicted_label", "probability"}


# Using a run from the shell


def test_predict_writes_a_table_of_probabilities(trained: Trained, tmp_path: Path) -> None:
    out = tmp_path / "table.csv"
    assert main(["predict", str(trained.path), "digits", "--probabilities", "--out", str(out)]) == 0
    rows = list(csv.DictReader(out.open()))
    assert len(rows) == 360
    assert list(rows[0]) == ["id", "predicted_label", "probability", *"0123456789"]
    for row in rows:
        probabilities = [float(row[name]) for name in "0123456789"]
        assert sum(probabilities) == pytest.approx(1.0, abs=1e-5)
        assert float(row["probability"]) == max(probabilities)
        assert row[row["predicted_label"]] == row["probability"]


def test_predict_into_a_closed_pipe_is_quiet(trained: Trained) -> None:
    script = f"{sys.executable} -m elr predict {trained.path} digits --probabilities | head -1"
    done = subprocess.run(script, shell=True, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("id,predicted_label")
    assert done.stderr == ""


def test_evaluate_repeats_the_accuracy_of_the_summary(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    summary = json.loads((trained.path / "summary.json").read_text())
    for which, key in (("last", "test_accuracy"), ("selected", "selected_test_accuracy")):
        assert main(["evaluate", str(trained.path), "--which", which, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["accuracy"] == pytest.approx(summary[key])
    assert main(["evaluate", str(trained.path)]) == 0
    assert capsys.readouterr().out.startswith(
        f"accuracy {summary['test_accuracy']:.2%} on 360 examples (digits, test, "
    )


def test_evaluate_refuses_data_that_changed_since_training(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(photos, "photos")
    assert main(["train", "photos", "--model", "linear", "--epochs", "1", "--quiet", "--out", "run"]) == 0
    words = ["evaluate", "run", "--split", "train"]
    assert main(words) == 0

    def refused(what: str) -> None:
        capsys.readouterr()
        assert main(words) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line == f"elr: the data have changed since training ({what}); name what to evaluate as DATA"

    Path("photos/dog").rename("photos/ant")  # were it taken for class 0, cats would be dogs
    refused("classes")
    Path("photos/ant").rename("photos/dog")
    before = {path: path.read_bytes() for path in Path("photos").rglob("*.jpg")}
    for path, data in before.items():
        path.write_bytes(data + b"\n")  # still a picture, of another size
    refused("image files")
    for path, data in before.items():
        path.write_bytes(data)
    assert main(words) == 0
    Path("photos/cat/00.jpg").rename("photos/cat/99.jpg")
    refused("ids or labels")
    Path("photos/cat/99.jpg").unlink()
    refused("train_examples is 42, was 43")
    assert main(["evaluate", "run", "photos"]) == 0


def test_a_run_on_bytes_reads_the_same_pictures_as_other_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images, y = np.random.default_rng(0).integers(0, 256, (40, 8, 8)).astype(np.uint8), np.arange(40) % 2
    images[y == 1] //= 4  # darker
    run = elr.fit("small_cnn", (images, y), epochs=2, out=tmp_path / "run")
    expected = run.predict_proba(images)
    np.testing.assert_allclose(run.predict_proba(images.astype(np.int64)), expected, atol=1e-5)
    tensor = torch.from_numpy(images.astype(np.float32)).requires_grad_()
    np.testing.assert_allclose(run.predict_proba(tensor), expected, atol=1e-5)
    np.savez(tmp_path / "same.npz", x=images.astype(np.int64), y=y)
    assert main(["evaluate", str(run.path), str(tmp_path / "same.npz"), "--json"]) == 0
    accuracy = json.loads(capsys.readouterr().out)["accuracy"]
    assert accuracy == pytest.approx(np.mean(run.predict_proba(images, which="last").argmax(axis=1) == y))
    with pytest.raises(ValueError, match="which must be one of last, selected, result, got 'best'"):
        run.predict_proba(images, which="best")  # type: ignore[arg-type]


def test_evaluate_asks_for_the_data_of_a_run_on_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elr.fit("linear", (X, Y), epochs=1, out=tmp_path / "run")
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert (
        "was given its arrays from Python and does not keep them: go on there, or name data" in capsys.readouterr().err
    )
    np.savez(tmp_path / "again.npz", x=X, y=Y)
    assert main(["evaluate", str(tmp_path / "run"), str(tmp_path / "again.npz")]) == 0


@pytest.fixture
def manifest_run(photos: Path, photo_run: Path, tmp_path: Path) -> Path:
    """The run on photos, as if those had been named by a manifest elsewhere, in columns of its own."""
    config = Path(shutil.copytree(photo_run, tmp_path / "run")) / "config.toml"
    text = config.read_text().replace('path_column = "path"', 'path_column = "file"')
    config.write_text(text.replace("[data]\n", f'[data]\nroot = "{photos}"\n'))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "m.csv").write_text("file,label\ncat/00.jpg,cat\ndog/00.jpg,dog\n")
    return tmp_path / "run"


@pytest.mark.parametrize("name", ["predict", "evaluate"])
def test_another_manifest_has_the_columns_but_not_the_pictures_of_the_first(
    name: str, photos: Path, manifest_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [name, str(manifest_run), str(tmp_path / "other" / "m.csv")]
    assert main(words) == 2
    assert f"cannot decode {tmp_path}/other/cat/00.jpg" in capsys.readouterr().err
    assert main([*words, "--data.root", str(photos)]) == 0
    assert capsys.readouterr().err == ""
    assert main([*words, "--data.path_column", "path"]) == 2
    assert "has no column 'path'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["predict", "evaluate"])
def test_a_picture_that_cannot_be_read_may_be_left_out(
    name: str, photos: Path, photo_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = Path(shutil.copytree(photos, tmp_path / "photos")) / "cat" / "00.jpg"
    bad.write_bytes(b"")
    words = [name, str(photo_run), str(tmp_path / "photos")]
    assert main(words) == 2
    assert "data.on_bad_file skip leaves such files out" in capsys.readouterr().err
    assert main([*words, "--data.on_bad_file", "skip"]) == 0
    assert capsys.readouterr().err == f"left out: 1 files that cannot be decoded, first {bad}\n"


def test_predict_looks_first_where_it_will_write(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("elr.cli.apply.load_unlabelled", lambda config: pytest.fail("read the inputs"))
    (tmp_path / "mine.csv").write_text("mine")
    for out, message in (("mine.csv", "exists already"), ("nowhere/p.csv", "there is no folder")):
        assert main(["predict", str(trained.path), "digits", "--out", str(tmp_path / out)]) == 2
        assert message in capsys.readouterr().err
    assert (tmp_path / "mine.csv").read_text() == "mine"


@pytest.mark.parametrize(
    "words",
    [
        "bench PHOTOS --model linear --methods ce --seeds 1 --epochs 1 --dry-run",
        "tune PHOTOS --model linear --method elr --epochs 1 --dry-run",
        "report RUN --out page.html",
    ],
)
def test_commands_that_read_many_files_before_they_work_tell_how_far_they_are(
    words: str,
    photos: Path,
    photo_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("elr.cli.progress.CountLines.PATIENCE", 0.0)
    run = shutil.copytree(photo_run, tmp_path / "run")
    assert main(["audit", str(run), "--review", "3"]) == 0  # rows for the page to show, and so pictures to read
    places = {"PHOTOS": photos, "RUN": run}
    assert main([str(places.get(word, word)) for word in words.split()]) == 0
    assert "checking image files  48/48  left 0:00" in capsys.readouterr().err


def test_predictions_that_cannot_be_written_leave_no_file(photos: Path, photo_run: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    shutil.copy(photos / "cat" / "00.jpg", tmp_path / "new" / os.fsdecode(b"\xff.jpg"))  # a name that is no text
    assert main(["predict", str(photo_run), str(tmp_path / "new"), "--out", str(tmp_path / "p.csv")]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_work_on_many_files_is_shown_while_it_lasts(
    photos: Path, photo_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", str(photo_run), str(photos)]
    assert main(words) == 0
    assert capsys.readouterr().err == ""  # soon done
    monkeypatch.setattr("elr.cli.progress.CountLines.PATIENCE", 0.0)
    assert main(words) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("checking image files  32/48  left 0:0")
    assert lines[1:] == ["checking image files  48/48  left 0:00", "predicting  48/48  left 0:00"]
    assert main([*words, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    train = ["train", str(photos), "--model", "linear", "--epochs", "1", "--out", str(tmp_path / "run")]
    assert main(train) == 0
    assert "sizes of image files  48/48" in capsys.readouterr().err


def test_work_on_many_files_is_a_bar_on_a_terminal(
    photos: Path, photo_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("elr.cli.progress.CountBar.PATIENCE", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["evaluate", str(photo_run), str(photos)]) == 0
    shown = capsys.readouterr().err
    assert "━" in shown
    assert "48/48" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1  # the cursor comes back


# What there is


@pytest.mark.parametrize("name", ["train", "predict", "evaluate", "demo", "methods", "models", "doctor"])
def test_each_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"usage: elr {name}" in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert f"\n  {name} " in capsys.readouterr().out


def test_help_of_train_shows_the_options_of_the_method_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--method", "elr-plus", "--schedule=cosine", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--method.gamma" in shown
    assert "--schedule.period" in shown
    assert "--noise.rate" in shown
    assert "100%%" not in shown


def test_no_command_is_answered_with_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: elr COMMAND" in capsys.readouterr().out


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"elr {elr.__version__}\n"


def test_methods_are_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in ("ce", "early_stopping", "elr", "elr_plus", "kl"))
    assert main(["methods", "elr-plus"]) == 0
    explained = capsys.readouterr().out
    assert "Algorithm 2" in explained
    assert "--method.gamma" in explained


def test_models_are_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("linear", "resnet34", "preact_resnet18", "timm:NAME", "torchvision:NAME"))
    assert main(["models", "small_cnn"]) == 0
    assert "parameters for inputs 3x32x32 and 10 classes" in capsys.readouterr().out


def test_doctor_reports_on_the_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--root", str(tmp_path)]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["torch"] == version("torch")
    assert lines["cifar10"] == f"not found below {tmp_path}"
    place = tmp_path / "cifar-10-batches-bin"
    place.mkdir()
    for name in ("data_batch_1.bin", "batches.meta.txt"):
        (place / name).touch()
    assert main(["doctor", "--data.root", str(tmp_path)]) == 0
    assert f"found in {place}" in capsys.readouterr().out
    assert {"device", "threads", "bfloat16", "allocator", "timm"} <= set(lines)


# From Python

X = np.random.default_rng(1).normal(size=(96, 6)).astype(np.float32)
Y = np.where(X[:, 0] + X[:, 1] > 0, "up", "down")
FIT = {"epochs": 12, "optim": {"lr": 0.1, "batch_size": 16}}


def accuracy(run: elr.Run, x: object, names: Sequence[str] = Y) -> float:
    return float(np.mean(run.predict(x) == names))


def test_fit_takes_arrays_and_the_name_of_a_network(tmp_path: Path) -> None:
    run = elr.fit("linear", (X, Y), out=tmp_path / "run", **FIT)
    assert run.finished
    assert len(run.records) == 12
    assert run.classes == ("down", "up")
    assert accuracy(run, X) > 0.9
    assert run.predict_proba(X).shape == (96, 2)
    assert accuracy(elr.Run(tmp_path / "run"), X) == accuracy(run, X)


def test_fit_takes_tables_of_settings(tmp_path: Path) -> None:
    run = elr.fit(
        {"name": "mlp", "dropout": 0.1},
        {"source": (X, Y), "val_fraction": 0.25},
        method={"name": "elr_plus", "lam": 2, "alpha": 0.5},
        schedule="cosine",
        noise={"kind": "symmetric", "rate": 0.2},
        epochs=2,
        out=tmp_path / "run",
    )
    config = run.config
    assert config.model.arguments["dropout"] == 0.1
    assert (config.method.arguments["lam"], config.method.arguments["alpha"]) == (2.0, 0.5)
    assert (config.schedule.name, config.noise.rate) == ("cosine", 0.2)
    assert run.facts["val_examples"] == 24


@pytest.mark.parametrize("method", ["ce", "elr_plus"])
def test_fit_takes_a_module_and_leaves_it_as_it_was(method: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    before = [parameter.clone() for parameter in module.parameters()]
    run = elr.fit(module, (X, Y), method=method, out=tmp_path / "run", **FIT)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert accuracy(run, X) > 0.8
    again = elr.Run(tmp_path / "run", module)
    assert accuracy(again, X) == accuracy(run, X)
    np.savez(tmp_path / "new.npz", x=X)
    assert accuracy(again, tmp_path / "new.npz") == accuracy(run, X)


@pytest.mark.parametrize("method", ["co_teaching", "co_teaching_plus", "decoupling", "incv"])
def test_two_networks_that_would_stay_alike_are_refused(method: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"2 networks of .* begin alike and learn alike: give a function"):
        elr.fit(nn.Linear(6, 2), (X, Y), method=method, out=tmp_path / "run", **FIT)
    elr.fit(lambda: nn.Linear(6, 2), (X, Y), method=method, out=tmp_path / "other", **FIT)


def test_a_network_that_flattens_by_view_gets_the_layout_it_can_take(tmp_path: Path) -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4 * 36, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.conv(x).relu()
            return self.head(x.view(len(x), -1))  # type: ignore[no-any-return]

    images = np.random.default_rng(0).normal(size=(96, 1, 6, 6)).astype(np.float32)
    run = elr.fit(Flat, (images, Y), method="ce", epochs=1, out=tmp_path / "run")
    assert not run.config.runtime.channels_last
    assert run.predict(images).shape == (96,)
    assert elr.NoisyLabelClassifier(model=Flat(), epochs=1).fit(images, Y).predict(images).shape == (96,)
    assert elr.fit("small_cnn", (images, Y), method="ce", epochs=1, out=tmp_path / "c").config.runtime.channels_last


@pytest.mark.parametrize("method", ["early_stopping", "forward"])
def test_without_validation_the_last_epoch_is_the_result(method: str, tmp_path: Path) -> None:
    data = {"source": (X, Y), "val_fraction": 0.0}
    with pytest.warns(UserWarning, match="nothing is held out: it will be the last one"):
        run = elr.fit("linear", data, method=method, out=tmp_path / "run", **FIT)
    assert run.summary["result"] == "last"
    assert (run.predict(X) == run.predict(X, which="last")).all()


def test_a_run_needs_its_matrix_file_no_more(tmp_path: Path) -> None:
    (tmp_path / "T.csv").write_text("0.8,0.2\n0.3,0.7\n")
    method = {"name": "backward", "matrix": str(tmp_path / "T.csv")}
    run = elr.fit("linear", (X, Y), method=method, out=tmp_path / "run", **FIT)
    before = run.predict_proba(X)
    (tmp_path / "T.csv").unlink()
    again = elr.Run(tmp_path / "run")
    assert (again.predict_proba(X) == before).all()
    torch.testing.assert_close(again.method().transition, torch.tensor([[0.8, 0.2], [0.3, 0.7]]))


def test_a_run_on_a_network_of_ones_own_says_what_it_needs(tmp_path: Path) -> None:
    elr.fit(nn.Linear(6, 2), (X, Y), epochs=1, out=tmp_path / "run")
    with pytest.raises(ValueError, match=r"'custom:Linear' was given from Python: use elr.fit and elr.Run"):
        elr.Run(tmp_path / "run").predict(X)


def test_fit_takes_a_function_that_builds_a_network(tmp_path: Path) -> None:
    built = []

    def network() -> nn.Module:
        built.append(nn.Linear(6, 2))
        return built[-1]

    run = elr.fit(network, (X, Y), method="elr_plus", out=tmp_path / "run", **FIT)
    assert accuracy(run, X) > 0.9
    assert not torch.equal(built[-1].weight, built[-2].weight)  # two networks, each with an initialisation of its own
    assert run.config.model.name == "custom:network"


def test_fit_takes_a_map_style_dataset(tmp_path: Path) -> None:
    labels = (Y == "up").astype(np.int64)
    dataset: Dataset[object] = TensorDataset(torch.from_numpy(X), torch.from_numpy(labels))
    run = elr.fit("linear", dataset, out=tmp_path / "run", **FIT)
    assert np.mean(run.predict(X) == labels) > 0.9  # whole numbers in, whole numbers out


def test_fit_takes_a_folder(photos: Path, tmp_path: Path) -> None:
    run = elr.fit("small_cnn", photos, method="ce", epochs=1, out=tmp_path / "run")
    assert run.facts["name"] == "photos"
    assert run.predict(photos / "dog").shape == (24,)


def test_fit_shows_a_line_an_epoch_if_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elr.fit("linear", (X, Y), out=tmp_path / "quiet", epochs=2)
    assert capsys.readouterr().err == ""
    elr.fit("linear", (X, Y), out=tmp_path / "told", epochs=2, progress=True)
    assert "2/2" in capsys.readouterr().err


def test_a_run_that_is_not_finished_says_how_to_finish_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = elr.fit("linear", (X, Y), out=tmp_path / "run", epochs=1)
    for name in ("summary.json", "model.safetensors", "evidence.safetensors"):
        (run.path / name).unlink()
    np.savez(tmp_path / "x.npz", x=X)
    again = f"elr.fit(..., out={str(run.path)!r}, resume=True)"
    for words, how in (
        (["predict", str(run.path), str(tmp_path / "x.npz")], again),
        (["audit", str(run.path)], "in Python"),
    ):
        assert main(words) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "is not finished" in line
        assert how in line


def test_help_shows_the_values_where_there_are_few(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--data.cache {none,ram,disk}" in text
    assert "--data.on_bad_file {stop,skip}" in text


def test_large_pictures_and_the_smallest_network_get_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 72, 72, 3)).astype(np.uint8)
    np.savez(tmp_path / "large.npz", x=images, y=np.arange(20) % 2)
    assert main(["train", str(tmp_path / "large.npz"), "--epochs", "1", "--out", str(tmp_path / "run")]) == 0
    assert "note: small_cnn is for small pictures; --model resnet18" in capsys.readouterr().err


def test_fit_resumes(tmp_path: Path) -> None:
    run = elr.fit("linear", (X, Y), out=tmp_path / "run", epochs=3)
    (run.path / "summary.json").unlink()
    weights = (run.path / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="already holds a run"):
        elr.fit("linear", (X, Y), out=tmp_path / "run", epochs=3)
    elr.fit("linear", (X, Y), out=tmp_path / "run", epochs=3, resume=True)
    assert (run.path / "model.safetensors").read_bytes() == weights


def test_a_finished_run_is_given_back_for_its_own_data_only(tmp_path: Path) -> None:
    def fit(x: object, y: object) -> elr.Run:
        data = {"source": (x, y), "standardize": False}
        return elr.fit("linear", data, out=tmp_path / "run", epochs=1, resume=True)

    first = fit(X, Y).summary
    assert fit(X, Y).summary == first
    with pytest.raises(ValueError, match="a run on other data: sha256 has changed"):
        fit(X, np.where(Y == "up", "down", "up"))
    with pytest.raises(ValueError, match="a run on other data: inputs_sha256 has changed"):
        fit(X + 1, Y)


def test_a_folder_is_for_one_process_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with alone(tmp_path / "run", "busy"), pytest.raises(ValueError, match="another process is training in"):
        elr.fit("linear", (X, Y), out=tmp_path / "run", epochs=1)
    elr.fit("linear", (X, Y), out=tmp_path / "run", epochs=1)


class Jittered(Dataset[tuple[torch.Tensor, str]]):
    """Draws its own augmentation, as torchvision's transforms do."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, str]:
        return torch.from_numpy(X[row]) + 0.1 * torch.randn(6), str(Y[row])


class Interrupt:
    """Stops training after an epoch."""

    def batch(self, epoch: int, done: int, total: int) -> None:
        pass

    def epoch(self, record: object, seconds: float) -> None:
        raise KeyboardInterrupt


def test_a_dataset_that_draws_is_drawn_alike_after_a_restart(tmp_path: Path) -> None:
    whole = elr.fit("linear", Jittered(), out=tmp_path / "whole", epochs=3)
    with pytest.raises(KeyboardInterrupt):
        elr.fit("linear", Jittered(), out=tmp_path / "cut", epochs=3, progress=Interrupt())
    torch.rand(7)
    cut = elr.fit("linear", Jittered(), out=tmp_path / "cut", epochs=3, resume=True)
    assert (cut.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()


def test_records_that_do_not_reach_the_checkpoint_are_not_built_on(tmp_path: Path) -> None:
    run = elr.fit("linear", (X, Y), out=tmp_path / "run", epochs=3)
    (run.path / "summary.json").unlink()
    lines = (run.path / "records.jsonl").read_text().splitlines(keepends=True)
    (run.path / "records.jsonl").write_text(lines[0] + lines[2])
    with pytest.raises(ValueError, match="does not have the 3 epochs of the checkpoint"):
        elr.fit("linear", (X, Y), out=tmp_path / "run", epochs=3, resume=True)


def test_the_shell_and_python_give_the_same_run(trained: Trained, tmp_path: Path) -> None:
    run = elr.fit(
        {"name": "small_cnn", "width": 4},
        "digits",
        noise={"kind": "symmetric", "rate": 0.4},
        epochs=2,
        out=tmp_path / "run",
        runtime={"threads": 1},
    )
    for name in ("records.jsonl", "model.safetensors"):
        assert (run.path / name).read_bytes() == (trained.path / name).read_bytes()


def test_two_copies_of_a_module_may_begin_at_a_rate_of_0(tmp_path: Path) -> None:
    warm = {"name": "onecycle", "start": 0.0}
    run = elr.fit(nn.Linear(X.shape[1], 2), (X, Y), method="elr_plus", schedule=warm, out=tmp_path / "run", epochs=2)
    assert run.finished


class TwoDoors(nn.Module):
    """Its head sees every feature apart, and by name."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(input=x.reshape(-1, 1)).reshape(len(x), -1, 2).mean(dim=1)


def test_a_run_is_not_lost_for_want_of_features(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="a report will show no neighbours"):
        run = elr.fit(TwoDoors(), (X, Y), out=tmp_path / "run", epochs=1)
    assert run.finished
    assert run.predict(X).shape == Y.shape
    assert len(run.label_issues()) == len(Y)


@pytest.mark.parametrize("answer", [lambda z: {"logits": z}, lambda z: (z, z)])
def test_a_network_that_gives_no_tensor_is_told_what_to_give(tmp_path: Path, answer: Callable[..., object]) -> None:
    class Odd(nn.Linear):
        def forward(self, input: torch.Tensor) -> Any:
            return answer(super().forward(input))

    with pytest.raises(ValueError, match=r"let its forward return logits \(B, C\)"):
        elr.fit(Odd(X.shape[1], 2), (X, Y), out=tmp_path / "run", epochs=1)
    assert not (tmp_path / "run").exists()


def test_a_folder_called_dataset_is_a_folder(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(photos, tmp_path / "dataset")
    run = elr.fit("small_cnn", tmp_path / "dataset", method="ce", epochs=1, out=tmp_path / "run")
    assert main(["report", str(run.path)]) == 0
    assert "Examples are not shown" not in capsys.readouterr().out


def test_a_file_name_that_is_not_utf8_is_named(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(photos, tmp_path / "photos")
    dog = tmp_path / "photos" / "dog"
    try:
        (dog / "01.png").rename(os.fsdecode(os.fsencode(dog) + b"/\xe9.png"))
    except OSError:
        pytest.skip("this file system has UTF-8 names only")
    assert main(["train", str(tmp_path / "photos"), "--epochs", "1", "--out", str(tmp_path / "run")]) == 2
    assert "is not UTF-8; rename it" in capsys.readouterr().err


def three_layers(middle: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(X.shape[1], 8), middle, nn.Linear(8, 2))


def test_a_run_goes_on_with_the_network_it_began_with_and_no_other(tmp_path: Path) -> None:
    """Weights of a network with another activation would fit."""
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        elr.fit(three_layers(nn.ReLU()), (X, Y), out=out, epochs=3, progress=Interrupt())
    for other in (three_layers(nn.Tanh()), nn.Sequential(nn.Linear(X.shape[1], 2))):
        with pytest.raises(ValueError, match=r"run holds a run of another network: network\.txt in it says which"):
            elr.fit(other, (X, Y), out=out, epochs=3, resume=True)
    run = elr.fit(three_layers(nn.ReLU()), (X, Y), out=out, epochs=3, resume=True)
    assert len(run.records) == 3
    with pytest.raises(ValueError, match="another network"):  # a finished one is not taken for that of another either
        elr.fit(three_layers(nn.Tanh()), (X, Y), out=out, epochs=3, resume=True)
    with pytest.raises(ValueError, match=r"the network does not fit the weights of .*run: Missing key") as caught:
        elr.Run(out, nn.Linear(X.shape[1], 2)).predict(X)
    assert "\n" not in str(caught.value)


def test_fit_takes_test_data_and_ids_beside_arrays(tmp_path: Path) -> None:
    names = [f"row {k}" for k in range(len(X))]
    data = {"source": (X, Y), "test": (X[:40], Y[:40]), "ids": names}
    run = elr.fit("linear", data, epochs=2, out=tmp_path / "run")
    assert run.facts["test_examples"] == 40
    assert run.summary["test_accuracy"] == pytest.approx(np.mean(run.predict(X[:40]) == Y[:40]))
    assert set(run.label_issues()["id"]) == set(names)


def test_fit_takes_a_test_dataset(tmp_path: Path) -> None:
    def part(rows: slice) -> TensorDataset:
        return TensorDataset(torch.from_numpy(X[rows]), torch.from_numpy((Y[rows] == "up").astype(np.int64)))

    run = elr.fit("linear", {"source": part(slice(60)), "test": part(slice(60, 96))}, epochs=1, out=tmp_path / "run")
    assert (run.facts["train_examples"], run.facts["test_examples"]) == (54, 36)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"source": (X, Y), "test": X}, r"test must be a pair of arrays \(X, y\) as the source is, got ndarray"),
        ({"source": TensorDataset(torch.zeros(4, 2)), "ids": [1, 2, 3, 4]}, "ids are for arrays"),
        ({"source": (X, Y), "ids": [1, 1]}, "id 1 occurs more than once"),
        ({"source": "digits", "test": (X, Y)}, "unknown option 'data.test'"),
    ],
)
def test_what_stands_beside_the_data_must_fit_them(data: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        elr.fit("linear", data, epochs=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
