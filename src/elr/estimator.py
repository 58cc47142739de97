"""The door for scikit-learn: fit and predict on arrays, in memory, nothing written to disk."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from elr.audit.issues import LabelIssues, label_issues
from elr.config import Config, flatten, resolve
from elr.data import Data, Examples, from_arrays
from elr.data.inputs import as_inputs, in_units_of, pixels_of
from elr.data.stream import Inputs
from elr.engine.evaluate import EvaluateConfig, Evaluator
from elr.engine.train import Job, train
from elr.fit import watching
from elr.job.kept import gathered
from elr.job.network import check_network
from elr.methods.base import Method, check_range
from elr.parts.table import normalised
from elr.run import model_function

_TABLES = ("method", "model", "schedule")  # parameters that are a name, or a table of a name and its arguments


class NoisyLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A neural network that stays right when some of the labels it is trained on are wrong.

    X is (n, D), or images as (n, H, W), (n, H, W, C) or (n, C, H, W), uint8 or float; y strings, integers or booleans.
    ``predict`` takes the layout that ``fit`` was given; images of bytes count as x/255, others as they are. Entries of
    tables can be searched over by their names:
    ``GridSearchCV(clf, {"method__lam": [1, 3, 7], "model__hidden": [(64,), (256, 256)]})``.

    Args:
        method: a name (``elr methods`` lists them), or a table such as ``{"name": "elr", "lam": 7}``.
        model: a name (``elr models`` lists them), a table such as ``{"name": "mlp", "hidden": (64,)}``, a module, or a
            function that builds one. A module is copied, never trained itself; methods whose two networks choose for
            each other (co-teaching and kin) need a function.
        epochs: epochs to train.
        lr: learning rate at its peak.
        momentum: of SGD, in [0, 1).
        weight_decay: L2 coefficient.
        batch_size: examples in a batch.
        schedule: learning-rate schedule by name (constant, linear, multistep, cosine, onecycle), or a table.
        validation_fraction: part of the rows to hold out, stratified, to choose an epoch by. None: .1 for a method that
            predicts with the chosen epoch (early_stopping), 0 for one that predicts with the last (all others).
            Nothing is held out where that is less than a row, or would leave a class without any.
        standardize: shift and scale each feature (channel of images) by mean and deviation of the training rows.
        augment: move training images at random by up to an eighth of their side.
        device: auto, cpu, cuda, cuda:1 or mps. The fitted weights stay on the CPU.
        random_state: an integer gives the same model every time; a RandomState or Generator is drawn from once a fit;
            None is another model every time. NumPy's and torch's global generators are left as they are.
        verbose: show a line for each epoch on standard error.

    Attributes:
        classes_: (C,) labels in the order of the probabilities.
        n_features_in_: length of the first axis of an example.
        feature_names_in_: column names, where X had them.
        method_: the trained method, a torch module; ``method_.nets`` are its networks.
        records_: for each epoch a dictionary: loss, learning rate, what the method logs, validation accuracy.
        n_iter_: epochs trained.
        selected_epoch_: epoch with the best smoothed validation accuracy, from 1; None if nothing was held out.
        label_issues_: which labels of y look wrong, a row for each: ``label_issues_["label_quality"]``, ``.worst()``.
        targets_: (n, C) what a method with targets came to believe of each row of ``fit``.
    """

    def __init__(
        self,
        method: str | Mapping[str, Any] = "elr",
        model: str | Mapping[str, Any] | nn.Module | Callable[[], nn.Module] = "mlp",
        *,
        epochs: int = 60,
        lr: float = 0.02,
        momentum: float = 0.9,
        weight_decay: float = 1e-3,
        batch_size: int = 32,
        schedule: str | Mapping[str, Any] = "multistep",
        validation_fraction: float | None = None,
        standardize: bool = True,
        augment: bool = True,
        device: str = "auto",
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.model = model
        self.epochs = epochs
        self.lr = lr
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.schedule = schedule
        self.validation_fraction = validation_fraction
        self.standardize = standardize
        self.augment = augment
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``method__lam=7`` sets one entry of a table and keeps the others."""
        for key in list(params):
            table, separator, name = key.partition("__")
            if separator and table in _TABLES:
                now = params.get(table, getattr(self, table))
                now = {"name": now} if isinstance(now, str) else now
                if not isinstance(now, Mapping):
                    raise ValueError(f"{key} is for a {table} that is given by name; this one is {now!r}")
                params[table] = {**now, name: params.pop(key)}
        super().set_params(**params)
        return self

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on examples X (n, ...) with the labels given, y (n,)."""
        X, y = validate_data(self, X, y, allow_nd=True)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only, {self.classes_.tolist()[0]!r}; a classifier needs two or more")
        config = self._config()
        method = config.make_method()
        held_out = self._held_out(method, len(numbers))
        data = from_arrays(X, numbers, config=replace(config.data, val_fraction=held_out), seed=config.seed)
        maker = self._model_maker(config, data)
        runtime = replace(config.runtime, channels_last=check_network(maker, data))
        job = Job(
            method,
            maker,
            data,
            config.epochs,
            config.optim,
            config.make_schedule(),
            runtime=runtime,
            seed=config.seed,
            progress=watching(bool(self.verbose), config),
        )
        outcome = train(job)
        if method.keeps == "selected" and outcome.selected_state is not None:
            method.load_state_dict(outcome.selected_state)
        self.method_ = method.cpu().eval()
        self.records_ = outcome.records
        self.n_iter_ = len(outcome.records)
        self.selected_epoch_ = outcome.selected_epoch
        self._transform = data.transform
        self._shape = data.train.inputs.shape
        self._pixels = pixels_of(data.train.inputs)
        self._runtime = runtime
        self._rows = len(numbers), data.train.ids  # how many there were, and which of them were trained on
        self._seen = gathered(replace(job, data=replace(data, classes=tuple(map(str, self.classes_)))), outcome)
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float32]:
        """Probability of each class, (n, C), in the order of ``classes_``."""
        check_is_fitted(self, "method_")
        inputs: Inputs = as_inputs(validate_data(self, X, reset=False, allow_nd=True), "X")
        if inputs.shape != self._shape:
            raise ValueError(f"an example of X has shape {inputs.shape}; the model was fitted on {self._shape}")
        inputs = in_units_of(self._pixels, inputs)
        n = len(inputs)
        examples = Examples(inputs, np.zeros(n, dtype=np.int64), np.arange(n))
        data = Data("X", examples, None, None, tuple(map(str, self.classes_)), self._transform)
        runtime = replace(self._runtime, device=self.device)
        device = runtime.resolved_device()
        method = self.method_ if device.type == "cpu" else copy.deepcopy(self.method_).to(device)
        evaluator = Evaluator(data, EvaluateConfig(), device, channels_last=runtime.layout(device))
        return evaluator.probabilities(method, examples)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each example, (n,)."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    @property
    def targets_(self) -> NDArray[np.float32]:
        """What the method came to believe of each row of ``fit``: its targets t, (n, C), normalised to sum to 1.

        Where they disagree with y, suspect the label. Rows held out for validation have no target and are NaN. The
        mean over networks if there are two. Methods without targets (ce, early_stopping) lack this attribute.
        """
        check_is_fitted(self, "method_")
        belief = self.method_.belief()
        if belief is None:
            raise AttributeError(f"method {self.method!r} keeps no targets")
        n, trained = self._rows
        targets = np.full((n, len(self.classes_)), np.nan, dtype=np.float32)
        targets[trained] = torch.stack([normalised(t) for t in belief]).mean(dim=0).numpy()
        return targets

    @property
    def label_issues_(self) -> LabelIssues:
        """Which labels of y look wrong: a row for every row of ``fit``, in its order, with what was seen of it."""
        check_is_fitted(self, "method_")
        assert self._seen is not None
        rows, evidence = self._seen
        own = replace(rows, classes=tuple(self.classes_.tolist()))  # as they are in y, not as text
        return label_issues(own, evidence.belief, evidence)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _config(self) -> Config:
        tables: dict[str, Any] = {
            "method": self.method,
            "schedule": self.schedule,
            "optim": {
                "lr": self.lr,
                "momentum": self.momentum,
                "weight_decay": self.weight_decay,
                "batch_size": self.batch_size,
            },
            "data": {"standardize": self.standardize, "augment": self.augment},
            "runtime": self.device,
            "epochs": self.epochs,
            "seed": _seed(self.random_state),
        }
        if isinstance(self.model, str | Mapping):
            tables["model"] = self.model
        return resolve(flatten(tables))

    def _held_out(self, method: Method, n: int) -> float:
        """The fraction for validation, 0 where the rows do not allow it."""
        fraction = self.validation_fraction
        if fraction is None:
            selects = "selected" in (method.keeps, *(stage.keep for stage in method.plan(self.epochs)))
            fraction = 0.1 if selects else 0.0
        check_range("validation_fraction", fraction, 0.0, 1.0, open_high=True)
        return fraction if 0 < round(fraction * n) <= n - len(self.classes_) else 0.0

    def _model_maker(self, config: Config, data: Data) -> Callable[[], nn.Module]:
        if isinstance(self.model, str | Mapping):
            return config.model_maker(data.shape, data.num_classes)
        return model_function(self.model)


def _seed(state: Any) -> int:
    """One integer for the run. Never NumPy's global generator, which scikit-learn takes for None."""
    if isinstance(state, Integral) and int(state) >= 0:
        return int(state)
    if isinstance(state, np.random.RandomState):
        return int(state.randint(2**63 - 1, dtype=np.int64))
    if state is None or isinstance(state, np.random.Generator):
        return int(np.random.default_rng(state).integers(2**63))
    raise ValueError(
        f"random_state must be a whole number from 0 on, a RandomState, a Generator or None, got {state!r}"
    )
