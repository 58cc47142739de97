"""Generalized cross entropy: a loss between cross entropy and mean absolute error."""

from collections.abc import Mapping
from typing import Any, ClassVar

from elr.data.stream import Batch
from elr.losses import gce_loss
from elr.methods.base import Method, Step, check_range
from elr.parts.clock import Clock

SMALLEST_Q = 1e-6  # q -> 0 is cross entropy; q = 0 divides by zero


class GCE(Method):
    """A loss that lets go of examples whose label looks unlikely, the more the larger q is.

    Args:
        q: in (0, 1]; near 0 it is cross entropy, 1 is mean absolute error.
    """

    reference = "Zhang & Sabuncu, NeurIPS 2018, L_q loss"
    equation = "L = (1 - p_y^q) / q"
    published = (
        "Table 1 (as GSE), CIFAR-10, ResNet-34: 89.83, 87.13, 82.54, 64.07 at 20, 40, 60, 80 % symmetric, 76.74 at "
        "40 % asym.; Table 3, Clothing1M: 69.75"
    )
    authors: ClassVar[Mapping[str, Any]] = {
        "epochs": 120,
        "optim.lr": 0.01,
        "optim.momentum": 0.9,
        "optim.weight_decay": 1e-4,
        "optim.batch_size": 128,
        "schedule.name": "multistep",
        "schedule.milestones": (40, 80),
        "schedule.factor": 0.1,
    }

    def __init__(self, *, q: float = 0.7) -> None:
        super().__init__()
        check_range("q", q, SMALLEST_Q, 1.0)
        self.q = q

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Mean loss of the batch."""
        logits = self.nets[0](batch.x)
        loss = gce_loss(logits, batch.y, self.q).mean()
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()))
