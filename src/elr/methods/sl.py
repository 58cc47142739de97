"""Symmetric cross entropy: cross entropy and its reverse, which tolerates noise."""

from collections.abc import Mapping
from typing import Any, ClassVar

from elr.data.stream import Batch
from elr.losses import sl_loss
from elr.methods.base import Method, Step, check_range
from elr.parts.clock import Clock


class SL(Method):
    """Cross entropy plus reverse cross entropy: a little of what learns fast, much of what tolerates noise.

    Args:
        alpha: weight of cross entropy; .01 for MNIST, .1 for CIFAR-10, 6 for CIFAR-100 in Wang et al.
        beta: weight of reverse cross entropy; 1, and .1 for CIFAR-100.
        A: what log 0 is taken for in the reverse; log 1e-4 in the code of Wang et al., -4 in their article.
    """

    reference = "Wang et al., ICCV 2019, symmetric cross entropy"
    equation = "L = alpha CE(y, p) + beta |A| (1 - p_y)"
    published = (
        "Table 1, CIFAR-10, ResNet-34: 89.83, 87.13, 82.81, 68.12 at 20, 40, 60, 80 % symmetric, 82.51 at 40 % asym.; "
        "Table 3, Clothing1M: 71.02"
    )
    authors: ClassVar[Mapping[str, Any]] = {
        "epochs": 120,
        "optim.lr": 0.01,
        "optim.momentum": 0.9,
        "optim.weight_decay": 0.0,  # their "decay" is one of the learning rate; one layer of their own has L2
        "optim.batch_size": 128,
        "schedule.name": "multistep",
        "schedule.milestones": (41, 81),  # their "epoch > 40" counts from 0
        "schedule.factor": 0.1,
    }

    def __init__(self, *, alpha: float = 0.1, beta: float = 1.0, A: float = -9.2103) -> None:
        super().__init__()
        check_range("alpha", alpha, 0.0, 1e6)
        check_range("beta", beta, 0.0, 1e6)
        check_range("A", A, -1e6, 0.0)
        self.alpha = alpha
        self.beta = beta
        # DEVIATES from paper (Wang et al.): A = -4 there. Their code clamps labels at 1e-4 and takes the natural log;
        # their published numbers come from it, and -4 gives cross entropy twice the weight.
        self.A = A

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Mean loss of the batch."""
        logits = self.nets[0](batch.x)
        loss = sl_loss(logits, batch.y, self.alpha, self.beta, self.A).mean()
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()))
