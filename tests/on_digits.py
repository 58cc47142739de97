"""Digits, 40 % of whose labels are replaced: each method does there what it is known for, and true labels can tell."""

from functools import cache
from typing import Any

from elr.config import Config, resolve
from elr.data import Data, load
from elr.demo import SETTINGS
from elr.engine.train import Job, train
from elr.methods.base import Method
from elr.report.records import Record

AT_THE_END = {"evaluate.test_every": 0, "evaluate.train_every": 0, "evaluate.evidence": False}


@cache
def digits(*, augment: bool = False) -> Data:
    config = resolve({**SETTINGS, "data.augment": augment})
    return load(config.data, config.noise, config.seed)


def teach(method: Method, epochs: int, *, augment: bool = False, **settings: Any) -> list[Record]:
    """Train a method that the test has in its hands; returns what was recorded."""
    return _train(method, resolve({**SETTINGS, **AT_THE_END, "epochs": epochs, **settings}), digits(augment=augment))


@cache
def taught(name: str, epochs: int, *, test_every: int = 0, **arguments: Any) -> tuple[Method, list[Record]]:
    """A method by its name and arguments, trained once for all tests that ask for it."""
    own = {f"method.{key}": value for key, value in arguments.items()}
    looks = {**AT_THE_END, "evaluate.test_every": test_every}
    config = resolve({**SETTINGS, **looks, "method.name": name, "epochs": epochs, **own})
    method = config.make_method()
    return method, _train(method, config, digits())


def _train(method: Method, config: Config, data: Data) -> list[Record]:
    maker = config.model_maker(data.shape, data.num_classes)
    schedule = config.make_schedule()
    return train(
        Job(method, maker, data, config.epochs, config.optim, schedule, config.evaluate, config.runtime)
    ).records
