"""Joint optimisation: the network's own averaged predictions become the labels, then a new network learns them."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from elr.data.stream import Batch, Stream, TrainData
from elr.losses import cross_entropy
from elr.losses.semi import balance_penalty, negative_entropy
from elr.methods.base import MakeNet, Method, Pass, Stage, Step, check_choice, check_range, epochs_of, shares
from elr.parts.clock import Clock
from elr.parts.rate import constant_rate
from elr.parts.table import ExampleTable

Kind = Literal["soft", "hard"]


class JointOptim(Method):
    """Labels become the mean of the network's last predictions, epoch by epoch; then a new network learns from them.

    The first stage keeps its learning rate high and constant, because a network that moves a lot cannot memorise; the
    second follows the run's schedule. Classes are taken to be equally frequent.

    Args:
        alpha: weight of the divergence of the mean prediction of a batch from equal classes; without it, predictions
            that teach themselves fall into one class.
        beta: weight of the entropy of predictions.
        first: epochs of the first stage, a fraction of the run if at most 1.
        start: epochs of the first stage before labels are replaced, a fraction of the stage if at most 1.
        window: epochs whose predictions are averaged to a label.
        second_lr: learning rate of the second stage, in multiples of the run's.
        labels: the new labels are distributions (soft) or their most likely classes (hard).
    """

    reference = "Tanaka et al., CVPR 2018, Eq. (3)-(8), Algorithm 1"
    equation = "CE(p, y-) + alpha KL(1/C || mean p) + beta H(p),   y-_i = mean of p_i over the last 10 epochs"
    per_example = "11 C floats (predictions of 10 epochs, and the label)"
    batch_coupled = True  # mean prediction of the batch
    published = "Table 3, Clothing1M: 72.16"
    authors: ClassVar[Mapping[str, Any]] = {  # 200 epochs at a constant rate, 120 with this schedule at 2.5 times it
        "epochs": 320,
        "optim.lr": 0.08,
        "optim.momentum": 0.9,
        "optim.weight_decay": 1e-4,
        "optim.batch_size": 128,
        "schedule.name": "multistep",
        "schedule.milestones": (40, 80),
        "schedule.factor": 0.1,
    }

    def __init__(
        self,
        *,
        alpha: float = 1.2,
        beta: float = 0.8,
        first: float = 200 / 320,
        start: float = 70 / 200,
        window: int = 10,
        second_lr: float = 2.5,
        labels: Kind = "soft",
    ) -> None:
        super().__init__()
        check_range("alpha", alpha, 0.0, 1e6)
        check_range("beta", beta, 0.0, 1e6)
        check_range("first", first, 0.0, float("inf"))
        check_range("start", start, 0.0, float("inf"))
        check_range("window", window, 1, 1000)
        check_range("second_lr", second_lr, 0.0, 1e6)
        check_choice("labels", labels, get_args(Kind))
        self.alpha = alpha
        self.beta = beta
        self.first = first
        self.start = start
        self.window = window
        self.second_lr = second_lr
        self.labels = labels

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """One network, a table of predictions in each epoch of the window, and the table of labels."""
        super().build(make_net, num_examples, num_classes)
        self.recent = ExampleTable(num_examples, self.window * num_classes)
        self.corrected = ExampleTable(num_examples, num_classes)

    def plan(self, epochs: int) -> list[Stage]:
        """Find labels at a constant learning rate, then learn them from the start."""
        first = epochs_of(self.first, epochs)
        before, after = shares(epochs, first, max(epochs - first, 0.0))
        return [Stage(before, schedule=constant_rate), Stage(after, lr_scale=self.second_lr, fresh=True)]

    def epoch(self, data: TrainData, clock: Clock) -> Iterator[Pass]:
        """One pass; after it, in the first stage, new labels for the next epoch."""
        if clock.stage == 0 and data.balanced_batches is not None:  # this epoch will not come to every example
            self._by_epoch[:, clock.epoch % self.window] = 0.0
        yield Pass(Stream(), self.step)
        if clock.stage == 0 and clock.epoch + 1 >= self._start(clock):
            self._relabel(data.y)

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Cross entropy with the labels there are, and what keeps predictions spread over classes and sure."""
        logits = self.nets[0](batch.x).float()
        y = self._labels(batch, clock)
        ce = cross_entropy(logits, y).mean()
        log: dict[str, Tensor | float] = {"ce": ce.detach()}
        loss = ce
        if clock.stage == 0:
            penalty, entropy = balance_penalty(logits), -negative_entropy(logits).mean()
            loss = ce + self.alpha * penalty + self.beta * entropy
            log |= {"penalty": penalty.detach(), "entropy": entropy.detach()}
            self._by_epoch[batch.index, clock.epoch % self.window] = logits.detach().softmax(dim=1)
        if y is not batch.y:
            log["relabelled"] = (self.corrected.rows(batch.index).argmax(dim=1) != batch.y).float().mean()
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()), log=log)

    @property
    def _by_epoch(self) -> Tensor:
        """Predictions of the last epochs, (n, window, C)."""
        return self.recent.values.view(len(self.recent.values), self.window, -1)

    def _start(self, clock: Clock) -> int:
        """Epochs of the first stage on the given labels: one at least, since before there are no predictions."""
        return min(max(round(epochs_of(self.start, clock.epochs)), 1), clock.epochs)

    def _labels(self, batch: Batch, clock: Clock) -> Tensor:
        """The given labels as class ids, or the new ones as they were asked for."""
        if clock.stage == 0 and clock.epoch < self._start(clock):
            return batch.y
        rows = self.corrected.rows(batch.index)
        return rows if self.labels == "soft" else rows.argmax(dim=1)

    @torch.no_grad()
    def _relabel(self, given: Tensor) -> None:
        """PAPER Eq. 8: labels are the mean of the predictions of the last epochs, made while training."""
        # DEVIATES from authors' code: the mean is over the epochs that came to the example, because theirs counts zeros
        # before the tenth and its labels do not sum to 1. One that none came to keeps the label it has.
        old = self.corrected.values
        old = torch.where(old.sum(dim=1, keepdim=True) > 0, old, one_hot(given, old.shape[1]).to(old))
        visits = (self._by_epoch.sum(dim=2) > 0).sum(dim=1, keepdim=True)  # (n, 1)
        mean = self._by_epoch.sum(dim=1) / visits.clamp_min(1)
        self.corrected.values.copy_(torch.where(visits > 0, mean, old))
