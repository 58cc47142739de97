"""A run on disk: where its files are, and how to use what was trained."""

import copy
import shlex
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from elr.audit.issues import LabelIssues
from elr.audit.of_run import audit_run
from elr.audit.threshold import Cut
from elr.config import CUSTOM, Config, read_toml, resolve
from elr.data import Data, DataConfig, Examples, from_description, load_unlabelled
from elr.data.inputs import as_inputs, in_units_of
from elr.data.load import PYTHON
from elr.data.stream import Inputs
from elr.engine.checkpoint import read_tensors
from elr.engine.device import RuntimeConfig, private_randomness
from elr.engine.evaluate import EvaluateConfig, Evaluator
from elr.methods.base import Method
from elr.report.records import Record, read_json, read_lines

Which = Literal["last", "selected", "result"]


class Run:
    """Handle on a run directory. Reads lazily; never writes.

    Args:
        path: the run directory.
        model: for a run on a network of your own: the module, or a function that builds it.
    """

    def __init__(self, path: str | Path, model: nn.Module | Callable[[], nn.Module] | None = None) -> None:
        self.path = Path(path)
        self._model = model
        if not (self.path / "config.toml").is_file():
            raise FileNotFoundError(f"{self.path} is not a run: it has no config.toml")

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @cached_property
    def config(self) -> Config:
        """The resolved configuration."""
        path = self.path / "config.toml"
        settings = read_toml(path)
        try:
            return resolve(settings, trained=True)
        except ValueError as error:  # of another version, or edited
            raise ValueError(f"{path}: {error}") from error

    @property
    def finished(self) -> bool:
        """Whether training reached its last epoch."""
        return (self.path / "summary.json").is_file()

    @property
    def summary(self) -> dict[str, Any]:
        """Headline numbers; raises if the run is not finished."""
        if not self.finished:
            raise FileNotFoundError(self._unfinished())
        return self._table("summary.json")

    @property
    def records(self) -> list[Record]:
        """One record for each epoch: deterministic quantities only."""
        return read_lines(self.path / "records.jsonl")

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Sizes, input shape and transform of the data."""
        return self._table("data.json")

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the probabilities."""
        return tuple(self._read("classes.json", list))

    def _table(self, name: str) -> dict[str, Any]:
        return dict(self._read(name, dict))

    def _read(self, name: str, kind: type) -> Any:
        """A JSON file that every run has soon after it began."""
        path = self.path / name
        if not path.is_file():
            raise FileNotFoundError(f"{self.path} is only half written: it has no {name}")
        value = read_json(path)
        if not isinstance(value, kind):
            raise ValueError(f"{path} is damaged: it holds no {'table' if kind is dict else kind.__name__}")
        return value

    def method(self, which: Which = "result") -> Method:
        """The trained method: of the ``last`` epoch, the one ``selected`` on validation, or the method's ``result``."""
        if which not in get_args(Which):
            raise ValueError(f"which must be one of {', '.join(get_args(Which))}, got {which!r}")
        if not self.finished:
            raise FileNotFoundError(self._unfinished())
        method = self.config.make_method(trained=True)
        shape, classes = tuple(self.facts["shape"]), len(self.classes)
        if self._model is not None:
            maker = model_function(self._model)
        else:
            maker = self.config.model_maker(shape, classes, trained=True)
        # Weights are drawn, then replaced. No waiting: who predicts must not stand still while another thread trains.
        with private_randomness(torch.device("cpu"), wait=False):
            method.build(lambda k=0: maker(), self.facts["train_examples"], classes)
        if which == "result":  # without validation nothing was selected, and the last epoch is the result
            chosen = method.keeps == "selected" and (self.path / "selected.safetensors").is_file()
            which = "selected" if chosen else "last"
        name = "model" if which == "last" else "selected"
        tensors, _ = read_tensors(self.path / f"{name}.safetensors")
        try:
            method.load_state_dict(tensors)
        except RuntimeError as error:
            raise ValueError(f"the network does not fit the weights of {self.path}: {_second_line(error)}") from error
        return method.eval()

    def predict_proba(self, x: Any, *, which: Which = "result", batch_size: int = 512) -> npt.NDArray[np.float32]:
        """Class probabilities (n, C) of raw inputs: an array, or a path (image folder, manifest, .npz)."""
        if isinstance(x, str | Path):
            return self.probabilities(
                load_unlabelled(self.input_config(str(x))).inputs, which=which, batch_size=batch_size
            )
        return self.probabilities(as_inputs(x, "x"), which=which, batch_size=batch_size)

    def predict(self, x: Any, *, which: Which = "result") -> npt.NDArray[Any]:
        """Predicted classes: names, or whole numbers where the labels were such."""
        best = self.predict_proba(x, which=which).argmax(axis=1)
        names = np.array(self.classes)
        return np.asarray((names.astype(np.int64) if self.facts.get("labels") == "numbers" else names)[best])

    def probabilities(
        self, inputs: Inputs, *, which: Which = "result", batch_size: int = 512
    ) -> npt.NDArray[np.float32]:
        """Class probabilities of loaded inputs."""
        inputs = self.as_trained(inputs)
        n = len(inputs)
        examples = Examples(inputs, np.zeros(n, dtype=np.int64), np.arange(n))
        transform = from_description(self.facts["transform"])
        data = Data("inputs", examples, None, None, self.classes, transform)
        device = self._device()
        layout = self.config.runtime.layout(device)
        evaluator = Evaluator(data, EvaluateConfig(batch_size=batch_size), device, channels_last=layout)
        method = self.method(which).to(device)
        return evaluator.probabilities(method.to(memory_format=torch.channels_last) if layout else method, examples)

    def _device(self) -> torch.device:
        """Where the run was trained, if that is here; else wherever ``auto`` is."""
        try:
            return self.config.runtime.resolved_device()
        except ValueError:
            return RuntimeConfig().resolved_device()

    @property
    def needs_python(self) -> bool:
        """Whether data or network were given as objects, so that the command line cannot train this again."""
        return self.config.data.source.startswith(PYTHON) or self.config.model.name.startswith(CUSTOM)

    def _unfinished(self) -> str:
        if self.needs_python:
            return f"{self.path} is not finished: go on with elr.fit(..., out={str(self.path)!r}, resume=True)"
        return f"{self.path} is not finished: go on with `elr train --out {shlex.quote(str(self.path))} --resume`"

    def as_trained(self, inputs: Inputs) -> Inputs:
        """The same inputs in the units of those that the run was trained on; one clear line where they do not fit."""
        if tuple(inputs.shape) != tuple(self.facts["raw_shape"]):
            raise ValueError(
                f"inputs have shape {tuple(inputs.shape)}, the run was trained on {tuple(self.facts['raw_shape'])}"
            )
        return in_units_of(self.facts.get("pixels"), inputs)

    def label_issues(self, threshold: float | None = None) -> LabelIssues:
        """Which of the labels the run was given look wrong: a row for every example, training and validation.

        Args:
            threshold: quality below which a label counts as found, if another class is likelier (default .5: more
                likely wrong than right); ``elr audit`` has lists by precision and length.
        """
        return audit_run(self.path, Cut(threshold))

    def input_config(self, source: str) -> DataConfig:
        """How to read new inputs like those the run was trained on."""
        trained = self.config.data
        size = self.facts["raw_shape"][-1] if len(self.facts["raw_shape"]) == 3 else None
        # Where data sets are; but below it, the relative paths of another manifest would be the training pictures.
        root = None if Path(source).is_file() else trained.root
        columns = {
            name: getattr(trained, name) for name in ("path_column", "label_column", "split_column", "id_column")
        }
        return DataConfig(source=source, image_size=size, root=root, on_bad_file=trained.on_bad_file, **columns)


def _second_line(error: RuntimeError) -> str:
    """torch's first line says that something does not fit, the second what."""
    lines = str(error).splitlines()
    return lines[min(1, len(lines) - 1)].strip()


def model_function(model: nn.Module | Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """A function that builds the network: a module is copied, a function is itself."""
    if isinstance(model, nn.Module):
        return lambda: copy.deepcopy(model)
    if not callable(model):
        raise ValueError(f"model must be a name, a table, a module or a function that builds one, got {model!r}")
    return model
