"""Plain cross entropy, and cross entropy stopped where the noisy validation set says so."""

from collections.abc import Mapping
from typing import Any, ClassVar

from elr.data.stream import Batch
from elr.losses import cross_entropy
from elr.methods.base import Method, Step
from elr.parts.clock import Clock


class CE(Method):
    """Cross entropy on the given labels: learns the pattern first, then memorises the wrong labels."""

    reference = "Paper Eq. (4)"
    equation = "L = -(1/n) sum_i <y_i, log p_i>"
    published = (
        "Table 1, CIFAR-10, ResNet-34: 86.98, 81.88, 74.14, 53.82 at 20, 40, 60, 80 % symmetric, 80.11 at 40 % asym.; "
        "Table 2, PreAct ResNet-18, best epoch on test: 86.8, 79.4, 62.9, 42.7 at 20, 50, 80, 90 %, 83.2 at 40 % asym."
    )
    authors: ClassVar[Mapping[str, Any]] = {
        "epochs": 120,
        "optim.lr": 0.02,
        "optim.momentum": 0.9,
        "optim.weight_decay": 1e-3,
        "optim.batch_size": 128,
        "schedule.name": "multistep",
        "schedule.milestones": (40, 80),
        "schedule.factor": 0.01,
    }

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Mean cross entropy of the batch."""
        logits = self.nets[0](batch.x)
        loss = cross_entropy(logits, batch.y).mean()
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()), log={"ce": loss.detach()})


class EarlyStopping(CE):
    """Cross entropy whose result is the epoch chosen on noisy validation: the honest baseline for every method."""

    reference = "Common practice; the validation labels are as noisy as the training labels"
    equation = "L of cross entropy; the result is the epoch with the best noisy validation accuracy, mean of three"
    published = "not in the paper's tables"
    keeps = "selected"
