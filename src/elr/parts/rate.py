"""Learning-rate curves that a stage brings along, whatever the schedule of the run."""

from elr.parts.clock import Clock


def constant_rate(clock: Clock, lr: float) -> float:
    """The same learning rate throughout the stage."""
    return lr
