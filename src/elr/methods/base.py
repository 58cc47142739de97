"""The vocabulary of every method: what it gets, what it gives back, and the seven things it may define.

A method is stages of epochs of passes of batches. The engine runs the four loops and the only ``backward()``;
the method says what the loss of a batch is. See docs/decisions/001-step-stage-clock.md.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from elr.data.stream import Batch, Stream, TrainData
from elr.parts.clock import Clock


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
    fresh: bool = False  # start with newly initialised networks


class MakeNet(Protocol):
    """Builds network ``k``, initialised from the run's seed and k."""

    def __call__(self, k: int = 0) -> nn.Module:
        """Return a new network."""
        ...


class Method(nn.Module):
    """Base of all methods. The constructor's signature is the only source of hyperparameters and only stores them."""

    # What the registry tells users; a subclass overrides what differs.
    reference: ClassVar[str] = ""
    per_example: ClassVar[str] = "nothing"  # state kept for each example
    batch_coupled: ClassVar[bool] = False  # the loss of one example depends on the others of its batch
    backing: ClassVar[str] = "oracle only"  # or "paper number reproduced"
    keeps: ClassVar[str] = "last"  # which weights are the result: "last", or "selected" on noisy validation

    nets: nn.ModuleList

    @property
    def cost(self) -> float:
        """Forward/backward arithmetic of an epoch relative to cross entropy (a backward counts as two forwards)."""
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
        """Called after the last epoch of a stage. Default: nothing."""

    def predict(self, x: Tensor) -> Tensor:
        """Class probabilities, (B, C). Default: mean over networks."""
        return torch.stack([net(x).float().softmax(dim=1) for net in self.nets]).mean(dim=0)


def check_range(name: str, value: Any, low: float, high: float, *, open_high: bool = False) -> None:
    """Raise ValueError with one clear line when a hyperparameter lies outside its range (NaN does)."""
    inside = isinstance(value, int | float) and low <= value and (value < high if open_high else value <= high)
    if not inside:
        raise ValueError(f"{name} must lie in [{low:g}, {high:g}{')' if open_high else ']'}, got {value!r}")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise ValueError with one clear line when a hyperparameter is none of its choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}")
