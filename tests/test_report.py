"""Files of a run and numbers about predictions."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elr.report import machine, records
from elr.report.comparison import draw_comparison
from elr.report.figure1 import draw_figure1
from elr.report.machine import facts
from elr.report.metrics import accuracy, fractions, selected, smoothed
from elr.report.records import append_line, keep_lines, read_json, read_lines, replacing, write_json, write_text

# Metrics


def test_fractions_are_those_of_figure_1_by_hand() -> None:
    true = np.array([0, 0, 1, 1, 2, 2, 2, 2])
    labels = np.array([0, 0, 1, 1, 0, 0, 1, 1])  # four clean, four wrong
    predicted = np.array([0, 1, 1, 1, 2, 0, 0, 1])  # wrong labels: right, memorised, neither, memorised
    assert fractions(predicted, labels, true) == {
        "clean_correct": 0.75,
        "wrong_correct": 0.25,
        "wrong_memorized": 0.5,
        "wrong_other": 0.25,
    }


def test_a_group_without_examples_is_left_out() -> None:
    y = np.array([0, 1])
    assert fractions(y, y, y) == {"clean_correct": 1.0}
    assert set(fractions(y, 1 - y, y)) == {"wrong_correct", "wrong_memorized", "wrong_other"}


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=60))
def test_fractions_of_wrong_labels_add_up_and_agree_with_the_accuracy(rows: list[tuple[int, int, int]]) -> None:
    predicted, labels, true = np.array(rows).T
    found = fractions(predicted, labels, true)
    wrong = labels != true
    if wrong.any():
        assert found["wrong_correct"] + found["wrong_memorized"] + found["wrong_other"] == pytest.approx(1.0)
    right = found.get("clean_correct", 0.0) * (~wrong).sum() + found.get("wrong_correct", 0.0) * wrong.sum()
    assert right / len(rows) == pytest.approx(accuracy(predicted, true))


def test_smoothing_is_a_trailing_mean() -> None:
    assert smoothed([1.0, 2.0, 3.0, 7.0]) == [1.0, 1.5, 2.0, 4.0]


def test_one_lucky_epoch_is_not_selected() -> None:
    values = [0.5, 0.6, 0.6, 0.9, 0.2, 0.75, 0.75, 0.75, 0.7]
    assert np.argmax(values) == 3
    assert selected(values) == 7
    assert selected([0.1, 0.3, 0.3, 0.3]) == 3
    assert selected([0.5, 0.5, 0.5]) == 0  # the first of equals: no epoch later than need be


@given(st.lists(st.sampled_from([0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=30))
def test_selecting_epoch_by_epoch_agrees_with_selecting_at_the_end(values: list[float]) -> None:
    """The engine keeps weights when the newest smoothed value beats all before it."""
    curve = smoothed(values)
    kept = [k for k in range(len(curve)) if k == 0 or curve[k] > max(curve[:k])]
    assert kept[-1] == selected(values)


# Records


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    given = [{"epoch": 1, "loss": 0.1 + 0.2}, {"epoch": 2, "loss": -3.5e-17}]
    for record in given:
        append_line(tmp_path / "records.jsonl", record)
    assert read_lines(tmp_path / "records.jsonl") == given


def test_a_line_cut_by_a_crash_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    append_line(path, {"epoch": 1})
    with open(path, "a") as file:
        file.write('{"epoch": 2, "lo')
    assert read_lines(path) == [{"epoch": 1}]
    keep_lines(path, read_lines(path))
    append_line(path, {"epoch": 2})
    assert read_lines(path) == [{"epoch": 1}, {"epoch": 2}]


def test_records_that_do_not_exist_are_none(tmp_path: Path) -> None:
    assert read_lines(tmp_path / "records.jsonl") == []


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text("half of") // 0
    assert read_json(path) == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]


def test_a_process_killed_while_it_writes_leaves_the_old_file(tmp_path: Path) -> None:
    write_text(tmp_path / "config.toml", "old")
    script = """
import os, runpy, signal, sys
from pathlib import Path
with runpy.run_path(sys.argv[1])["replacing"](Path(sys.argv[2])) as temporary:
    temporary.write_text("new")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    words = [sys.executable, "-c", script, records.__file__, str(tmp_path / "config.toml")]
    done = subprocess.run(words, check=False)
    assert done.returncode == -9
    assert (tmp_path / "config.toml").read_text() == "old"


def test_an_unreadable_json_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"a": ')
    with pytest.raises(ValueError, match=r"broken\.json is not valid JSON"):
        read_json(tmp_path / "broken.json")


# Figure 1


def test_figure_1_is_drawn_the_same_every_time(tmp_path: Path) -> None:
    curves = [
        {"epoch": e, "clean_correct": e / 4, "wrong_correct": 0.5, "wrong_memorized": e / 8, "wrong_other": 0.5 - e / 8}
        for e in range(1, 5)
    ]
    paths = draw_figure1({"cross entropy": curves, "ELR": curves[:2]}, tmp_path / "one")
    draw_figure1({"cross entropy": curves, "ELR": curves[:2]}, tmp_path / "two")
    assert [path.name for path in paths] == ["one.png", "one.svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    svg = paths[1].read_text()
    assert svg == (tmp_path / "two.svg").read_text()
    assert all(word in svg for word in ("cross entropy", "ELR", "clean labels", "wrong labels", "memorized", "epoch"))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["one.png", "one.svg", "two.png", "two.svg"]


# Comparison


def comparison_rows() -> list[dict[str, Any]]:
    rows = []
    for noise, rate in (("symmetric", 0.4), ("none", 0.0)):
        for method, result, last, chosen in (
            ("ce", "last", 0.7, 0.9),
            ("early_stopping", "selected", 0.7, 0.9),
            ("elr", "last", 0.95, 0.94),
        ):
            row = {"noise": noise, "rate": rate, "method": method, "result": result, "status": "done"}
            rows += [{**row, "test_accuracy": last + s / 100, "selected_test_accuracy": chosen} for s in range(2)]
    return [*rows, {**rows[0], "status": "not run", "test_accuracy": None, "selected_test_accuracy": None}]


def test_a_comparison_is_drawn_the_same_every_time_best_result_on_top(tmp_path: Path) -> None:
    first = draw_comparison(comparison_rows(), tmp_path / "a")
    second = draw_comparison(comparison_rows(), tmp_path / "b")
    assert [path.suffix for path in first] == [".png", ".svg"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    text = first[1].read_text(encoding="utf-8")
    titles = [text.index(f"<!-- {word} -->") for word in ("elr", "early_stopping", "ce", "symmetric, 40 %", "none")]
    # The axis is drawn from below: ce, then what was stopped early by its chosen epoch, then elr.
    assert titles[2] < titles[1] < titles[0] < titles[4]


def test_a_comparison_without_tests_is_not_drawn(tmp_path: Path) -> None:
    rows = [{**row, "test_accuracy": None} for row in comparison_rows()]
    assert draw_comparison(rows, tmp_path / "a") == []
    assert not list(tmp_path.iterdir())


# Facts about the machine


def test_facts_tell_versions_and_machine() -> None:
    found = facts()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert {"torch", "numpy", "scikit-learn", "platform", "cpu", "cores", "commit"} <= set(found)
    json.dumps(found)


def test_an_installed_copy_inside_somebody_elses_checkout_claims_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    copy = tmp_path / "machine.py"
    copy.write_text(Path(machine.__file__).read_text())
    monkeypatch.setattr(machine, "__file__", str(copy))
    assert facts()["commit"] is None
