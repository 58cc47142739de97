"""A run that was stopped, in whatever way, and resumed in a new process leaves the same bytes as one that was not."""

import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

# A fork server that has imported everything starts a new process in milliseconds instead of seconds.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["elr.cli", "sklearn.datasets", "torch._dynamo"])

EPOCHS = 7
PERIOD = 3  # of the learning rate
# Batch norm, dropout, augmentation, a ragged last batch: everything that draws or remembers.
SETTINGS = (
    f"--data.subset 130 --noise symmetric --noise.rate 0.4 --model small_cnn --model.width 4 --model.dropout 0.2 "
    f"--optim.batch_size 32 --schedule cosine --schedule.period {PERIOD} --epochs {EPOCHS} --seed 5"
).split()
SAME = ("model.safetensors", "selected.safetensors", "records.jsonl", "noise.npz", "noise.json", "classes.json")


class Pause:
    """Watches a run and stops it in the middle of an epoch, so that a signal meets it there."""

    def __init__(self, epoch: int, batch: int, reached: Path) -> None:
        self.where = (epoch, batch)
        self.reached = reached

    def batch(self, epoch: int, done: int, total: int) -> None:
        if (epoch, done) == self.where:
            self.reached.touch()
            time.sleep(60)

    def epoch(self, record: object, seconds: float) -> None:
        pass


def run_main(words: Sequence[str], log: Path, pause: Pause | None) -> None:
    """Body of a new process: the command line with its output in a file."""
    from elr.cli import commands, main

    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    if pause is not None:
        commands.watcher = lambda *_, **__: pause
    sys.exit(main(words))


def start(words: Sequence[str], log: Path, pause: Pause | None = None) -> ForkServerProcess:
    process = CONTEXT.Process(target=run_main, args=(list(words), log, pause))
    process.start()
    return process


def command(*words: str | Path, log: Path, expect: int = 0) -> str:
    """Run a command in a new process; returns what it printed."""
    process = start([str(word) for word in words], log)
    process.join(120)
    assert process.exitcode == expect, log.read_text()
    return log.read_text()


def stop_at(epoch: int, batch: int, how: signal.Signals, words: Sequence[str], log: Path) -> int | None:
    """Run a command until a batch of an epoch, then send it a signal; returns its exit code."""
    reached = log.with_suffix(".reached")
    process = start(words, log, Pause(epoch, batch, reached))
    deadline = time.monotonic() + 120
    while not reached.exists():
        assert process.is_alive(), log.read_text()
        assert time.monotonic() < deadline, "the run never came to the place where it is stopped"
        time.sleep(0.005)
    assert process.pid is not None
    os.kill(process.pid, how)
    process.join(60)
    return process.exitcode


def content(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in SAME}


@pytest.fixture(scope="module", params=["elr", "elr_plus"])
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def whole(method: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp(method)
    command("train", "digits", "--method", method, *SETTINGS, "--out", folder / "run", log=folder / "log")
    return folder / "run"


@pytest.fixture
def half(whole: Path, tmp_path: Path) -> Path:
    """A run as it is after its last epoch but before its end, with its two checkpoints."""
    shutil.copytree(whole, tmp_path / "run")
    for name in ("summary.json", "model.safetensors"):
        (tmp_path / "run" / name).unlink()
    return tmp_path / "run"


def test_killed_in_the_middle_of_an_epoch_and_of_a_cycle_then_resumed_gives_the_same_bytes(
    method: str, whole: Path, tmp_path: Path
) -> None:
    draw = random.Random(method)
    epoch = draw.choice([e for e in range(2, EPOCHS + 1) if (e - 1) % PERIOD])  # epochs count from 1
    batch = draw.randint(1, 4)
    words = ["train", "digits", "--method", method, *SETTINGS, "--out", str(tmp_path / "run")]
    assert stop_at(epoch, batch, signal.SIGKILL, words, tmp_path / "log") == -signal.SIGKILL
    records = (tmp_path / "run" / "records.jsonl").read_text().splitlines()
    assert len(records) == epoch - 1
    assert not (tmp_path / "run" / "summary.json").exists()
    command("train", "--out", tmp_path / "run", "--resume", log=tmp_path / "log")
    assert content(tmp_path / "run") == content(whole)


def test_stopped_twice_gives_the_same_bytes(method: str, whole: Path, tmp_path: Path) -> None:
    words = ["train", "digits", "--method", method, *SETTINGS, "--out", str(tmp_path / "run")]
    assert stop_at(1, 2, signal.SIGKILL, words, tmp_path / "log") == -signal.SIGKILL  # before any checkpoint
    again = ["train", "--out", str(tmp_path / "run"), "--resume"]
    (tmp_path / "log.reached").unlink()
    assert stop_at(5, 3, signal.SIGTERM, again, tmp_path / "log") == -signal.SIGTERM
    command(*again, log=tmp_path / "log")
    assert content(tmp_path / "run") == content(whole)


def test_stopped_between_the_last_epoch_and_the_summary_gives_the_same_bytes(whole: Path, half: Path) -> None:
    command("train", "--out", half, "--resume", log=half.with_suffix(".log"))
    assert content(half) == content(whole)
    timeless = [
        {key: value for key, value in json.loads((run / "summary.json").read_text()).items() if key != "command"}
        for run in (half, whole)
    ]
    for summary in timeless:
        summary.pop("seconds")
        summary.pop("evaluate_seconds")
    assert timeless[0] == timeless[1]


def test_a_truncated_newest_checkpoint_costs_an_epoch_and_a_note(whole: Path, half: Path) -> None:
    newest = sorted((half / "checkpoint").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:-7])
    printed = command("train", "--out", half, "--resume", log=half.with_suffix(".log"))
    notes = [line for line in printed.splitlines() if line.startswith("elr: note: ")]
    assert len(notes) == 1
    assert newest.name in notes[0]
    assert f"going back to epoch-{EPOCHS - 1:06d}" in notes[0]
    assert content(half) == content(whole)
    assert newest.read_bytes() == (whole / "checkpoint" / newest.name).read_bytes()


def test_a_cut_last_record_and_leftover_temporary_files_do_not_matter(whole: Path, half: Path) -> None:
    for name in (".records.jsonl.99.tmp", "checkpoint/.epoch-000099.safetensors.99.tmp", ".config.toml.99.tmp"):
        (half / name).write_bytes(b"half of a file")
    for path in sorted((half / "checkpoint").glob("epoch-*"))[-1:]:
        path.unlink()  # killed after the record, before the checkpoint
    with open(half / "records.jsonl", "a") as file:
        file.write('{"epoch": 8, "sta')
    command("train", "--out", half, "--resume", log=half.with_suffix(".log"))
    assert content(half) == content(whole)


def test_two_checkpoints_are_kept(whole: Path) -> None:
    names = sorted(path.name for path in (whole / "checkpoint").iterdir())
    assert names == [f"epoch-{EPOCHS - 1:06d}.safetensors", f"epoch-{EPOCHS:06d}.safetensors"]


def test_a_finished_run_is_left_alone(whole: Path, tmp_path: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in whole.rglob("*") if path.is_file()}
    printed = command("train", "--out", whole, "--resume", log=tmp_path / "log")
    assert "finished already" in printed
    assert "test accuracy" in printed
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in whole.rglob("*") if path.is_file()} == before


def test_resume_in_a_folder_that_does_not_exist_starts_the_run(method: str, whole: Path, tmp_path: Path) -> None:
    """A job that is restarted by a queue passes --resume from the first time on."""
    words = ("train", "digits", "--method", method, *SETTINGS, "--out", tmp_path / "new", "--resume")
    command(*words, log=tmp_path / "log")
    assert content(tmp_path / "new") == content(whole)


def test_what_does_not_change_the_result_may_change(whole: Path, half: Path) -> None:
    free = ["--runtime.threads", "1", "--evaluate.batch_size", "64"]
    command("train", "--out", half, "--resume", *free, log=half.with_suffix(".log"))
    assert (half / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert "threads = 1" in (half / "config.toml").read_text()


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    """The one test here that starts the real command, for the signal and for the command it prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = ["train", "digits", *SETTINGS, "--epochs", "500", "--out", str(tmp_path / "my run")]
    process = subprocess.Popen(
        [sys.executable, "-m", "elr", *words], stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "epoch 2/500" in line:
            break
    process.send_signal(signal.SIGINT)
    said = process.stderr.read().splitlines()[-2:]
    process.stderr.close()
    assert process.wait(60) == 1
    saved = re.fullmatch(r"elr: interrupted; (\d+) of 500 epochs are saved in .*", said[0])
    assert saved is not None, said
    assert 2 <= int(saved[1]) < 500
    assert said[1] == f"elr: go on with: elr train --out '{tmp_path / 'my run'}' --resume"
    # The command as printed goes on with that run: it finds its settings, and refuses others.
    printed = command(
        "train", "--out", tmp_path / "my run", "--resume", "--epochs", "3", log=tmp_path / "log", expect=2
    )
    assert "its epochs is 500, here it is 3" in printed
    code = stop_at(
        int(saved[1]) + 1, 1, signal.SIGINT, ["train", "--out", str(tmp_path / "my run"), "--resume"], tmp_path / "log"
    )
    assert code == 1
    assert f"{saved[1]} of 500 epochs" in (tmp_path / "log").read_text()
