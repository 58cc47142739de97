"""The vocabulary of every method: what it gets, what it gives back, and the seven things it may define.

A method is stages of epochs of passes of batches. The engine runs the four loops and the only ``backward()``;
the method says what the loss of a batch is. See docs/decisions/001-step-stage-clock.md.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from elr.data.stream import Batch, Stream, TrainData
from elr.parts.clock import Clock

SWEEP_BATCH = 512


@dataclass(slots=True)
class Step:
    """What a method gives back for a batch."""

    loss: Tensor  # one scalar; the engine calls backward() on it once
    count: int  # examples the mean is over, so that ragged batches weigh right
    seen: tuple[Tensor, Tensor] | None = None  # (index, logits) on unmixed input: per-example evidence
    log: Mapping[str, Tensor | float] = field(default_factory=dict)
    then: Callable[[], None] | None = None  # runs after optimizer.step()


class Pass(NamedTuple):
    """One sweep over some examples with one way to compute the loss."""

    stream: Stream
    step: Callable[[Batch, Clock], Step]


class Stage(NamedTuple):
    """Some epochs under one learning-rate curve."""

    epochs: int
    lr_scale: float = 1.0
    schedule: Callable[[Clock, float], float] | None = None  # None: the run's schedule
    fresh: bool = False  # start with newly initialised networks; the choice of the best epoch starts anew too
    keep: Literal["last", "selected"] = "last"  # networks that the stage ends with; selected on noisy validation


class MakeNet(Protocol):
    """Builds network ``k``, initialised from the run's seed and k."""

    def __call__(self, k: int = 0) -> nn.Module:
        """Return a new network."""
        ...


class Method(nn.Module):
    """Base of all methods. The constructor's signature is the only source of hyperparameters and only stores them."""

    # What the registry tells users; a subclass overrides what differs.
    reference: ClassVar[str] = ""
    equation: ClassVar[str] = ""  # one line, the paper's letters
    passes: ClassVar[str] = "1 forward and backward"  # of each example in an epoch
    published: ClassVar[str] = "not in the paper's tables"  # what the paper prints for it
    authors: ClassVar[Mapping[str, Any]] = {}  # the authors' CIFAR-10 schedule, as dotted settings
    per_example: ClassVar[str] = "nothing"  # state kept for each example
    batch_coupled: ClassVar[bool] = False  # the loss of one example depends on the others of its batch
    views: ClassVar[int] = 1  # augmentations of an example that a step may ask for; of vectors they are made by jitter
    # What stands behind it: this, or that the paper's number was reproduced.
    backing: ClassVar[str] = "checked against a naive transcription; the paper's number not reproduced"
    keeps: ClassVar[str] = "last"  # which weights are the result: "last", or "selected" on noisy validation

    nets: nn.ModuleList

    @property
    def cost(self) -> float:
        """Forward/backward arithmetic of an epoch relative to cross entropy (a backward counts as two forwards)."""
        return 1.0

    @property
    def backwards(self) -> float:
        """Gradient evaluations of an example in an epoch, mean over the run: 2 if each of two networks sees it."""
        return 1.0

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """Allocate networks and tables. Default: one network, no table."""
        self.nets = nn.ModuleList([make_net(0)])

    def plan(self, epochs: int) -> list[Stage]:
        """Stages of the run. Default: one."""
        return [Stage(epochs)]

    def epoch(self, data: TrainData, clock: Clock) -> Iterator[Pass]:
        """Passes of one epoch. Default: one over all data with ``step``."""
        yield Pass(Stream(), self.step)

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Loss of one batch: the one thing a method must write."""
        raise NotImplementedError

    def finish(self, stage: int, data: TrainData) -> None:
        """Called after the last epoch of a stage and its evaluation. Default: nothing."""

    def predict(self, x: Tensor) -> Tensor:
        """Class probabilities, (B, C). Default: mean over networks."""
        return torch.stack([net(x).float().softmax(dim=1) for net in self.nets]).mean(dim=0)

    def belief(self) -> Tensor | None:
        """What the method has come to believe of every training row, (K, n, C), once for each network that keeps it.

        Default: it keeps nothing of the kind.
        """
        return None

    def pull(self, p: Tensor) -> Tensor | None:
        """Gradient of the regularizer at the logits of every training row, where the network says p, (n, C)."""
        return None


@torch.no_grad()
def sweep(
    predict: Callable[[Tensor], Tensor], data: TrainData, rows: Tensor | None = None, *, views: int = 1
) -> Tensor:
    """What a network in evaluation mode gives for these training rows (or all), in order: (n, C).

    Inputs are not augmented; asked for more views, they are, and what comes out is the mean over views, of which every
    other one is mirrored where epochs alternate.

    Pass a method's ``predict`` or one of its networks; the mode of a network is put back. In the precision of the run,
    as steps are; what comes out is float32.
    """
    net = predict if isinstance(predict, nn.Module) else getattr(predict, "__self__", None)
    was_training = isinstance(net, nn.Module) and net.training
    if isinstance(net, nn.Module):
        net.eval()
    stream = Stream(rows, SWEEP_BATCH, augment=views > 1, shuffle=False)
    looks = [data.batches(stream, Clock(0, epoch=view, epochs=views)) for view in range(views)]
    with torch.autocast(data.device.type, torch.bfloat16, enabled=data.bfloat16):
        means = [
            torch.stack([predict(batch.x).float() for batch in same]).mean(dim=0) for same in zip(*looks, strict=True)
        ]
    if isinstance(net, nn.Module):
        net.train(was_training)
    return torch.cat(means)


def shares(epochs: int, *weights: float) -> list[int]:
    """Split epochs among stages by weight, each at least one: a run shorter than its stages is lengthened."""
    left, parts = max(epochs, len(weights)), []
    for k, weight in enumerate(weights):
        later = len(weights) - k - 1
        share = left * weight / sum(weights[k:]) if weight else 0.0
        part = min(max(1, round(share)) if later else left, left - later)
        parts.append(part)
        left -= part
    return parts


def epochs_of(length: float, total: int) -> float:
    """A length in epochs: a fraction of ``total`` if at most 1, else epochs as they are."""
    return length * total if length <= 1 else length


def part_of_run(length: float, authors_epochs: int) -> float:
    """The same as a part of the run, for a cost that is told before its epochs are known: then of the authors' run."""
    return min(length if length <= 1 else length / authors_epochs, 1.0)


def check_range(name: str, value: Any, low: float, high: float, *, open_high: bool = False) -> None:
    """Raise ValueError with one clear line when a hyperparameter lies outside its range (NaN and infinity do)."""
    open_high = open_high or high == math.inf
    inside = isinstance(value, int | float) and low <= value and (value < high if open_high else value <= high)
    if not inside:
        raise ValueError(f"{name} must lie in [{low:g}, {high:g}{')' if open_high else ']'}, got {value!r}")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise ValueError with one clear line when a hyperparameter is none of its choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}")
