"""What training borrows from the process, and gives back: memory, generators, and who comes first of two threads."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import elr
from elr.engine.device import private_randomness
from elr.report.records import clear_leftovers

X = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
CPU = torch.device("cpu")

# Two fifths of a GiB in blocks that glibc would take from mmap, and give back at once.
RESIDENT = """
import torch
from elr.engine.memory import freed_blocks_kept

def mebibytes():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024

def fill_and_free(blocks, mib):
    kept = [torch.ones(mib * 2**18) for _ in range(blocks)]

before = mebibytes()
with freed_blocks_kept() as kept:
    fill_and_free(10, 40)
    inside = mebibytes()
after = mebibytes()
fill_and_free(1, 600)  # more than the heap has free, whose address space may be used again
print(kept, inside - before, after - before, mebibytes() - before)
"""


def resident(**environment: str) -> tuple[str, int, int, int]:
    done = subprocess.run(
        [sys.executable, "-c", RESIDENT],
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    kept, *sizes = done.stdout.split()
    inside, after, later = (int(size) for size in sizes)
    return kept, inside, after, later


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the settings are those of glibc")
def test_freed_memory_stays_while_training_runs_and_goes_back_at_its_end() -> None:
    kept, inside, after, later = resident()
    assert kept == "True"
    assert inside > 350
    assert after < 100
    assert later < 100


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the settings are those of glibc")
def test_an_allocator_that_somebody_has_set_up_is_left_alone() -> None:
    kept, inside, *_ = resident(MALLOC_ARENA_MAX="2")
    assert kept == "False"
    assert inside < 100


class Noisy(nn.Sequential):
    """Draws at every forward."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 32), nn.Dropout(0.5), nn.ReLU(), nn.Linear(32, 2))


def losses(out: Path, seed: int) -> list[float]:
    return [record["loss"] for record in elr.fit(Noisy, (X, Y), epochs=6, seed=seed, out=out).records]


def test_two_fits_in_threads_come_out_as_one_after_the_other(tmp_path: Path) -> None:
    alone = [losses(tmp_path / f"alone{seed}", seed) for seed in range(4)]
    found: dict[int, list[float]] = {}
    threads = [
        threading.Thread(target=lambda k=seed: found.update({k: losses(tmp_path / f"thread{k}", k)}))
        for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[seed] for seed in range(4)] == alone


def test_who_predicts_does_not_wait_for_training(tmp_path: Path) -> None:
    run = elr.fit("linear", (X, Y), epochs=1, out=tmp_path / "run")
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.append(len(run.predict(X))))
    with private_randomness(CPU):  # as a training in this thread has it
        thread.start()
        thread.join(60)
    assert got == [60]


FORKED = """
import os, threading, torch
from elr.engine.device import private_randomness

inside, over = threading.Event(), threading.Event()

def train():
    with private_randomness(torch.device("cpu")):
        inside.set()
        over.wait()

thread = threading.Thread(target=train)
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    with private_randomness(torch.device("cpu")):
        os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
over.set()
thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_process_that_was_forked_during_a_training_may_train() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "7"


def test_a_summary_tells_the_threads_that_the_run_had(tmp_path: Path) -> None:
    threads = torch.get_num_threads() + 1
    run = elr.fit("linear", (X, Y), epochs=1, out=tmp_path / "run", runtime={"threads": threads})
    assert run.summary["threads"] == threads


def test_leftovers_of_dead_processes_are_removed_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    gone = [tmp_path / f".model.safetensors.{dead.pid}.tmp", tmp_path / ".x.20231231235959.tmp"]  # no such process
    living = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stays = [tmp_path / f".audit.json.{living.pid}.tmp", tmp_path / ".mine.tmp", tmp_path / "notes.tmp"]
    for path in (*gone, *stays):
        path.touch()
    clear_leftovers(tmp_path)
    living.communicate(b"\n")
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in stays)


def test_a_run_gone_on_with_leaves_no_leftovers(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    out = tmp_path / "run"
    elr.fit("linear", (X, Y), epochs=1, out=out)
    (out / "summary.json").unlink()
    (out / "checkpoint").mkdir(exist_ok=True)
    for folder in (out, out / "checkpoint"):
        (folder / f".x.{dead.pid}.tmp").touch()
    elr.fit("linear", (X, Y), epochs=1, out=out, resume=True)
    assert not list(out.rglob(".*.tmp"))
