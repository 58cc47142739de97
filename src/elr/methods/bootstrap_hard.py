"""Bootstrapping with hard labels: cross entropy to the given and to the predicted class."""

from elr.data.stream import Batch
from elr.losses import bootstrap_hard_loss
from elr.methods.base import Method, Step, check_range
from elr.methods.bootstrap_soft import BootstrapSoft
from elr.parts.clock import Clock


class BootstrapHard(Method):
    """Cross entropy to labels that are, for a part, the class the network predicts.

    Args:
        beta: share of the given label, in [0, 1]; 1 is cross entropy.
    """

    reference = "Reed et al., ICLR workshop 2015, hard bootstrapping"
    equation = "L = beta CE(y, p) + (1 - beta) CE(argmax p, p)"
    published = BootstrapSoft.published
    authors = BootstrapSoft.authors

    def __init__(self, *, beta: float = 0.8) -> None:
        super().__init__()
        check_range("beta", beta, 0.0, 1.0)
        self.beta = beta

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Mean loss of the batch."""
        logits = self.nets[0](batch.x)
        loss = bootstrap_hard_loss(logits, batch.y, self.beta).mean()
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()))
