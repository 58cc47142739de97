"""Where training is: the one argument of every schedule, ramp and random draw."""

from typing import NamedTuple

import numpy as np

from elr.parts.draw import fold, generator


class Clock(NamedTuple):
    """A place in a run. Epochs count within their stage; batches within their pass.

    Each pass has a clock of its own, so both networks of ELR+ see the whole learning-rate curve and the same ramps.
    """

    seed: int
    stage: int = 0
    epoch: int = 0  # 0-based, within the stage
    epochs: int = 1  # planned for this stage
    turn: int = 0  # which pass of the epoch (``pass`` is a keyword)
    batch: int = 0
    batches: int = 1  # in this pass

    @property
    def step(self) -> int:
        """Updates done before this one, for this pass: 0 at the first batch of the stage."""
        return self.epoch * self.batches + self.batch

    @property
    def steps(self) -> int:
        """Updates planned for this pass in the whole stage."""
        return self.epochs * self.batches

    @property
    def progress(self) -> float:
        """Fraction of the stage behind us, in [0, 1)."""
        return self.step / self.steps

    def key(self, purpose: str, *more: int) -> int:
        """The random key of this batch for one purpose."""
        return fold(self.seed, purpose, self.stage, self.epoch, self.turn, self.batch, *more)

    def rng(self, purpose: str) -> np.random.Generator:
        """A generator for this batch and purpose."""
        return generator(self.key(purpose))
