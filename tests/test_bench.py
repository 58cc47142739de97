"""The comparison: what a grid is, that it is fair, that it survives everything, and that its tables are right."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from reference.tiny import TinyNet, tiny_data, tiny_job
from torch import nn

from elr.bench.grid import Cell, Grid, make_grid, method_arms, noise_settings
from elr.bench.table import COLUMNS, page, percent, read_csv, tables
from elr.bench.timing import epoch_seconds, time_beside
from elr.bench.work import Status, makespan, why_it_ended, work_left
from elr.cli import main
from elr.cli.bench import jitter_note
from elr.cli.flags import as_typed
from elr.cli.progress import GridLines, told
from elr.config import resolve
from elr.data import load
from elr.data.stream import TrainData
from elr.engine.train import train
from elr.methods import METHODS
from elr.parts.clock import Clock
from elr.report.lock import alone
from elr.report.records import write_csv

SMALL = "--data.subset 60 --model small_cnn --model.width 4 --epochs 2 --optim.batch_size 16".split()  # noqa: SIM905
NOISE = ["--noise", "symmetric", "--noise.rate", "0.2,0.4"]
GRID = ["digits", *NOISE, *SMALL, "--methods", "ce,elr_plus", "--seeds", "2"]
every_method = pytest.mark.parametrize("name", METHODS)


def grid(settings: dict[str, Any] | None = None, methods: str = "ce,elr", **more: Any) -> Grid:
    given: dict[str, Any] = {"kinds": ["symmetric"], "rates": [0.4], "seeds": 1, "budget": "equal", **more}
    return make_grid(settings or {}, methods=methods, **given)


# What a grid is


def test_a_grid_is_every_noise_with_every_method_and_seed_the_first_seed_first():
    found = grid({"seed": 5}, kinds=["symmetric", "pair"], rates=[0.2, 0.4], seeds=2)
    names = [cell.name for cell in found.cells]
    assert len(names) == len(set(names)) == 2 * 2 * 2 * 2
    assert names[:3] == ["symmetric-0.2/ce/seed5", "symmetric-0.2/elr/seed5", "symmetric-0.4/ce/seed5"]
    assert [cell.seed for cell in found.cells] == [5] * 8 + [6] * 8
    for cell in found.cells:
        config = cell.config
        assert (config.noise.kind, config.noise.rate, config.method.name) == (cell.noise, cell.rate, cell.method)
        assert config.seed == cell.seed
        assert config.runtime.threads == 1


def test_kinds_of_noise_without_a_rate_stand_once():
    assert noise_settings(["none", "symmetric"], [0.2, 0.4]) == (("none", 0.0), ("symmetric", 0.2), ("symmetric", 0.4))
    assert noise_settings([], []) == (("none", 0.0),)
    assert noise_settings(["symmetric", "symmetric"], [0.2, 0.2]) == (("symmetric", 0.2),)


def test_all_methods_are_those_of_the_registry():
    assert method_arms("all") == tuple(METHODS)
    assert method_arms("elr-plus, ce,elr_plus") == ("elr_plus", "ce")


def test_a_method_may_stand_in_a_comparison_twice_with_settings_of_its_own():
    found = grid({"method.beta": "0.8"}, methods="ce,elr,elr:lam=7:beta=0.9,sl:A=-4")
    configs = {cell.method: cell.config for cell in found.cells}
    assert list(configs) == ["ce", "elr", "elr:lam=7:beta=0.9", "sl:A=-4"]
    plain, own = configs["elr"].make_method(), configs["elr:lam=7:beta=0.9"].make_method()
    assert (plain.lam, plain.beta, own.lam, own.beta) == (3.0, 0.8, 7.0, 0.9)
    assert configs["sl:A=-4"].make_method().A == -4.0
    assert found.cells[2].name == "symmetric-0.4/elr-lam=7-beta=0.9/seed0"
    assert method_arms("all,elr:lam=7") == (*METHODS, "elr:lam=7")
    authors = grid(methods="t_revision:estimate=3", budget="authors").cells[0].config
    assert (authors.make_method().estimate, authors.make_method().revision) == (3.0, 200.0)


def test_an_argument_is_set_for_every_method_that_has_it():
    found = grid({"method.beta": "0.5", "method.gamma": "0.9"}, methods="ce,elr,elr_plus")
    arguments = {cell.method: cell.config.method.arguments for cell in found.cells}
    assert arguments["ce"] == {}
    assert arguments["elr"]["beta"] == arguments["elr_plus"]["beta"] == 0.5
    assert arguments["elr_plus"]["gamma"] == 0.9


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"methods": "ce,elrplus"}, "unknown method 'elrplus'; did you mean 'elr_plus'"),
        ({"methods": ","}, "--methods is empty"),
        ({"methods": "elr:lam"}, "cannot read 'elr:lam'; write a method with its settings as elr:NAME=VALUE"),
        ({"methods": "elr:lamb=3"}, "elr has no argument 'lamb'; did you mean 'lam'"),
        ({"methods": "elr:name=ce"}, "elr has no argument 'name'"),
        ({"methods": "elr:lam=much"}, "lam"),
        ({"seeds": 0}, "--seeds must be at least 1, got 0"),
        ({"budget": "fair"}, "--budget must be one of equal, authors, got 'fair'"),
        ({"rates": [1.5]}, r"noise.rate must lie in \[0, 1\], got 1.5"),
        ({"rates": [0.2, 0.20000001]}, "two cells have the same name, symmetric-0.2/ce/seed0"),
        ({"rates": []}, "noise 'symmetric' needs --noise.rate"),
        ({"kinds": ["none"]}, "--noise.rate has no meaning for noise 'none'"),
        ({"kinds": ["symmetrik"]}, "unknown noise 'symmetrik'; did you mean 'symmetric'"),
        ({"settings": {"method.lamb": "3"}}, "none of the methods compared has 'method.lamb'"),
        ({"settings": {"epochs": "0"}}, "epochs must be at least 1"),
    ],
)
def test_a_grid_that_cannot_be_is_refused_in_one_line(more, words):
    with pytest.raises(ValueError, match=words):
        grid(**more)


# Fairness


def test_an_equal_budget_halves_the_epochs_of_two_networks():
    configs = {cell.method: cell.config for cell in grid({"epochs": 60}, methods="ce,elr,elr_plus").cells}
    assert {name: config.epochs for name, config in configs.items()} == {"ce": 60, "elr": 60, "elr_plus": 30}
    same = ("data", "noise", "model", "optim", "seed")
    assert all(getattr(configs["ce"], part) == getattr(configs["elr_plus"], part) for part in same)


@pytest.mark.parametrize(
    "schedule",
    [{"name": "multistep", "milestones": "20,40"}, {"name": "multistep"}, {"name": "cosine", "period": 10},
     {"name": "cosine", "period": 100}, {"name": "linear", "milestone": 15}, {"name": "onecycle"}],
)  # fmt: skip
@every_method
def test_the_learning_rate_is_the_same_function_of_the_part_of_a_stage_that_is_done(name, schedule):
    """Whatever number of epochs a method has, and in whatever stages: 13 epochs do not end at the peak of a cosine."""
    settings = {"epochs": 60, **{f"schedule.{key}": value for key, value in schedule.items()}}
    ce, own = (grid(settings, methods=method).cells[0].config for method in ("ce", name))
    rate, own_rate = ce.make_schedule(), own.make_schedule()
    for stage in own.make_method().plan(own.epochs):
        for step in range(0, stage.epochs * 60, 7):
            # As many batches in an epoch as the other run has epochs, so that both pass through the same fractions.
            epoch, batch = divmod(step, stage.epochs)
            expected = rate(Clock(0, 0, epoch, 60, 0, batch, stage.epochs), 0.1)
            epoch, batch = divmod(step, 60)
            found = own_rate(Clock(0, 0, epoch, stage.epochs, 0, batch, 60), 0.1)
            assert found == pytest.approx(expected, rel=1e-12)


def test_the_authors_budget_is_their_epochs_optimizer_and_schedule_on_the_users_network():
    settings = {"epochs": 7, "optim.lr": 0.5, "schedule": "cosine", "schedule.period": 3, "model": "mlp"}
    configs = {cell.method: cell.config for cell in grid(settings, methods="ce,elr_plus", budget="authors").cells}
    assert configs["ce"].epochs == 120
    assert configs["ce"].schedule.arguments == {"milestones": (40, 80), "factor": 0.01, "epochs": None}
    assert configs["elr_plus"].epochs == 200
    assert (configs["elr_plus"].optim.lr, configs["elr_plus"].optim.weight_decay) == (0.02, 5e-4)
    assert {config.model.name for config in configs.values()} == {"mlp"}


def test_a_method_without_a_schedule_of_its_authors_has_the_runs(monkeypatch):
    monkeypatch.setattr(METHODS["kl"], "authors", {})
    for cell in grid({"epochs": 7, "optim.lr": 0.5}, methods="kl,kl:lam=2", budget="authors").cells:
        assert (cell.config.epochs, cell.config.optim.lr) == (7, 0.5)


def test_what_a_user_sets_for_a_method_stands_above_what_its_authors_set():
    (cell,) = grid({"method.estimate": 0.3}, methods="t_revision", budget="authors").cells
    assert cell.config.make_method().estimate == 0.3
    assert cell.config.make_method().revision == 200


@every_method
def test_the_authors_schedule_of_every_method_is_one_that_runs(name):
    config = resolve({"method.name": name, **METHODS[name].authors})
    assert config.epochs >= 1
    assert set(METHODS[name].authors) <= set(config.flat())


class Counted(nn.Module):
    """A network that counts the rows for which a gradient comes back."""

    rows = 0

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.net = TinyNet(num_classes)

    def forward(self, x):
        logits = self.net(x)
        if logits.requires_grad:
            logits.register_hook(self.count)
        return logits

    @staticmethod
    def count(gradient):
        Counted.rows += len(gradient)


# Methods that take the gradients of some examples only, or of some more often, as the data have it.
SELECTING = {"dividemix", "incv", "mixmatch", "selfie"}


@every_method
def test_no_method_evaluates_more_gradients_than_it_says(name):
    """What an equal budget rests on. Selections depend on the data, so what is declared is what is usual."""
    data = tiny_data(150)
    Counted.rows = 0
    job = tiny_job(METHODS[name](), data=data, make_model=lambda: Counted(3), epochs=12)
    records = train(job).records
    measured = Counted.rows / (len(records) * len(data.train))
    if name in SELECTING:
        # A fifth of these labels are wrong, of the usual two fifths: (1 - .2) / (1 - .4) = 1.33 times as many are kept.
        assert 0.5 * job.method.backwards <= measured <= 1.34 * job.method.backwards, measured
    else:
        assert measured == pytest.approx(job.method.backwards)
    recorded = sum(record["gradients"] for record in records)
    assert recorded * len(data.train) == pytest.approx(Counted.rows)


@every_method
def test_every_method_says_how_many_views_it_needs(name, monkeypatch):
    asked = [1]
    original = TrainData.batches

    def spy(self, stream, clock):
        asked.extend(s.views for s in (stream, stream.beside) if s is not None)
        return original(self, stream, clock)

    monkeypatch.setattr(TrainData, "batches", spy)
    train(tiny_job(METHODS[name](), epochs=6))
    assert max(asked) == METHODS[name].views


# Running it


class Bench(NamedTuple):
    """A comparison that was run, and what it said."""

    path: Path
    code: int
    out: str
    err: str


def run_bench(path: Path, *words: str) -> Bench:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["bench", *words, "--out", str(path)])
    return Bench(path, code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A comparison that nobody disturbed."""
    return run_bench(tmp_path_factory.mktemp("bench") / "grid", *GRID, "--jobs", "2")


def results(path: Path) -> list[dict[str, Any]]:
    """The rows of a table without what a clock measured."""
    return [{key: value for key, value in row.items() if key not in ("seconds", "cost")} for row in read_csv(path)]


def test_a_grid_runs_and_leaves_runs_and_tables(bench):
    assert bench.code == 0, bench.err
    rows = read_csv(bench.path / "table.csv")
    assert len(rows) == 2 * 2 * 2
    assert {row["status"] for row in rows} == {"done"}
    assert {row["epochs"] for row in rows if row["method"] == "elr_plus"} == {1}
    for row in rows:
        run = bench.path / "runs" / f"{row['noise']}-{row['rate']:g}" / row["method"] / f"seed{row['seed']}"
        summary = json.loads((run / "summary.json").read_text())
        assert row["test_accuracy"] == pytest.approx(summary["test_accuracy"], rel=1e-5)
        assert row["wrong_memorized"] == pytest.approx(summary["wrong_memorized"], rel=1e-5)
        assert summary["threads"] == 1
    assert not list((bench.path / "logs").iterdir())


def test_the_page_says_budget_command_versions_machine_and_timing(bench):
    text = (bench.path / "table.md").read_text()
    assert text in bench.out
    assert "### symmetric noise, 20 %" in text
    assert "Budget `equal`" in text
    assert "`elr bench digits --noise symmetric" in text
    assert f"torch {torch.__version__.split('+')[0]}" in text
    assert "one at a time in turns with cross entropy" in text
    about = json.loads((bench.path / "bench.json").read_text())
    assert about["methods"]["elr_plus"]["backwards"] == 2.0
    assert set(about["timing"]) == {"ce", "elr_plus"}
    assert about["timing"]["ce"]["cost"] == 1.0
    assert about["timing"]["elr_plus"]["cost"] > 1.0


def test_off_a_terminal_every_cell_is_a_line_with_the_time_left(bench):
    lines = bench.err.splitlines()
    assert lines[1] == "cells             8, 0 done already; 2 at a time"
    assert lines[2] == "epochs            ce 2, elr_plus 1"
    ended = [line for line in lines if line.startswith("[")]
    assert [line.partition("]")[0] for line in ended] == [f"[{k}/8" for k in range(1, 9)]
    assert all("left " in line and "last " in line for line in ended)
    assert ended[-1].endswith("left 0:00")


def test_a_cell_is_the_run_that_elr_train_would_make(bench, tmp_path, capsys):
    words = ["train", "digits", "--noise", "symmetric", "--noise.rate", "0.4", *SMALL, "--method", "ce", "--seed", "1"]
    assert main([*words, "--runtime.threads", "1", "--out", str(tmp_path / "run")]) == 0
    cell = bench.path / "runs" / "symmetric-0.4" / "ce" / "seed1"
    assert (cell / "model.safetensors").read_bytes() == (tmp_path / "run" / "model.safetensors").read_bytes()
    capsys.readouterr()


def untouched(path: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in (path / "runs").rglob("*") if file.is_file()}


def test_what_is_done_is_not_run_again_and_a_grid_may_grow(bench, capsys):
    before, rows = untouched(bench.path), results(bench.path / "table.csv")
    assert main(["bench", *GRID, "--out", str(bench.path), "--quiet"]) == 0
    assert untouched(bench.path) == before
    assert results(bench.path / "table.csv") == rows
    grown = ["bench", *GRID, "--methods", "ce,elr_plus,kl", "--out", str(bench.path), "--dry-run"]
    assert main(grown) == 0
    printed = capsys.readouterr().out
    assert "cells             12, 8 done already" in printed
    assert "expected time     about 0:" in printed
    assert untouched(bench.path) == before


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--optim.lr", "0.3"], "holds another comparison: its optim.lr is 0.02, here it is 0.3"),
        (["--budget", "authors"], "leave --epochs out"),
        (["--methods", "ce"], "holds a comparison with more in it (symmetric-0.2/elr_plus/seed0)"),
        (["--method.beta", "0.1"], "holds another comparison: its method.beta is None, here it is '0.1'"),
        (["--seeds", "two"], "--seeds must be a whole number, got 'two'"),
        (["--jobs", "0"], "--jobs must be at least 1, got 0"),
        (["--noise.rate", "0.2,x"], "noise.rate must be numbers separated by commas, got '0.2,x'"),
        (["--noise", "symmetric,asymmetric"], "asymmetric"),
        (["--data.subset", "99"], "holds another comparison: its data.subset is 60, here it is 99"),
        (["--method", "elr"], "--method is for one run; give --methods NAME,NAME here"),
        (["--data", "digits"], "data are given twice"),
    ],
)
def test_a_folder_of_another_grid_and_bad_input_end_in_one_line_and_change_nothing(bench, capsys, more, words):
    before = {file: file.read_bytes() for file in bench.path.rglob("*") if file.is_file()}
    assert main(["bench", *GRID, *more, "--out", str(bench.path)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1, said
    assert words in said[0]
    assert {file: file.read_bytes() for file in bench.path.rglob("*") if file.is_file()} == before


def test_data_that_changed_since_are_not_compared_with_what_was_done_before(tmp_path, capsys):
    x = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    y = np.arange(60) % 3
    words = [str(tmp_path / "mine.npz"), "--model", "linear", "--epochs", "1", "--seeds", "1", "--no-timing", "--quiet"]
    words += ["--out", str(tmp_path / "out"), "--methods"]
    np.savez(tmp_path / "mine.npz", x=x, y=y)
    assert main(["bench", *words, "ce"]) == 0
    np.savez(tmp_path / "mine.npz", x=x, y=y[::-1])
    assert main(["bench", *words, "ce,elr"]) == 2
    assert "holds a run on other data: sha256 has changed" in capsys.readouterr().err


def test_times_are_kept_by_a_later_comparison_without_timing(bench):
    before = read_csv(bench.path / "table.csv")
    assert main(["bench", *GRID, "--out", str(bench.path), "--quiet", "--no-timing"]) == 0
    assert read_csv(bench.path / "table.csv") == before
    assert all(row["seconds"] > 0 for row in before)


def test_other_folders_are_left_alone(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    assert main(["bench", *GRID, "--out", str(tmp_path / "mine")]) == 2
    assert main(["bench", *GRID, "--out", str(tmp_path / "mine" / "thesis.txt")]) == 2
    assert main(["bench", *GRID]) == 2
    assert main(["bench", *GRID, "--data.subset", "99999", "--out", str(tmp_path / "new")]) == 2
    assert not (tmp_path / "new").exists()
    said = capsys.readouterr().err
    assert "is not empty and holds no comparison" in said
    assert "is a file, not a folder" in said
    assert "--out is missing" in said
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_the_first_of_two_comparisons_in_one_folder_keeps_the_other_out(bench, capsys):
    with alone(bench.path, ""):
        assert main(["bench", *GRID, "--out", str(bench.path), "--quiet"]) == 2
    assert "another queue of elr is running in" in capsys.readouterr().err


def start(out: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "elr", "bench", *GRID, "--no-timing", "--jobs", "2", *more, "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)


def until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"it ended before {words!r}")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
def test_a_grid_that_was_stopped_goes_on_and_gives_the_same_table(bench, tmp_path, how):
    process = start(tmp_path / "grid")
    until(process, "[1/8]")
    process.send_signal(how)
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    code = process.wait(60)
    done = len(list((tmp_path / "grid").rglob("summary.json")))
    assert 1 <= done < 8
    if how is signal.SIGINT:
        assert code == 1
        assert f"interrupted; {done} of 8 cells are done" in said
        statuses = [row["status"] for row in results(tmp_path / "grid" / "table.csv")]
        assert statuses.count("done") == done
        assert statuses.count("not run") == 8 - done
    else:
        assert code == -signal.SIGKILL
        time.sleep(0.5)  # the workers notice that their parent is gone
    again = run_bench(tmp_path / "grid", *GRID, "--no-timing")
    assert again.code == 0, again.err
    assert f"cells             8, {done} done already" in again.err
    assert results(tmp_path / "grid" / "table.csv") == results(bench.path / "table.csv")


def orphans(out: Path) -> list[str]:
    """Processes that still name this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path.parent.name] if str(out).encode() in path.read_bytes() else []
        except OSError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_workers_end_with_the_comparison_that_was_killed(tmp_path):
    process = start(tmp_path / "grid", "--epochs", "4000")
    while not list((tmp_path / "grid").rglob("records.jsonl")):
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait(60)
    assert process.stderr is not None
    process.stderr.close()
    records = next((tmp_path / "grid").rglob("records.jsonl"))
    time.sleep(1.0)
    size = records.stat().st_size
    time.sleep(1.0)
    assert records.stat().st_size == size
    assert orphans(tmp_path / "grid") == []


def test_a_cell_that_fails_is_named_and_the_others_go_on(tmp_path, monkeypatch):
    """A learning rate at which one cell diverges; a second try finds the others done."""
    whole = Grid.cells.func

    def one_diverges(self: Grid) -> tuple[Cell, ...]:
        first, *rest = whole(self)
        return first._replace(config=replace(first.config, optim=replace(first.config.optim, lr=1e30))), *rest

    monkeypatch.setattr(Grid, "cells", property(one_diverges))
    words = ["digits", *NOISE, *SMALL, "--methods", "ce", "--seeds", "1", "--no-timing"]
    for _ in range(2):
        done = run_bench(tmp_path / "grid", *words)
        assert done.code == 1
        line = "symmetric-0.2/ce/seed0 failed: the loss became nan in epoch 1: lower optim.lr, or check the data"
        assert done.err.splitlines()[-1] == f"elr: {line}"
        rows = read_csv(tmp_path / "grid" / "table.csv")
        assert [row["status"] for row in rows] == ["failed", "done"]
        assert line.replace(" failed", "") in (tmp_path / "grid" / "table.md").read_text()
        assert "Traceback" in (tmp_path / "grid" / "logs" / "symmetric-0.2.ce.seed0.txt").read_text()
    assert "cells             2, 1 done already" in done.err


def test_a_process_that_is_killed_is_a_failed_cell(tmp_path):
    assert why_it_ended(-signal.SIGKILL, tmp_path / "log") == "its process was ended by SIGKILL (out of memory?)"
    assert why_it_ended(-signal.SIGSEGV, tmp_path / "log") == "its process was ended by SIGSEGV"
    assert why_it_ended(3, tmp_path / "log") == "its process ended with code 3"


def test_one_run_is_no_faster_with_two_places():
    assert makespan([10.0], 2) == 10.0
    assert makespan([3.0, 1.0, 1.0, 2.0], 2) == 4.0  # 3 beside 1 and 1, then 2 in the place that is free first
    assert makespan([3.0, 1.0, 1.0, 2.0], 1) == 7.0
    assert makespan([], 2) == 0.0


def test_epochs_of_an_interrupted_cell_are_not_expected_again(tmp_path):
    cell = make_grid({"epochs": 4, "data.source": "digits"}, ("symmetric",), (0.2,), "ce", 1, "equal").cells[0]
    records = tmp_path / "runs" / cell.name / "records.jsonl"
    records.parent.mkdir(parents=True)
    assert work_left(tmp_path, cell) == cell.work
    records.write_text("{}\n" * 3)
    assert work_left(tmp_path, cell) == pytest.approx(cell.work / 4)
    (records.parent / "summary.json").write_text("{}")
    assert work_left(tmp_path, cell) == 0.0


def test_a_dry_run_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *GRID, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "cells             8, 0 done already" in printed
    assert "epochs            ce 2, elr_plus 1" in printed
    assert "expected time     about" in printed
    assert list(tmp_path.iterdir()) == []


def test_help_is_short_without_methods_and_shows_their_arguments_with_them(capsys):
    assert main(["bench", "--help"]) == 0
    assert "--method.lam" not in (brief := capsys.readouterr().out)
    assert "--budget" in brief
    assert "--noise.rate" in brief
    assert main(["bench", "--methods", "elr", "--help"]) == 0
    assert "--method.lam" in capsys.readouterr().out


# Timing and tables


def test_an_epoch_is_timed_in_proportion_to_its_examples(monkeypatch):
    config = resolve({"data.subset": 200, "model.width": 4, "optim.batch_size": 16, "runtime.threads": 1})
    data = load(config.data, config.noise, config.seed)
    seen: list[int] = []

    class Watched(METHODS["ce"]):
        def step(self, batch, clock):
            seen.append(len(batch.y))
            return super().step(batch, clock)

    monkeypatch.setitem(METHODS, "ce", Watched)
    ce = resolve({**{k: v for k, v in config.flat().items() if not k.startswith("method.")}, "method.name": "ce"})
    assert epoch_seconds(ce, data, epochs=2, rows=50) > 0.0
    assert sum(seen) == 100
    timed = time_beside(ce, ce, data)
    assert timed["cost"] == 1.0
    assert timed["threads"] == 1
    assert timed["rows"] == 200


ROW = {"noise": "symmetric", "rate": 0.4, "method": "ce", "seed": 0, "budget": "equal", "status": "done"}
ROW |= {"result": "last", "epochs": 60, "test_accuracy": 0.7, "selected_test_accuracy": 0.9, "wrong_memorized": 1.0}
ROW |= {
    "gradients": 59.0,
    "selected_wrong_memorized": 0.25,
    "flip_rate": 0.36,
    "seconds": 12.4,
    "cost": 1.0,
    "arithmetic": 1.0,
}
ROW |= {"backwards": 1.0}


def unaligned(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_tables_have_means_and_spreads_and_the_best_first():
    rows = [ROW, {**ROW, "seed": 1, "test_accuracy": 0.8}]
    rows += [{**row, "method": "early_stopping", "result": "selected"} for row in rows]
    rows += [{**row, "method": "elr", "test_accuracy": 0.95, "cost": 1.0625, "seconds": 13.0} for row in rows[:2]]
    rows[-1] = {**rows[-1], "status": "failed", "test_accuracy": None}
    text = tables(rows)
    assert len({len(line) for line in text.splitlines()[2:]}) == 1  # columns stand below each other
    lines = unaligned(text)
    assert lines[0] == "### symmetric noise, 40 % (36 % of the labels wrong)"
    assert lines[4] == "| elr | 60 | 59 | 95.0 | 90.0 | 100.0 | 13 | 1.06 | 1.00 | 1 of 2 |"
    assert lines[6] == "| ce | 60 | 59 | 75.0 ± 7.1 | 90.0 ± 0.0 | 100.0 ± 0.0 | 12 | 1.00 | 1.00 | 2 |"
    assert lines[5] == "| early_stopping \\* | 60 | 59 | 75.0 ± 7.1 | 90.0 ± 0.0 | 25.0 ± 0.0 | 12 | 1.00 | 1.00 | 2 |"


def test_cells_that_were_not_run_say_so():
    empty = {**ROW, "status": "not run", "test_accuracy": None, "seconds": None, "cost": None, "gradients": None}
    assert unaligned(tables([empty]))[4] == "| ce | 60 | - | not run | not run | not run | - | - | 1.00 | 0 of 1 |"
    assert percent([], "test_accuracy") == "not run"


def test_data_without_a_test_part_are_compared_on_validation():
    rows = [{**ROW, "test_accuracy": None, "val_accuracy": 0.5, "selected_val_accuracy": 0.6}]
    head, _, line = unaligned(tables(rows))[2:]
    assert "| noisy validation, last | noisy validation, chosen |" in head
    assert "| 50.0 | 60.0 |" in line


def test_rows_survive_the_file(tmp_path):
    write_csv(tmp_path / "table.csv", [ROW, {**ROW, "test_accuracy": None}], COLUMNS)
    first, second = read_csv(tmp_path / "table.csv")
    assert {key: first[key] for key in ROW} == ROW
    assert second["test_accuracy"] is None
    assert list(first) == list(COLUMNS)


def test_a_page_names_what_failed():
    about = {"data": "digits", "budget": "authors", "command": "elr bench x", "model": "mlp", "jobs": 2, "threads": 1}
    about |= {"timing": {}, "facts": {"python": "3", "torch": "2", "cpu": "c", "cores": 2, "commit": None}}
    text = page([ROW], about, {"symmetric-0.4/ce/seed0": "the loss became nan"})
    assert "- symmetric-0.4/ce/seed0: the loss became nan" in text
    assert "Budget `authors`: each method has the epochs" in text
    assert "times: not measured" in text


def test_the_command_is_recorded_without_places_on_this_machine():
    words = ["cifar10", "--data.root", "/home/me", "--data.cache-dir=/tmp/x", "--epochs", "3", "--out", "/tmp/y"]
    expected = "elr bench cifar10 --data.root DIR --data.cache-dir=DIR --epochs 3 --out DIR"
    assert as_typed("elr bench", words) == expected
    assert as_typed("elr bench", ["digits", "--out=runs/a b"]) == "elr bench digits '--out=runs/a b'"
    assert as_typed("elr tune", ["--labels", "/home/me/a.npz"]) == "elr tune --labels FILE"


# What users are told


def test_methods_with_several_views_say_that_those_of_vectors_are_jitter(tmp_path, monkeypatch, capsys):
    assert jitter_note(["a", "b"]).startswith("note: a, b need several views")
    monkeypatch.setattr(METHODS["kl"], "views", 2)
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)).numpy()
    np.savez(tmp_path / "vectors.npz", x=x, y=np.arange(40) % 2)
    words = [str(tmp_path / "vectors.npz"), "--model", "mlp", "--dry-run"]
    assert main(["train", *words, "--method", "kl"]) == 0
    assert "note: kl needs several views of an example; those of a vector are made by jitter" in capsys.readouterr().err
    assert main(["train", *words, "--method", "elr"]) == 0
    assert "jitter" not in capsys.readouterr().err
    assert main(["bench", *words, "--methods", "kl,elr"]) == 0
    assert "note: kl needs several views" in capsys.readouterr().out


@every_method
def test_every_method_is_listed_and_explained(name, capsys):
    assert main(["methods"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert listed == list(METHODS)
    assert main(["methods", name]) == 0
    printed = capsys.readouterr().out
    facts = ("equation", "reference", "passes an epoch", "cost", "gradients", "kept per example", "in the paper")
    for fact in (*facts, "behind it", "authors' schedule"):
        assert any(line.startswith(fact) for line in printed.splitlines()), fact
    assert all(len(line) <= 118 for line in printed.splitlines())
    assert " ".join(METHODS[name].equation.split()) in " ".join(printed.split())


def test_a_long_wait_is_not_silent(capsys, monkeypatch):
    lines = GridLines()
    status = Status(1, 8, 0, {"symmetric-0.2/ce/seed0": "epoch 3/60"}, 0.2, 61.0)
    lines.look(status)
    monkeypatch.setattr(lines, "spoke", time.monotonic() - 100)
    lines.look(status)
    lines.look(status)
    assert capsys.readouterr().err == "[1/8] symmetric-0.2/ce/seed0 epoch 3/60  left 1:01\n"
    assert told(grid().cells[0], "no reason") == "symmetric-0.4/ce/seed0 failed: no reason"
