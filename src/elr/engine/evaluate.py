"""How good the networks are: the one place that hands true labels and test labels to the metrics."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from elr.data import Data, Examples
from elr.data.stream import place
from elr.methods.base import Method
from elr.report.metrics import accuracy, fractions


@dataclass(frozen=True)
class EvaluateConfig:
    """How often to look. Validation accuracy is computed every epoch, since it chooses the epoch."""

    test_every: int = field(default=1, metadata={"help": "epochs between test accuracies (0: only at the end)"})
    train_every: int = field(
        default=1,
        metadata={"help": "epochs between sweeps of the training set when truth is known (0: only at the end)"},
    )
    batch_size: int = field(default=512, metadata={"help": "examples in a batch of evaluation"})

    def __post_init__(self) -> None:
        for name in ("test_every", "train_every"):
            if getattr(self, name) < 0:
                raise ValueError(f"evaluate.{name} must be at least 0, got {getattr(self, name)}")
        if self.batch_size < 1:
            raise ValueError(f"evaluate.batch_size must be at least 1, got {self.batch_size}")


class Evaluator:
    """Evaluation-mode, un-augmented predictions on the splits of a data set."""

    def __init__(
        self, data: Data, config: EvaluateConfig, device: torch.device, *, channels_last: bool = False
    ) -> None:
        self.data = data
        self.config = config
        self.device = device
        self.channels_last = channels_last

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
            out.append(method.predict(place(x, self.device, channels_last)).float().cpu())
        method.train(training)
        return torch.cat(out).numpy()

    def epoch(self, method: Method, epoch: int, *, last: bool) -> dict[str, float]:
        """What is due at the end of this epoch (counted from 1)."""
        result: dict[str, float] = {}
        if self.data.val is not None:
            result["val_accuracy"] = accuracy(self._classes(method, self.data.val), self.data.val.y)
        if last or _due(epoch, self.config.test_every):
            result |= self.test(method)
        if last or _due(epoch, self.config.train_every):
            result |= self.sweep(method)
        return result

    def test(self, method: Method) -> dict[str, float]:
        """Test accuracy, if there is a test split; against true labels if they are known."""
        test = self.data.test
        if test is None:
            return {}
        return {"test_accuracy": accuracy(self._classes(method, test), test.y if test.y_true is None else test.y_true)}

    def sweep(self, method: Method) -> dict[str, float]:
        """What became of clean and of wrong training labels, if the truth is known."""
        train = self.data.train
        return {} if train.y_true is None else fractions(self._classes(method, train), train.y, train.y_true)

    def _classes(self, method: Method, examples: Examples) -> npt.NDArray[np.int64]:
        return np.asarray(self.probabilities(method, examples).argmax(axis=1), dtype=np.int64)


def _due(epoch: int, every: int) -> bool:
    return every > 0 and epoch % every == 0
