"""Learning-rate schedules: pure functions of the clock."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from elr.parts.clock import Clock

Schedule = Callable[[Clock, float], float]


@dataclass(frozen=True)
class Curve:
    """A learning rate over the epochs of a stage."""

    epochs: int | None = field(
        default=None,
        kw_only=True,
        metadata={"help": "epochs that the schedule is written for: it is stretched or squeezed over each stage"},
    )

    def __post_init__(self) -> None:
        if self.epochs is not None and self.epochs < 1:
            raise ValueError(f"schedule.epochs must be at least 1, got {self.epochs}")

    def __call__(self, clock: Clock, lr: float) -> float:
        """Learning rate at this batch."""
        return self.at(clock if self.epochs is None else stretched(clock, self.epochs), lr)

    def at(self, clock: Clock, lr: float) -> float:
        """Learning rate at this place of the epochs it is written for."""
        raise NotImplementedError


def stretched(clock: Clock, epochs: int) -> Clock:
    """The place at the same fraction of a stage of ``epochs`` epochs."""
    epoch, batch = divmod(clock.step * epochs, clock.steps)
    return clock._replace(epoch=epoch, epochs=epochs, batch=batch, batches=clock.steps)


@dataclass(frozen=True)
class Constant(Curve):
    """The same learning rate throughout."""

    def at(self, clock: Clock, lr: float) -> float:
        """Learning rate at this batch."""
        return lr


@dataclass(frozen=True)
class MultiStep(Curve):
    """Multiply by ``factor`` after each milestone; by default after one and two thirds of training, as on CIFAR-10."""

    milestones: tuple[int, ...] = field(
        default=(), metadata={"help": "epochs after which the rate drops (default: one and two thirds of training)"}
    )
    factor: float = field(default=0.01, metadata={"help": "what the rate is multiplied with"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if list(self.milestones) != sorted(set(self.milestones)) or any(m < 1 for m in self.milestones):
            raise ValueError(f"schedule.milestones must be increasing epochs from 1 on, got {self.milestones}")
        _check_fraction("factor", self.factor)

    def at(self, clock: Clock, lr: float) -> float:
        """Learning rate at this batch."""
        milestones = self.milestones or (clock.epochs / 3, 2 * clock.epochs / 3)
        return lr * float(self.factor) ** sum(clock.epoch >= milestone for milestone in milestones)


@dataclass(frozen=True)
class Cosine(Curve):
    """Cosine annealing with warm restarts (Loshchilov and Hutter 2017), one step an epoch as in the authors' code."""

    period: int = field(default=10, metadata={"help": "epochs between restarts"})
    min_lr: float | None = field(
        default=None, metadata={"help": "rate that the cosine falls to (default: a twentieth of optim.lr, the paper's)"}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.period < 1:
            raise ValueError(f"schedule.period must be at least 1 epoch, got {self.period}")
        if self.min_lr is not None and not 0.0 <= self.min_lr < math.inf:
            raise ValueError(f"schedule.min_lr must be at least 0, got {self.min_lr}")

    def at(self, clock: Clock, lr: float) -> float:
        """Learning rate at this batch."""
        phase = (clock.epoch % self.period) / self.period
        least = lr / 20 if self.min_lr is None else self.min_lr
        return least + (lr - least) * (1.0 + math.cos(math.pi * phase)) / 2.0


@dataclass(frozen=True)
class OneCycle(Curve):
    """Up in a straight line, then down in a straight line, batch by batch."""

    warmup: float = field(default=0.23, metadata={"help": "fraction of training until the peak"})
    start: float = field(default=0.2, metadata={"help": "rate at the start, as a fraction of the peak"})
    end: float = field(default=0.07, metadata={"help": "rate at the end, as a fraction of the peak"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.warmup < 1.0:
            raise ValueError(f"schedule.warmup must lie in [0, 1), got {self.warmup}")
        _check_fraction("start", self.start)
        _check_fraction("end", self.end)

    def at(self, clock: Clock, lr: float) -> float:
        """Learning rate at this batch."""
        done = clock.progress
        if done < self.warmup:
            return lr * (self.start + (1.0 - self.start) * done / self.warmup)
        return lr * (1.0 + (self.end - 1.0) * (done - self.warmup) / (1.0 - self.warmup))


@dataclass(frozen=True)
class Linear(Curve):
    """The same rate until a milestone, then down in a straight line, one step an epoch as in Co-teaching's code."""

    milestone: float = field(
        default=0.4, metadata={"help": "epochs until the rate begins to fall; a fraction of training if at most 1"}
    )
    end: float = field(default=0.0, metadata={"help": "rate when training is over, as a fraction of the peak"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.milestone < math.inf:
            raise ValueError(f"schedule.milestone must be at least 0, got {self.milestone}")
        _check_fraction("end", self.end)

    def at(self, clock: Clock, lr: float) -> float:
        """Learning rate at this batch."""
        milestone = self.milestone * clock.epochs if self.milestone <= 1 else self.milestone
        if clock.epoch <= milestone:
            return lr
        return lr * (1.0 + (self.end - 1.0) * (clock.epoch - milestone) / (clock.epochs - milestone))


def _check_fraction(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"schedule.{name} must lie in [0, 1], got {value}")


SCHEDULES: dict[str, type] = {
    "constant": Constant,
    "multistep": MultiStep,
    "cosine": Cosine,
    "onecycle": OneCycle,
    "linear": Linear,
}
