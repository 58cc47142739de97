"""SELFIE: learn from small losses, and from examples whose label the network's own steady opinion can replace."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from elr.data.stream import Batch, Stream, TrainData
from elr.losses import cross_entropy
from elr.methods.base import MakeNet, Method, Pass, Stage, Step, check_range, epochs_of, shares, sweep
from elr.parts.clock import Clock
from elr.parts.select import NoiseRate, logits_of, look, mean_over, smallest
from elr.parts.table import ExampleTable

NONE = -1  # no prediction yet, or no label but the given one
WARMUP_SHARE = 0.6  # the authors' history is 15 epochs after a warm-up of 25
LEAST = 3  # predictions that can agree


class SELFIE(Method):
    """Keeps small losses, refurbishes labels that the last predictions agree on, drops the rest; restarts with them.

    An example is refurbishable when its last q predicted classes hardly vary; it is learned with the class that most
    of them name. Each run but the first starts with a fresh network and the labels refurbished so far, and its tau is
    at most the fraction of examples never refurbished.

    Args:
        rate: tau, the fraction of wrong labels; none: estimated from the training losses after the first warm-up.
        uncertainty: epsilon, the largest entropy of the predicted classes, divided by log C, that is refurbishable.
        history: q, the number of last predictions looked at; never more than 3/5 of the epochs of warm-up, or three.
        warmup: epochs of cross entropy at the start of every run; a fraction of the run if at most 1.
        restarts: fresh starts after the first run; the epochs are shared evenly.
        reuse: within a run, learn a refurbished label again when the predictions do vary, as the authors' code does.
        forward_kept_only: as the authors do, learn from a second pass over kept examples alone; false: batch norm sees
            the whole batch, and there is one pass.
    """

    reference = "Song et al., ICML 2019, Algorithm 1"
    equation = "L = mean CE over R (label: mode of the last q predictions) and C \\ R (label: given)"
    passes = "1 forward and backward, and 1 forward after warm-up"
    authors: ClassVar[Mapping[str, Any]] = {  # three runs of 100 epochs, each with this schedule
        "epochs": 300,
        "optim.lr": 0.1,
        "optim.momentum": 0.9,
        "optim.weight_decay": 5e-4,
        "optim.batch_size": 128,
        "schedule.name": "multistep",
        "schedule.milestones": (50, 75),
        "schedule.factor": 0.2,
    }
    per_example = "q + 2 integers (last predictions, refurbished label, label of this run)"
    batch_coupled = True

    untouched: Tensor

    def __init__(
        self,
        *,
        rate: float | None = None,
        uncertainty: float = 0.05,
        history: int = 15,
        warmup: float = 0.25,
        restarts: int = 2,
        reuse: bool = False,
        forward_kept_only: bool = True,
    ) -> None:
        super().__init__()
        if rate is not None:
            check_range("rate", rate, 0.0, 1.0, open_high=True)
        check_range("uncertainty", uncertainty, 0.0, 1.0)
        check_range("history", history, 1, 1000)
        check_range("warmup", warmup, 0.0, float("inf"))
        check_range("restarts", restarts, 0, 100)
        self.rate = rate
        self.uncertainty = uncertainty
        self.history = history
        self.warmup = warmup
        self.restarts = restarts  # DEVIATES from authors' code: 2 as in the paper; main.py has 3
        # DEVIATES from authors' code: not within a run, because the authors say there that it costs .3 points.
        self.reuse = reuse
        self.forward_kept_only = forward_kept_only

    @property
    def cost(self) -> float:
        """After warm-up one more forward pass, if separate; all examples counted as kept, as most are in the end."""
        after = max(0.0, 1.0 - self.warmup) if self.warmup <= 1 else 1.0
        estimate = 0.0 if self.rate is not None else 1e-3  # one sweep in the whole run
        return 1.0 + (after / 3.0 if self.forward_kept_only else 0.0) + estimate

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """One network; for each example its last predictions, newest first, and its labels."""
        super().build(make_net, num_examples, num_classes)
        self.num_classes = num_classes
        self.noise_rate = NoiseRate(self.rate)
        self.predicted = ExampleTable(num_examples, self.history, fill=NONE, dtype=torch.int32)
        self.refurbished = ExampleTable(num_examples, 1, fill=NONE, dtype=torch.int64)
        self.labels = ExampleTable(num_examples, 1, fill=NONE, dtype=torch.int64)  # of this run; NONE: the given one
        self.register_buffer("untouched", torch.ones(()))  # fraction whose label of this run is the given one

    @property
    def tau(self) -> float:
        """Fraction of labels of this run taken for wrong."""
        # DEVIATES from paper: a later run starts with refurbished labels, and what was never refurbished is the most
        # that can still be wrong, because the authors' code does both and recommends it.
        return min(float(self.noise_rate), float(self.untouched))

    def plan(self, epochs: int) -> list[Stage]:
        """A run and its restarts, each with the whole learning-rate curve."""
        lengths = shares(epochs, *[1.0] * (self.restarts + 1))
        return [Stage(length, fresh=k > 0) for k, length in enumerate(lengths)]

    def epoch(self, data: TrainData, clock: Clock) -> Iterator[Pass]:
        """Estimate the noise rate once, when the first warm-up is over, then one pass."""
        first = clock.epoch == math.ceil(epochs_of(self.warmup, clock.epochs))
        if self.rate is None and clock.stage == 0 and first:
            self.noise_rate.estimate(cross_entropy(sweep(self.nets[0], data), data.y))
        yield Pass(Stream(), self.step)

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Cross entropy of all in warm-up, then of clean and refurbishable examples."""
        labels = chosen(self.labels.rows(batch.index)[:, 0], batch.y)  # (B,)
        if clock.epoch < epochs_of(self.warmup, clock.epochs):
            logits = self.nets[0](batch.x)
            loss = cross_entropy(logits, labels).mean()
            self._remember(batch.index, logits)
            log: dict[str, Tensor | float] = {"ce": loss.detach(), "kept": 1.0, "relabelled": 0.0, **self._rates()}
            return Step(loss, len(labels), seen=(batch.index, logits.detach()), log=log)
        return self._selective(batch, labels, clock)

    def finish(self, stage: int, data: TrainData) -> None:
        """Before a restart: labels refurbished so far are this run's own, fewer are believed wrong, no predictions."""
        if stage == self.restarts:
            return
        corrected = self.refurbished.values
        self.labels.values.copy_(corrected)
        self.untouched.copy_((corrected == NONE).float().mean())
        self.predicted.values.fill_(NONE)

    def select(self, index: Tensor, labels: Tensor, losses: Tensor, clock: Clock) -> tuple[Tensor, Tensor]:
        """Positions in the batch to learn from, (K,), and the label of each: the given or a refurbished one."""
        clean = smallest(losses, max(1, math.ceil(len(losses) * (1.0 - self.tau) - 1e-4)))
        mode = self._steady(index, clock)  # (B,), NONE where opinions vary
        so_far = chosen(mode, self.refurbished.rows(index)[:, 0])
        self.refurbished.write(index, so_far[:, None])
        if self.reuse:
            mode = so_far
        kept = mode != NONE
        kept[clean] = True
        rows = kept.nonzero().squeeze(1)
        return rows, chosen(mode, labels)[rows]

    def _selective(self, batch: Batch, labels: Tensor, clock: Clock) -> Step:
        size = len(labels)
        logits = look(self.nets, batch.x, learn=not self.forward_kept_only)[0]  # (B, C)
        losses = cross_entropy(logits, batch.y)  # (B,), of the given labels in every run
        rows, targets = self.select(batch.index, labels, losses, clock)
        again = logits_of(self.nets[0], batch.x, rows) if self.forward_kept_only else logits[rows]
        self._remember(batch.index, logits)
        log: dict[str, Tensor | float] = {
            "ce": losses.detach().mean(),
            "kept": len(rows) / size,
            "relabelled": (targets != labels[rows]).sum() / size,
            **self._rates(),
        }
        return Step(mean_over(cross_entropy(again, targets)), size, seen=(batch.index, logits.detach()), log=log)

    def _rates(self) -> dict[str, float]:
        return {"noise_rate": float(self.noise_rate), "tau": self.tau}

    def _steady(self, index: Tensor, clock: Clock) -> Tensor:
        """The class that the last q predictions name most, (B,); NONE if they vary, or if there are fewer than q."""
        # DEVIATES from authors' code: places without a prediction are empty there too, but count as votes for class 0.
        # DEVIATES from authors' code: a history longer than 3/5 of warm-up is cut, because short runs have no other;
        # not below three predictions, because a single one agrees with itself and every label would be replaced by it.
        length = round(WARMUP_SHARE * math.ceil(epochs_of(self.warmup, clock.epochs)))
        length = min(self.history, max(LEAST, length))
        recent = self.predicted.rows(index)[:, :length].long()  # (B, q)
        uncertain, mode = opinion(recent.clamp_min(0), self.num_classes)
        steady = (recent != NONE).all(dim=1) & (uncertain <= self.uncertainty)
        return mode.masked_fill(~steady, NONE)

    def _remember(self, index: Tensor, logits: Tensor) -> None:
        """Put the class predicted now before the older ones; the oldest falls out."""
        now = logits.detach().argmax(dim=1, keepdim=True).to(torch.int32)  # (B, 1)
        self.predicted.write(index, torch.cat([now, self.predicted.rows(index)[:, :-1]], dim=1))


def opinion(predicted: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """F = entropy of the predicted classes (B, q) over log C, in [0, 1], and the class named most often: (B,) each."""
    votes = torch.zeros(len(predicted), num_classes, device=predicted.device)  # (B, C)
    votes.scatter_add_(1, predicted, torch.ones_like(predicted, dtype=votes.dtype))
    share = votes / predicted.shape[1]
    entropy = -torch.xlogy(share, share).sum(dim=1)
    return entropy / math.log(max(2, num_classes)), votes.argmax(dim=1)


def chosen(label: Tensor, otherwise: Tensor) -> Tensor:
    """``label`` (B,), or ``otherwise`` where it is NONE."""
    return torch.where(label == NONE, otherwise, label)
