"""Improved mean absolute error: examples weighed by how undecided the network is about their label."""

from collections.abc import Mapping
from typing import Any, ClassVar

from elr.data.stream import Batch
from elr.losses import imae_loss
from elr.methods.base import Method, Step, check_range
from elr.parts.clock import Clock


class IMAE(Method):
    """Mean absolute error reweighted: examples whose label has a probability near one half teach most.

    Args:
        T: contrast of the weights; 8 under heavy noise, 0 gives every example a gradient of norm 1.
    """

    reference = "Wang et al., arXiv 1903.12141, 2019"
    equation = "dL/dz = w (p - y), w = exp(T p_y (1 - p_y)) / (2 (1 - p_y)); reported: w CE"
    # The CIFAR recipe of He et al.: 64,000 steps of 128 of 50,000 images, drops after 32,000 and 48,000.
    authors: ClassVar[Mapping[str, Any]] = {
        "epochs": 164,
        "optim.lr": 0.1,
        "optim.momentum": 0.9,
        "optim.weight_decay": 1e-4,
        "optim.batch_size": 128,
        "schedule.name": "multistep",
        "schedule.milestones": (82, 123),
        "schedule.factor": 0.1,
    }

    def __init__(self, *, T: float = 8.0) -> None:
        super().__init__()
        check_range("T", T, 0.0, 100.0)
        self.T = T

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Mean of weight times cross entropy; the weight has no gradient."""
        logits = self.nets[0](batch.x)
        loss = imae_loss(logits, batch.y, self.T).mean()
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()))
