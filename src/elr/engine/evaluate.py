"""How good the networks are: the one place that hands true labels and test labels to the metrics."""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elr.data import Data, Examples
from elr.data.stream import place
from elr.engine.witness import Witness
from elr.methods.base import Method
from elr.report.gradients import gradient_entries
from elr.report.metrics import TOP, accuracy, fractions, top_k

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EvaluateConfig:
    """How often to look. Validation accuracy is computed every epoch, since it chooses the epoch."""

    test_every: int = field(default=1, metadata={"help": "epochs between test accuracies (0: only at the end)"})
    train_every: int = field(
        default=1,
        metadata={"help": "epochs between sweeps of the training set when truth is known (0: only at the end)"},
    )
    batch_size: int = field(default=512, metadata={"help": "examples in a batch of evaluation"})
    terms: bool = field(
        default=False,
        metadata={
            "help": "record with each sweep how labels and regularizer act on the gradient, and how right targets are"
        },
    )
    memory: float | None = field(
        default=None,
        metadata={"help": "beta of a running average of validation predictions, whose accuracy is recorded"},
    )
    evidence: bool = field(default=True, metadata={"help": "keep for `elr audit` what training sees of each example"})
    evidence_every: int = field(
        default=5,
        metadata={"help": "epochs between sweeps for evidence, under a method that predicts mixed inputs only"},
    )

    def __post_init__(self) -> None:
        for name in ("test_every", "train_every"):
            if getattr(self, name) < 0:
                raise ValueError(f"evaluate.{name} must be at least 0, got {getattr(self, name)}")
        for name in ("batch_size", "evidence_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"evaluate.{name} must be at least 1, got {getattr(self, name)}")
        if self.memory is not None and not 0 <= self.memory < 1:
            raise ValueError(f"evaluate.memory must lie in [0, 1), got {self.memory}")


class Evaluator:
    """Evaluation-mode, un-augmented predictions on the splits of a data set.

    ``precision`` is the context in which networks predict: while a run looks at itself, that of its training.
    """

    def __init__(
        self,
        data: Data,
        config: EvaluateConfig,
        device: torch.device,
        *,
        channels_last: bool = False,
        precision: AbstractContextManager[None] | None = None,
    ) -> None:
        self.data = data
        self.config = config
        self.device = device
        self.channels_last = channels_last
        self.precision = nullcontext() if precision is None else precision
        # What must survive a restart, by name: the running average of validation predictions, (n, C).
        self.state: dict[str, Tensor] = {}

    @torch.inference_mode()
    def probabilities(self, method: Method, examples: Examples) -> npt.NDArray[np.float32]:
        """Class probabilities of a split in its own order, (n, C)."""
        training = method.training
        method.eval()
        channels_last = self.channels_last and len(examples.inputs.shape) == 3
        keys = examples.keys
        out = []
        for rows in torch.split(torch.arange(len(examples.y)), self.config.batch_size):
            x = self.data.transform(examples.inputs.fetch(rows), keys[rows], None)
            with self.precision:
                out.append(method.predict(place(x, self.device, channels_last)).float().cpu())
        method.train(training)
        return torch.cat(out).numpy()

    def epoch(self, method: Method, epoch: int, *, last: bool, witness: Witness | None = None) -> dict[str, float]:
        """What is due at the end of this epoch (counted from 1). The witness sees every prediction it may see."""
        result: dict[str, float] = {}
        if self.data.val is not None:
            p = self.probabilities(method, self.data.val)
            result["val_accuracy"] = accuracy(p.argmax(axis=1), self.data.val.y)
            result |= self._average(p, self.data.val)
            if witness is not None:
                witness.held_out(p, epoch)
        if last or _due(epoch, self.config.test_every):
            result |= self.test(method)
        lacks = witness is not None and witness.lacks(epoch, last=last)
        known = self.data.train.y_true is not None and (last or _due(epoch, self.config.train_every))
        if not (known or lacks):
            return result
        started = time.perf_counter()
        p = self.probabilities(method, self.data.train)
        if witness is not None and lacks:
            witness.swept(p, epoch)
            if not known:
                witness.seconds = time.perf_counter() - started
        return result | self._fates(method, p)

    def test(self, method: Method) -> dict[str, float]:
        """Test accuracy, if there is a test split, and top-5 if classes are more; against true labels if known."""
        test = self.data.test
        if test is None:
            return {}
        labels = test.y if test.y_true is None else test.y_true
        p = self.probabilities(method, test)
        result = {"test_accuracy": accuracy(p.argmax(axis=1), labels)}
        if self.data.num_classes > TOP:
            result["test_top5"] = top_k(p, labels)
        return result

    def sweep(self, method: Method) -> dict[str, float]:
        """What became of clean and of wrong training labels, if the truth is known."""
        if self.data.train.y_true is None:
            return {}
        return self._fates(method, self.probabilities(method, self.data.train))

    def _fates(self, method: Method, p: Floats) -> dict[str, float]:
        train = self.data.train
        if train.y_true is None:
            return {}
        found = fractions(p.argmax(axis=1), train.y, train.y_true)
        return found | self._terms(method, p, train.y, train.y_true) if self.config.terms else found

    def _terms(self, method: Method, p: Floats, y: Ints, true: Ints) -> dict[str, float]:
        """Entries of the gradient at the true class, and how often what the method believes is true."""
        pull = method.pull(torch.from_numpy(p).to(self.device))
        found = gradient_entries(p, None if pull is None else pull.cpu().numpy(), y, true)
        if (belief := method.belief()) is not None:
            found["target_accuracy"] = accuracy(belief.mean(dim=0).argmax(dim=1).cpu().numpy(), true)
        return found

    def _average(self, p: Floats, val: Examples) -> dict[str, float]:
        """Temporal ensembling of rows that nothing is learned from."""
        if self.config.memory is None:
            return {}
        held = self.state.setdefault("held", torch.zeros(p.shape))
        held.mul_(self.config.memory).add_(torch.from_numpy(p), alpha=1 - self.config.memory)
        true = val.y if val.y_true is None else val.y_true
        return {"held_accuracy": accuracy(held.argmax(dim=1).numpy(), true)}


def _due(epoch: int, every: int) -> bool:
    return every > 0 and epoch % every == 0
