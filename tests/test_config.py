"""One configuration rule: the same dotted names in TOML, on the command line and in Python, checked in one place."""

import tomllib
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from elr.config import HEADS, flatten, hint, nearest, options, read_toml, resolve
from elr.convert import convert, describe
from elr.engine.schedule import SCHEDULES
from elr.methods import METHODS
from elr.parts.clock import Clock


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("3", int, 3),
        (3.0, int, 3),
        ("0.5", float, 0.5),
        (2, float, 2.0),
        ("1e-4", float, 1e-4),
        ("true", bool, True),
        ("No", bool, False),
        ("0", bool, False),
        (True, bool, True),
        ("none", float | None, None),
        ("", str | None, None),
        ("0.1", float | None, 0.1),
        ("40,80", tuple[int, ...], (40, 80)),
        ([40, 80], tuple[int, ...], (40, 80)),
        ("", tuple[int, ...], ()),
        ("2", Literal[1, 2], 2),
        ("some-thing", Literal["some_thing", "other"], "some_thing"),
        ("reflect", Literal["zeros", "reflect"] | None, "reflect"),
        (np.bool_(True), bool, True),
        (Path("a") / "b.pt", str | Path | None, str(Path("a") / "b.pt")),
    ],
)
def test_values_of_every_declared_type_are_read(value: Any, kind: Any, expected: Any) -> None:
    found = convert(value, kind, "x")
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("3.5", int, "a whole number"),
        (3.5, int, "a whole number"),
        (float("inf"), int, "a whole number"),
        (True, int, "a whole number"),
        (True, float, "a number"),
        (False, str, "text"),
        (3, str, "text"),
        ("maybe", bool, "true or false"),
        (1, bool, "true or false"),
        ("a,b", tuple[int, ...], "whole numbers separated by commas"),
        (3, tuple[int, ...], "whole numbers separated by commas"),
        ("3", Literal[1, 2], "one of 1, 2"),
        ("much", float | None, "a number or none"),
        (10**400, int, "a whole number"),
        (3, str | Path | None, "text or none"),
    ],
)
def test_a_value_of_another_type_is_refused_in_words(value: Any, kind: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=rf"^table\.x must be {expected}, got {value!r}$"):
        convert(value, kind, "table.x")
    assert describe(kind) == expected


def test_naming_a_table_sets_its_head() -> None:
    for table, head in HEADS.items():
        assert f"{table}.{head}" in options()
    short = {"data": "digits", "noise": "none", "method": "ce", "model": "mlp", "schedule": "cosine"}
    long = {f"{table}.{HEADS[table]}": value for table, value in short.items()}
    assert resolve(short) == resolve(long)
    assert flatten({"data": {"source": "digits", "pad": 2}, "method": "ce", "epochs": 3}) == {
        "data.source": "digits",
        "data.pad": 2,
        "method.name": "ce",
        "epochs": 3,
    }


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_resolved_configuration_survives_its_own_file(method: str, schedule: str, tmp_path: Path) -> None:
    config = resolve({"method": method, "schedule": schedule, "noise": "pair", "noise.rate": "0.25", "seed": 7})
    (tmp_path / "config.toml").write_text(config.toml())
    again = resolve(read_toml(tmp_path / "config.toml"))
    assert again == config
    assert again.digest() == config.digest()
    assert again.toml() == config.toml()


def test_the_file_of_a_configuration_holds_every_option_that_is_set() -> None:
    config = resolve({"method": "elr_plus"})
    written = flatten(tomllib.loads(config.toml()))
    assert set(written) == {key for key, value in config.flat().items() if value is not None}


def test_arguments_are_those_of_the_constructor() -> None:
    """A method, model or schedule has one list of arguments: its signature."""
    found = options({"method": "elr_plus", "model": "preact_resnet18", "schedule": "onecycle"})
    assert {"method.gamma", "method.mix_per", "model.final_bn", "schedule.warmup"} <= set(found)
    assert not {"schedule.milestones", "model.dropout"} & set(found)
    assert found["method.gamma"].default == 0.997
    assert found["method.networks"].type == Literal[1, 2]
    method = resolve({"method": "elr", "method.lam": 5}).make_method()
    assert method.lam == 5.0


@pytest.mark.parametrize("name", [*METHODS, *SCHEDULES])
def test_every_option_is_explained(name: str) -> None:
    table = "method" if name in METHODS else "schedule"
    for key, option in options({table: name}).items():
        assert option.help, f"{key} has no help"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("runtime.device", "cpu"),
        ("runtime.threads", 2),
        ("runtime.compile", True),
        ("evaluate.test_every", 5),
        ("data.root", "/elsewhere"),
        ("data.cache", "ram"),
    ],
)
def test_what_does_not_change_the_result_does_not_change_the_identity(setting: str, value: Any) -> None:
    assert resolve({setting: value}).digest() == resolve({}).digest()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("seed", 1),
        ("epochs", 61),
        ("data.source", "cifar10"),
        ("data.augment", False),
        ("data.seed", 1),
        ("noise.kind", "pair"),
        ("method.lam", 2.9),
        ("method.name", "ce"),
        ("model.width", 33),
        ("optim.batch_size", 64),
        ("schedule.factor", 0.1),
        ("schedule.name", "cosine"),
    ],
)
def test_what_changes_the_result_changes_the_identity(setting: str, value: Any) -> None:
    assert resolve({"noise.rate": 0.0, setting: value}).digest() != resolve({}).digest()


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("lam", "did you mean 'method.lam'?"),
        ("batch_size", "did you mean 'optim.batch_size'?"),
        ("method.lamb", "did you mean 'method.lam'?"),
        ("method.zzz", "method 'elr' has lam, beta, floor, clamp_penalty"),
        ("noise.zzz", "noise has rate, seed, file, matrix"),
        ("optm.lr", "did you mean 'optim.lr'?"),
        ("epoch", "did you mean 'epochs'?"),
        ("qqqqqqqq", "--help lists what there is"),
    ],
)
def test_the_nearest_name_is_offered(key: str, expected: str) -> None:
    assert hint(key, options()) == expected


def test_a_name_that_is_near_nothing_is_answered_with_all_there_are() -> None:
    assert nearest("zzz", ["elr", "ce"]) == "choose one of elr, ce"


def test_a_file_with_a_short_and_a_long_form_is_read_alike(tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text('method = "ce"\nepochs = 2\n')
    (tmp_path / "long.toml").write_text('epochs = 2\n[method]\nname = "ce"\n')
    assert read_toml(tmp_path / "short.toml") == read_toml(tmp_path / "long.toml")


def test_multistep_drops_after_thirds_unless_told() -> None:
    schedule = resolve({"epochs": 9}).make_schedule()
    rates = [schedule(Clock(0, epoch=epoch, epochs=9), 1.0) for epoch in range(9)]
    assert rates == pytest.approx([1.0] * 3 + [0.01] * 3 + [0.0001] * 3)
