"""scikit-learn's door: fit and predict on arrays, in memory, nothing written to disk."""

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from elr.config import Config, resolve
from elr.data import Data, Examples, from_arrays
from elr.data.inputs import as_inputs
from elr.engine.evaluate import EvaluateConfig, Evaluator
from elr.engine.train import Job, Outcome, Progress, Silent, train
from elr.fit import flatten
from elr.methods.base import Method, check_range
from elr.parts.table import ExampleTable
from elr.run import model_function

_TABLES = ("method", "model", "schedule")  # parameters that are a name, or a table of a name and arguments


class NoisyLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A network trained to stay right when some labels of ``y`` are wrong.

    ``X`` is (n, D); for image models (n, H, W), (n, H, W, C) or (n, C, H, W), uint8 or float. Labels may be strings,
    integers or booleans. ``method__lam=7`` sets one entry of a table, so a grid search can go over it.

    Args:
        method: a name (``elr methods`` lists them), or a table such as ``{"name": "elr", "lam": 7}``.
        model: a name (``elr models`` lists them), a table such as ``{"name": "mlp", "hidden": (64,)}``, a module, or a
            function that builds one. A module is copied, never trained itself.
        epochs: epochs to train.
        lr: learning rate at its peak.
        momentum: of SGD, in [0, 1).
        weight_decay: L2 coefficient.
        batch_size: examples in a batch; all of them if there are fewer.
        schedule: learning-rate schedule: constant, multistep, cosine, onecycle, or a table.
        validation_fraction: part of the rows to hold out, stratified, for choosing an epoch. None: .1 for a method that
            predicts with the epoch chosen (early_stopping), 0 for one that predicts with the last. Where a class would
            lose its last row, nothing is held out.
        standardize: shift and scale features (channels of images) by mean and deviation of the training rows.
        augment: shift training images at random by up to an eighth of their side.
        device: auto, cpu, cuda, cuda:1, mps. Weights come back to the CPU after training.
        random_state: an integer gives the same model every time; a RandomState or Generator is drawn from once; None is
            new entropy for every fit. No global generator is read, seeded or advanced.
        verbose: show progress on standard error.

    Attributes:
        classes_: (C,) labels in the order of the probabilities.
        n_features_in_: features seen by ``fit``; the length of the first axis after the rows.
        feature_names_in_: names of the columns, if ``X`` was a data frame with names.
        method_: the trained method, a ``torch.nn.Module`` with its networks in ``nets``.
        records_: one dictionary for each epoch: loss, learning rate, validation accuracy, what the method logs.
        n_iter_: epochs trained.
        selected_epoch_: epoch of the best smoothed validation accuracy, from 1; None without validation rows.
        targets_: see below.
    """

    def __init__(
        self,
        method: str | Mapping[str, Any] = "elr",
        model: str | Mapping[str, Any] | nn.Module | Callable[[], nn.Module] = "mlp",
        *,
        epochs: int = 60,
        lr: float = 0.05,
        momentum: float = 0.9,
        weight_decay: float = 1e-3,
        batch_size: int = 64,
        schedule: str | Mapping[str, Any] = "onecycle",
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

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on X (n, ...) and the labels given, y (n,)."""
        X, y = validate_data(self, X, y, allow_nd=True)
        check_classification_targets(y)
        classes, numbers = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y has one class only, {classes[0]!r}; a classifier needs two or more")
        config = self._config(numbers)
        data = from_arrays(X, numbers, config=config.data, seed=config.seed)
        named = isinstance(self.model, str | Mapping)
        maker = config.model_maker(data.shape, len(classes)) if named else model_function(self.model)
        method, schedule = config.make_method(), config.make_schedule()
        progress = self._progress(config)
        outcome = train(
            Job(
                method, maker, data, config.epochs, config.optim, schedule, config.evaluate, config.runtime,
                config.seed, progress=progress,
            )
        )  # fmt: skip
        self.classes_ = classes
        self._keep(method, data, outcome, len(numbers))
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float32]:
        """Class probabilities, (n, C), columns in the order of ``classes_``."""
        check_is_fitted(self, "method_")
        inputs = as_inputs(validate_data(self, X, reset=False, allow_nd=True), "X")
        if inputs.shape != self._shape:
            raise ValueError(f"an example of X has shape {inputs.shape}, the model was fitted on {self._shape}")
        n = len(inputs)
        examples = Examples(inputs, np.zeros(n, dtype=np.int64), np.arange(n))
        data = Data("X", examples, None, None, tuple(map(str, self.classes_)), self._transform)
        import torch

        return Evaluator(data, EvaluateConfig(), torch.device("cpu")).probabilities(self.method_, examples)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each row, (n,)."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _config(self, numbers):
        fraction = 0.0
        return resolve(
            flatten(
                {
                    "method": self.method,
                    "model": self.model,
                    "epochs": self.epochs,
                    "seed": int(self.random_state or 0),
                    "schedule": self.schedule,
                    "optim": {
                        "lr": self.lr,
                        "momentum": self.momentum,
                        "weight_decay": self.weight_decay,
                        "batch_size": self.batch_size,
                    },
                    "data": {"val_fraction": fraction, "standardize": self.standardize, "augment": self.augment},
                    "runtime": self.device,
                }
            )
        )

    def _progress(self, config):
        return Silent()

    def _keep(self, method, data, outcome, n):
        self.method_ = method.cpu().eval()
        self._shape = data.train.inputs.shape
        self._transform = data.transform
        self.records_ = outcome.records
