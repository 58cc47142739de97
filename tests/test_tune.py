"""The search for hyperparameters: what is searched, who runs what, and that only noisy validation chooses."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import elr.cli.tune
import elr.tune.work
from elr.bench.work import Status
from elr.cli import main
from elr.config import options, resolve
from elr.report.tuning import draw_search
from elr.tune.choice import Scored, choose, standard_error
from elr.tune.lock import FileLock
from elr.tune.search import Search, make_search
from elr.tune.space import PAPER_GRIDS, Listed, Range, Space, make_space, read_axis

optuna = pytest.importorskip("optuna")
study = pytest.importorskip("elr.tune.study")
ROOT = Path(__file__).parents[1]
KNOWN = options({"method": "elr"})


def search(searches: list[str] | None = None, settings: dict[str, Any] | None = None, **more: Any) -> Search:
    return make_search(settings or {}, searches or ["method.lam=1,3", "method.beta=0.5,0.7"], KNOWN, **more)


# What is searched


def test_without_a_search_it_is_the_papers_grid():
    space = make_space([], "elr", KNOWN)
    assert space.axes == (
        Listed("method.beta", (0.5, 0.7, 0.9, 0.99)),
        Listed("method.lam", (1.0, 3.0, 5.0, 7.0, 10.0)),
    )
    assert len(space.grid()) == 20
    plus = make_space([], "elr_plus", options({"method": "elr_plus"}))
    assert plus.axes == (Listed("method.alpha", (0.1, 1.0, 2.0, 5.0)),)
    for (
        method,
        words,
    ) in PAPER_GRIDS.items():  # the values that the paper chose for CIFAR-10 are in its grid, and default
        found = make_search({"method.name": method}, [], options({"method": method}))
        assert found.space.words() == list(words)
        assert found.points()[0] == found.default


def test_lists_and_ranges_are_read_as_the_option_has_it():
    assert read_axis("method.lam=1, 3,3", KNOWN) == Listed("method.lam", (1.0, 3.0))
    assert read_axis("method.lam=1..10", KNOWN) == Range("method.lam", 1.0, 10.0, False, False)
    assert read_axis("optim.lr=1e-3..0.1:log", KNOWN) == Range("optim.lr", 0.001, 0.1, True, False)
    assert read_axis("epochs=10..60", KNOWN) == Range("epochs", 10, 60, False, True)
    assert read_axis("method.floor=none,0.001", KNOWN) == Listed("method.floor", (None, 0.001))
    assert read_axis("model=mlp,linear", KNOWN) == Listed("model.name", ("mlp", "linear"))
    assert read_axis("data.augment=true,false", KNOWN) == Listed("data.augment", (True, False))


@pytest.mark.parametrize(
    ("words", "more", "said"),
    [
        (["method.lam"], {}, "cannot read --search 'method.lam'; write KEY=VALUE,VALUE"),
        (["lam=1,2"], {}, "unknown option 'lam'; did you mean 'method.lam'"),
        (["method.lam=1,x"], {}, "method.lam must be a number, got 'x'"),
        (["method.lam=1..x"], {}, "the range of method.lam must be a number, got 'x'"),
        (["method.lam=5..1"], {}, "must go from a smaller number to a larger one"),
        (["method.lam=1..nan"], {}, "must go from a smaller number to a larger one"),
        (["method.lam=0..1:log"], {}, "starts at 0; the logarithm needs a number above 0"),
        (["method.lam=1..9:exp"], {}, "ends in 'exp'; only :log is known"),
        (["method.lam=1..9"], {}, "a grid needs lists, but method.lam=1..9 is a range; give --sampler tpe or random"),
        (["method.lam=1,2", "method.lam=3"], {}, "--search names method.lam twice"),
        (["method.beta=0.5,1.5"], {}, "beta"),
        (["method.beta=0.5..1.5"], {"sampler": "tpe"}, "beta"),
        (["noise.rate=0.2,0.4"], {}, "noise.rate cannot be chosen by validation accuracy"),
        (["seed=1,2"], {}, "seed cannot be chosen by validation accuracy"),
        (["method=elr,ce"], {}, "compare several with elr bench"),
        (["schedule.milestones=20,40"], {}, "schedule.milestones is a list itself"),
        ([], {"sampler": "mesh"}, "--sampler must be one of grid, tpe, random, got 'mesh'"),
        ([], {"prune": "early"}, "--prune must be one of none, median, got 'early'"),
        ([], {"trials": 3}, "--trials is for --sampler tpe and random: a grid is run whole, here 20 points"),
        ([], {"trials": 0, "sampler": "tpe"}, "--trials must be at least 1"),
        ([], {"seeds": 0}, "--seeds must be at least 1"),
        ([], {"settings": {"method.name": "ce"}}, "no grid is known for ce; give --search"),
    ],
)
def test_a_search_that_cannot_be_is_refused_in_one_line(words, more, said):
    more = {"settings": {}, **more}
    with pytest.raises(ValueError, match=re.escape(said)) as error:
        make_search(more.pop("settings"), words, KNOWN, **more)
    assert "\n" not in str(error.value)


def test_every_point_has_a_folder_of_its_own_that_tells_it():
    space = Space(
        (Listed("method.lam", (1.0, 3.0)), Listed("model.name", ("timm:a/b", "mlp")), Listed("optim.name", ("sgd",)))
    )
    assert space.folder({"method.lam": 1.0, "model.name": "timm:a/b", "optim.name": "sgd"}) == (
        "lam=1,model.name=timm%3Aa%2Fb,optim.name=sgd"
    )
    near = [{"method.lam": value} for value in (0.1, np.nextafter(0.1, 1.0).item())]
    assert len({Space((Range("method.lam", 0.0, 1.0, False, False),)).folder(point) for point in near}) == 2


# What is chosen


SPACE = Space((Listed("lam", (1.0, 3.0, 5.0)), Listed("beta", (0.5, 0.7))))
DEFAULT = {"lam": 3.0, "beta": 0.7}


def scored(*rows: tuple[float, float, float], error: float = 0.02) -> list[Scored]:
    return [Scored(k, {"lam": lam, "beta": beta}, value, error) for k, (lam, beta, value) in enumerate(rows)]


def test_the_default_is_chosen_when_the_best_cannot_be_told_from_it():
    found = choose(scored((5, 0.5, 0.60), (1, 0.7, 0.585), (3, 0.7, 0.581), (1, 0.5, 0.579)), DEFAULT, SPACE)
    assert found is not None
    assert (found.best.number, found.chosen.number) == (0, 2)
    assert [trial.number for trial in found.near] == [0, 1, 2]
    assert "3 of the 4 trials are within one standard error of it" in found.reason
    assert "Chosen: lam=3, beta=0.7, 58.1 %, the default." in found.reason


def test_what_is_surely_better_than_the_default_is_chosen():
    found = choose(scored((5, 0.5, 0.60), (3, 0.7, 0.579)), DEFAULT, SPACE)
    assert found is not None
    assert found.chosen.number == 0
    assert "no other of the 2 trials is within one standard error" in found.reason


def test_of_those_that_cannot_be_told_apart_the_one_with_most_defaults_is_chosen():
    found = choose(scored((5, 0.5, 0.60), (1, 0.7, 0.585), (5, 0.7, 0.59), (3, 0.7, 0.5)), DEFAULT, SPACE)
    assert found is not None
    assert found.chosen.number == 2
    assert found.reason.endswith("Chosen: lam=5, beta=0.7, 59.0 %, the best that leaves beta at the default.")
    assert choose([], DEFAULT, SPACE) is None
    found = choose(scored((5, 0.5, 0.60), (1, 0.5, 0.595)), DEFAULT, SPACE)
    assert found is not None
    assert found.reason.endswith("The best is chosen, since none of the others is nearer to the defaults.")


def test_the_standard_error_is_binomial_or_the_spread_over_seeds():
    assert standard_error([0.6], [150]) == pytest.approx((0.6 * 0.4 / 150) ** 0.5)
    assert standard_error([0.6, 0.6], [150, 150]) == pytest.approx((0.6 * 0.4 / 300) ** 0.5)
    assert standard_error([0.5, 0.7], [150, 150]) == pytest.approx(0.1)


# Who runs what


def drain(*workers: Any) -> list[tuple[int, dict[str, Any]]]:
    """Let processes take in turns until nothing is left; each finishes at once."""
    found = []
    turn = 0
    while taken := workers[turn % len(workers)].take():
        found.append((taken.number, taken.point))
        workers[turn % len(workers)].finish(taken, 0.5)
        turn += 1
    return found


def test_a_grid_is_run_once_by_however_many_processes_the_default_first(tmp_path):
    a, b = (study.Trials(tmp_path, search()) for _ in range(2))
    held = [worker.take() for worker in (a, b, a, b)]
    points = [taken.point for taken in held]
    assert points[0] == {"method.lam": 3.0, "method.beta": 0.7}
    assert sorted(points, key=str) == sorted(search().space.grid(), key=str)
    assert a.take() is None
    assert not a.over()  # four are under way
    for taken in held:
        b.finish(taken, 0.5)
    assert a.over()
    assert [entry.status for entry in a.entries()] == ["done"] * 4


def test_a_trial_whose_process_is_gone_is_taken_up_by_the_next_and_one_that_lives_is_not(tmp_path):
    a, b = (study.Trials(tmp_path, search()) for _ in range(2))
    alive, dead = a.take(), a.take()
    dead.lock.release()  # what the kernel does for a process that ended, however it did
    again = b.take()
    assert (again.number, again.point) == (dead.number, dead.point)
    assert b.take().number not in (alive.number, dead.number)
    assert len(b.study.trials) == 4


def test_a_trial_lives_as_long_as_the_process_that_trains_it(tmp_path):
    """Its command may be killed first: nobody may write beside the orphan until that has ended."""
    a, b = (study.Trials(tmp_path, search(["method.lam=1"])) for _ in range(2))
    taken = a.take()
    training = FileLock(taken.lock.path)
    assert training.share()
    taken.lock.release()
    assert b.take() is None
    training.release()
    assert b.take().number == taken.number


def test_a_trial_cut_off_at_birth_is_not_counted(tmp_path):
    trials = study.Trials(tmp_path, search(["method.lam=1..9"], sampler="random", trials=3))
    trials.finish(trials.take(), 0.5)
    trials.study.ask()  # the process dies before Optuna has written its parameters
    assert len(drain(trials)) == 2
    assert [entry.status for entry in trials.entries()] == ["done"] * 3
    assert trials.over()


def test_random_trials_are_the_same_whoever_draws_them(tmp_path):
    def workers(name: str, count: int) -> list[Any]:
        found = search(["method.lam=1..9", "optim.lr=1e-3..1e-1:log"], sampler="random", trials=6)
        return [study.Trials(tmp_path / name, found) for _ in range(count)]

    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    alone, together = drain(*workers("one", 1)), drain(*workers("two", 2))
    assert alone == together
    assert len({str(point) for _, point in alone}) == 6
    assert alone[0][1] == {"method.lam": 3.0, "optim.lr": 0.02}  # the default


def test_a_point_drawn_twice_is_run_once(tmp_path):
    trials = study.Trials(tmp_path, search(["method.lam=1,3"], sampler="random", trials=8))
    held = [taken for _ in range(8) if (taken := trials.take())]
    assert len(held) == 2
    assert len(trials.study.trials) == 8
    for taken in held:
        trials.finish(taken, 0.5)
    drain(trials)
    assert trials.over()
    assert [entry.point["method.lam"] for entry in trials.entries()] == [3.0, 1.0]


@pytest.mark.parametrize("sampler", ["grid", "random"])
def test_what_failed_is_tried_again_by_the_next_command_and_no_sooner(tmp_path, sampler):
    more = {} if sampler == "grid" else {"sampler": "random", "trials": 2}
    words = ["method.lam=1,3"] if sampler == "grid" else ["method.lam=1..3"]
    first = study.Trials(tmp_path, search(words, **more))
    first.give_up(first.take(), "no memory")
    drain(first)
    assert first.over()
    assert [(entry.status, entry.note) for entry in first.entries()] == [("failed", "no memory"), ("done", "")]
    second = study.Trials(tmp_path, search(words, **more))
    assert [point for _, point in drain(second)] == [first.entries()[0].point]
    assert [entry.status for entry in second.entries()] == ["done", "done"]


def test_a_trial_is_pruned_below_the_median_in_the_second_half_only(tmp_path):
    found = search(["method.lam=1,2,3,4,5,6"], {"epochs": "10"}, prune="median")
    trials = study.Trials(tmp_path, found)
    for _ in range(study.STARTUP):
        taken = trials.take()
        assert not any(trials.report(taken.number, epoch, 0.5) for epoch in range(1, 11))
        trials.finish(taken, 0.5)
    taken = trials.take()
    assert [trials.report(taken.number, epoch, 0.4) for epoch in range(1, 7)] == [False] * 4 + [True] * 2
    trials.give_up(taken, "pruned at epoch 5", pruned=True)
    assert trials.entries()[-1].status == "pruned"


def test_a_point_that_was_pruned_and_is_run_to_its_end_later_counts(tmp_path):
    trials = study.Trials(tmp_path, search(["method.lam=1,3"], sampler="random", trials=8, prune="median"))
    first = trials.take()
    trials.give_up(first, "pruned at epoch 5", pruned=True)
    while taken := trials.take():
        trials.finish(taken, 0.9)
    again = next(entry for entry in trials.entries() if entry.point == first.point)
    assert again.status == "done"


def test_without_prune_nothing_is_pruned(tmp_path):
    trials = study.Trials(tmp_path, search(["method.lam=1,2,3,4,5,6"], {"epochs": "4"}))
    for _ in range(5):
        taken = trials.take()
        trials.report(taken.number, 4, 0.5)
        trials.finish(taken, 0.5)
    assert not trials.report(trials.take().number, 4, 0.1)


def test_the_journal_is_lines_of_json_that_are_read_without_pickle(tmp_path, monkeypatch):
    drain(study.Trials(tmp_path, search()))
    for line in (tmp_path / study.JOURNAL).read_text().splitlines():
        assert isinstance(json.loads(line), dict)

    def refuse(*_: object) -> None:
        raise AssertionError("pickle")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(f"pickle.{name}", refuse)
    assert study.Trials(tmp_path, search()).over()


def test_a_last_line_cut_short_by_a_crash_is_mended(tmp_path):
    first = study.Trials(tmp_path, search())
    drain(first)
    with open(tmp_path / study.JOURNAL, "ab") as file:
        file.write(b'{"op_code": 5, "trial')
    again = study.Trials(tmp_path, search())
    assert [entry.status for entry in again.entries()] == ["done"] * 4
    again.study.set_user_attr("still", "writable")
    assert study.Trials(tmp_path, search()).study.user_attrs == {"still": "writable"}


# Running it


class Tuned(NamedTuple):
    """A search that was run, and what it said."""

    path: Path
    code: int
    out: str
    err: str


def run_tune(path: Path, *words: str) -> Tuned:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["tune", *words, "--out", str(path)])
    return Tuned(path, code, out.getvalue(), err.getvalue())


def write_data(path: Path, *, shuffled: bool = False) -> Path:
    """Three blobs with a third of the labels wrong; shuffled: true labels and test labels only."""
    rng = np.random.default_rng(0)
    true = np.arange(150) % 3
    x = rng.normal(size=(150, 4)).astype(np.float32) + 2.0 * np.eye(3, 4, dtype=np.float32)[true]
    y = np.where(rng.random(150) < 0.33, (true + 1) % 3, true)
    x_test = rng.normal(size=(60, 4)).astype(np.float32) + 2.0 * np.eye(3, 4, dtype=np.float32)[np.arange(60) % 3]
    mix = rng.permutation if shuffled else np.asarray
    path.mkdir(parents=True)
    np.savez(path / "blobs.npz", x=x, y=y, y_true=mix(true), x_test=x_test, y_test=mix(np.arange(60) % 3))
    return path / "blobs.npz"


SMALL = ["--model", "linear", "--epochs", "3", "--optim.batch_size", "32", "--data.val_fraction", "0.4"]
GRID = [*SMALL, "--search", "method.lam=1,3", "--search", "optim.lr=1e-5,0.02"]


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "as_it_is")


@pytest.fixture(scope="module")
def tuned(blobs: Path, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """A search that nobody disturbed."""
    return run_tune(tmp_path_factory.mktemp("tune") / "grid", str(blobs), *GRID, "--jobs", "2")


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Rows of a search by their point, without what a clock measured."""
    found = json.loads((path / "tune.json").read_text())["trials"]
    rows = [{key: value for key, value in row.items() if key != "seconds"} for row in found]
    return sorted(rows, key=lambda row: str(row["point"]))


def test_a_search_leaves_runs_table_picture_and_a_configuration(tuned):
    assert tuned.code == 0, tuned.err
    names = {path.name for path in tuned.path.iterdir() if not path.name.startswith(".")}
    assert names == {
        "best.toml", "logs", "optuna.jsonl", "runs", "trials.csv", "trials.md", "tune.json", "tune.png", "tune.svg"
    }  # fmt: skip
    assert not list((tuned.path / "logs").iterdir())
    for row in rows_of(tuned.path):
        folder = f"lam={row['point']['method.lam']:g},lr={row['point']['optim.lr']:g}"
        run = tuned.path / "runs" / folder / "seed0"
        p = json.loads((run / "records.jsonl").read_text().splitlines()[-1])["val_smoothed"]
        assert row["val_accuracy"] == p
        assert row["standard_error"] == pytest.approx((p * (1 - p) / 60) ** 0.5)
        assert json.loads((run / "summary.json").read_text())["threads"] == 1
    with open(tuned.path / "trials.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == 4
    accuracies = [float(row["val_accuracy"]) for row in table]
    assert accuracies == sorted(accuracies, reverse=True)
    assert "test_accuracy_not_used" in table[0]


def test_the_page_says_what_was_not_used_and_what_it_was_made_with(tuned):
    text = (tuned.path / "trials.md").read_text()
    assert text in tuned.out
    assert "| noisy validation | test (not used) |" in text
    assert "`elr tune" in text
    assert f"optuna {optuna.__version__}" in text
    assert json.loads((tuned.path / "tune.json").read_text())["choice"]["reason"] in text
    assert "--out DIR`" in text  # no place on this machine


def test_off_a_terminal_every_trial_is_a_line_with_the_time_left_and_without_test_accuracy(tuned):
    # While none ends there is a line a minute, which a slow machine may print.
    ended = [line for line in tuned.err.splitlines() if line.startswith("[") and " epoch " not in line]
    assert [line.partition("]")[0] for line in ended] == [f"[{k}/4" for k in range(1, 5)]
    assert all("validation" in line and "left " in line and "test" not in line for line in ended)
    assert ended[-1].endswith("left 0:00")


def test_a_long_wait_is_not_silent(capsys, monkeypatch):
    lines = elr.cli.tune.Lines()
    status = Status(1, 4, 0, {"lam=1": "epoch 3/60"}, 0.2, 61.0)
    lines.look(status)
    monkeypatch.setattr(lines, "spoke", time.monotonic() - 100)
    lines.look(status)
    lines.look(status)
    assert capsys.readouterr().err == "[1/4] lam=1 epoch 3/60  left 1:01\n"


def test_the_configuration_found_is_one_that_elr_train_runs_to_the_same_weights(tuned, tmp_path, capsys):
    words = ["train", "--config", str(tuned.path / "best.toml"), "--out", str(tmp_path / "run"), "--quiet"]
    assert main([*words, "--runtime.threads", "1"]) == 0
    choice = json.loads((tuned.path / "tune.json").read_text())["choice"]
    point = choice["chosen"]["point"]
    run = tuned.path / "runs" / f"lam={point['method.lam']:g},lr={point['optim.lr']:g}" / "seed0"
    assert (run / "model.safetensors").read_bytes() == (tmp_path / "run" / "model.safetensors").read_bytes()
    assert point["optim.lr"] == 0.02  # 1e-5 learns nothing in three epochs
    settings = tomllib.loads((tuned.path / "best.toml").read_text())
    assert "threads" not in settings["runtime"]
    assert resolve(settings).epochs == 3
    capsys.readouterr()


def test_true_labels_and_test_labels_choose_nothing(tuned, tmp_path):
    """The proof: shuffled, they change the column that is not used, and nothing else."""
    other = write_data(tmp_path / "shuffled", shuffled=True)
    again = run_tune(tmp_path / "grid", str(other), *GRID, "--jobs", "1")
    assert again.code == 0, again.err
    mine, theirs = rows_of(again.path), rows_of(tuned.path)
    column = "test_accuracy_not_used"
    assert [row.pop(column) for row in mine] != [row.pop(column) for row in theirs]
    assert mine == theirs
    found, expected = (json.loads((path / "tune.json").read_text())["choice"] for path in (again.path, tuned.path))
    assert found == expected
    configs = [tomllib.loads((path / "best.toml").read_text()) for path in (again.path, tuned.path)]
    assert configs[0].pop("data") != configs[1].pop("data")  # the path
    assert configs[0] == configs[1]


def trials_in(path: Path) -> list[dict[str, Any]]:
    """What the journal has of trials; every command also says that it opened the study."""
    lines = (path / "optuna.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["op_code"] != 0]


def test_what_is_done_is_not_run_again(tuned, blobs):
    before = {file: file.stat().st_mtime_ns for file in (tuned.path / "runs").rglob("*.*") if file.name != ".lock"}
    journal = trials_in(tuned.path)
    rows = rows_of(tuned.path)
    again = run_tune(tuned.path, str(blobs), *GRID)
    assert again.code == 0
    assert "done already      4 of 4 trials" in again.err
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert trials_in(tuned.path) == journal
    assert rows_of(tuned.path) == rows


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--epochs", "4"], "holds another search: its epochs is 3, here it is 4"),
        (["--search", "method.beta=0.5,0.7"], "holds another search: its search is"),
        (["--seeds", "3"], "holds another search: its seeds is [0], here it is [0, 1, 2]"),
        (["--sampler", "random"], "holds another search: its sampler is 'grid', here it is 'random'"),
        (["--method.lam", "1"], "holds another search: its default is"),
        (["--jobs", "0"], "--jobs must be at least 1, got 0"),
        (["--trails", "3"], "unknown flag '--trails'; did you mean '--trials'"),
        (["--data", "digits"], "data are given twice"),
        (["--search", "optim.lr"], "cannot read --search 'optim.lr'"),
    ],
)
def test_a_folder_of_another_search_and_bad_input_end_in_one_line_and_change_nothing(tuned, blobs, more, words):
    before = {file: file.read_bytes() for file in tuned.path.rglob("*") if file.is_file()}
    done = run_tune(tuned.path, str(blobs), *GRID, *more)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert words in done.err
    assert {file: file.read_bytes() for file in tuned.path.rglob("*") if file.is_file()} == before


def test_data_that_changed_since_are_refused(tuned, tmp_path, blobs):
    arrays = dict(np.load(blobs, allow_pickle=False))
    arrays["y"] = arrays["y"][::-1]
    (tmp_path / "data").mkdir()
    moved = tmp_path / "data" / "blobs.npz"
    np.savez(moved, **arrays)
    words = [str(blobs), *GRID]
    original = blobs.read_bytes()
    blobs.write_bytes(moved.read_bytes())
    try:
        done = run_tune(tuned.path, *words)
    finally:
        blobs.write_bytes(original)
    assert done.code == 2
    assert "holds a search on other data" in done.err


def test_without_a_validation_part_nothing_can_be_chosen(tmp_path, blobs):
    done = run_tune(tmp_path / "grid", str(blobs), *GRID, "--data.val_fraction", "0")
    assert done.code == 2
    assert "blobs.npz has no validation part to judge by; data.val_fraction is 0" in done.err
    assert not (tmp_path / "grid").exists()


def test_other_folders_are_left_alone(tmp_path, blobs, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    assert "is not empty and holds no search" in run_tune(tmp_path / "mine", str(blobs), *GRID).err
    assert "is a file, not a folder" in run_tune(tmp_path / "mine" / "thesis.txt", str(blobs), *GRID).err
    assert main(["tune", str(blobs), *GRID]) == 2
    assert "--out is missing" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_without_optuna_it_is_one_line_that_says_how_to_get_it(tmp_path, blobs, monkeypatch):
    monkeypatch.setattr(elr.cli.tune, "find_spec", lambda name: None)
    done = run_tune(tmp_path / "out", str(blobs), *GRID)
    assert done.code == 2
    assert done.err == 'elr: elr tune needs Optuna: pip install "elr[tune]"\n'
    assert not (tmp_path / "out").exists()


def test_a_dry_run_writes_nothing_and_help_says_why_pruning_is_off(tmp_path, blobs, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["tune", str(blobs), *GRID, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "trials            4, 1 run(s) each" in printed
    assert "expected time     about 0:" in printed
    assert list(tmp_path.iterdir()) == []
    assert main(["tune", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "early curves mislead" in shown
    assert "--method.lam" in shown
    assert main(["tune", "digits", "--method", "elr_plus", "--dry-run", "--data.subset", "60", "--epochs", "1"]) == 0
    assert "note: as in the paper, lam and beta are those found for elr" in capsys.readouterr().out


def test_a_trial_that_fails_is_named_and_the_others_go_on(tmp_path, blobs):
    words = [str(blobs), *SMALL, "--search", "optim.lr=1e30,0.02", "--jobs", "1"]
    for _ in range(2):  # a second command tries it again
        done = run_tune(tmp_path / "grid", *words)
        assert done.code == 1
        assert done.err.splitlines()[-1].startswith("elr: lr=1e+30 failed: the loss became nan in epoch 1")
        rows = rows_of(tmp_path / "grid")
        assert sorted(row["status"] for row in rows) == ["done", "failed"]
        assert (tmp_path / "grid" / "best.toml").exists()
    none = run_tune(tmp_path / "none", *words[:-4], "--search", "optim.lr=1e30", "--jobs", "1")
    assert none.code == 1
    assert "nothing to choose from" in none.out
    assert not (tmp_path / "none" / "best.toml").exists()


def test_ranges_are_searched_by_tpe_and_a_trial_is_the_mean_over_its_seeds(tmp_path, blobs):
    words = [str(blobs), *SMALL, "--search", "optim.lr=1e-4..0.1:log", "--search", "method.lam=1,3", "--sampler", "tpe"]
    words += ["--seeds", "2", "--seed", "5", "--jobs", "1"]
    done = run_tune(tmp_path / "tpe", *words, "--trials", "2")
    assert done.code == 0, done.err
    rows = rows_of(tmp_path / "tpe")
    assert {"optim.lr": 0.02, "method.lam": 3.0} in [row["point"] for row in rows]
    assert all(1e-4 <= row["point"]["optim.lr"] <= 0.1 for row in rows)
    for row in rows:
        runs = tmp_path / "tpe" / "runs" / f"lr={row['point']['optim.lr']!r},lam={row['point']['method.lam']:g}"
        records = [(runs / f"seed{seed}" / "records.jsonl").read_text().splitlines() for seed in (5, 6)]
        assert row["val_accuracy"] == pytest.approx(np.mean([json.loads(r[-1])["val_smoothed"] for r in records]))
    more = run_tune(tmp_path / "tpe", *words, "--trials", "3")  # a search may go on
    assert "done already      2 of 3 trials" in more.err
    assert len(json.loads((tmp_path / "tpe" / "tune.json").read_text())["trials"]) == 3


def test_a_pruned_trial_is_stopped_and_never_chosen(tmp_path, blobs, monkeypatch):
    monkeypatch.setattr(study, "STARTUP", 1)
    monkeypatch.setattr(elr.tune.work, "GLANCE", 0.02)
    words = [str(blobs), *SMALL, "--epochs", "120", "--search", "optim.lr=0.02,1e-7", "--prune", "median"]
    done = run_tune(tmp_path / "grid", *words, "--jobs", "1")
    assert done.code == 0, done.err
    slow, fast = sorted(json.loads((tmp_path / "grid" / "tune.json").read_text())["trials"], key=lambda r: r["status"])[
        ::-1
    ]
    assert (slow["status"], slow["chosen"], fast["chosen"]) == ("pruned", False, True)
    assert slow["note"].startswith("pruned at epoch ")
    assert slow["note"] in done.out
    epochs = len((tmp_path / "grid" / "runs" / "lr=1e-07" / "seed0" / "records.jsonl").read_text().splitlines())
    assert 60 <= epochs < 120


LONG = [*SMALL, "--epochs", "40", "--search", "method.lam=1,3,5", "--jobs", "1"]


@pytest.fixture(scope="module")
def undisturbed(blobs: Path, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    return run_tune(tmp_path_factory.mktemp("tune") / "long", str(blobs), *LONG)


def epochs_of(out: Path) -> dict[Path, int]:
    """Epochs of every run that has begun and not ended."""
    files = [file for file in out.glob("runs/*/seed0/timing.jsonl") if not file.with_name("summary.json").exists()]
    return {file: file.read_bytes().count(b"\n") for file in files}


def heads(files: list[Path]) -> list[list[str]]:
    """What the first epochs took, which is never the same twice."""
    return [file.read_text().splitlines()[:3] for file in files]


def test_a_search_that_is_terminated_goes_on_in_the_middle_of_a_trial(undisturbed, blobs, tmp_path):
    out = tmp_path / "grid"
    hit: list[Path] = []

    def terminate() -> None:
        while not (found := [file for file, count in epochs_of(out).items() if 5 <= count < 30]):
            time.sleep(0.01)
        hit.extend(found)
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        os.kill(os.getpid(), signal.SIGTERM)

    killer = threading.Thread(target=terminate, daemon=True)
    killer.start()
    first = run_tune(out, str(blobs), *LONG)
    killer.join(60)
    assert first.code == 1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    statuses = [row["status"] for row in json.loads((out / "tune.json").read_text())["trials"]]
    assert statuses.count("running") == 1
    assert f"interrupted; {statuses.count('done')} of 3 trials are done in" in first.err
    assert "the same command goes on where it stopped" in first.err
    assert not (out / "best.toml").exists()
    before = heads(hit)
    again = run_tune(out, str(blobs), *LONG)
    assert again.code == 0, again.err
    assert heads(hit) == before
    assert rows_of(out) == rows_of(undisturbed.path)
    assert sum(entry["op_code"] == 4 for entry in trials_in(out)) == 3  # trials created: none anew


def start(blobs: Path, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "elr", "tune", str(blobs), *LONG, "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, env=environment, text=True, start_new_session=True, **quiet)


def test_two_commands_share_the_work_and_when_one_is_killed_the_other_finishes_its_trial(undisturbed, blobs, tmp_path):
    """The first is frozen in the middle of a trial: alive, so nobody may take that from it. Then it is killed."""
    out = tmp_path / "grid"
    process = start(blobs, out)
    while not (begun := [file for file, count in epochs_of(out).items() if count >= 3]):
        assert process.poll() is None
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGSTOP)
    frozen, before = begun[0].read_bytes(), heads(begun)
    left_alone: list[bool] = []

    def kill() -> None:
        while not any(count >= 3 for file, count in epochs_of(out).items() if file not in begun):
            time.sleep(0.005)
        left_alone.append(begun[0].read_bytes() == frozen)
        process.kill()
        os.killpg(process.pid, signal.SIGCONT)  # what trained for it sees that it is gone, and ends

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    done = run_tune(out, str(blobs), *LONG)
    killer.join(60)
    assert process.wait(60) == -signal.SIGKILL
    assert left_alone == [True]
    assert done.code == 0, done.err
    assert rows_of(out) == rows_of(undisturbed.path)
    assert heads(begun) == before
    assert sum(entry["op_code"] == 4 for entry in trials_in(out)) == 3  # trials created: none anew


# The picture


def row(lam: float, beta: float, value: float, **marks: bool) -> dict[str, Any]:
    found = {"point": {"lam": lam, "beta": beta}, "status": "done", "val_accuracy": value, "standard_error": 0.02}
    return {**found, "best": False, "chosen": False, "near": False, "default": False, **marks}


AXES = [
    {"key": "lam", "name": "lam", "values": [1.0, 3.0], "log": False},
    {"key": "beta", "name": "beta", "values": [0.5, 0.7], "log": False},
]


@pytest.mark.parametrize("kind", ["heat map", "panels"])
def test_a_picture_of_the_same_numbers_is_the_same_file(tmp_path, kind):
    axes = AXES if kind == "heat map" else [{**AXES[0], "values": None, "log": True}, AXES[1]]
    rows = [row(1, 0.5, 0.6, best=True), row(3, 0.7, 0.59, chosen=True, default=True, near=True), row(3, 0.5, 0.4)]
    rows.append({**row(1, 0.7, 0.0), "status": "failed", "val_accuracy": None})
    for name in ("a", "b"):
        paths = draw_search(rows, axes, "title", "accuracy", tmp_path / name)
        assert [path.suffix for path in paths] == [".png", ".svg"]
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert draw_search(rows[-1:], axes, "title", "accuracy", tmp_path / "c") == []


# The documentation


def test_the_documentation_shows_the_result_that_is_committed():
    text = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")
    page = (ROOT / "results" / "tune_digits" / "trials.md").read_text(encoding="utf-8")
    assert page.partition("\n\n")[2] in text
