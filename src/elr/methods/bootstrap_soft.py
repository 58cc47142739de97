"""Bootstrapping with soft labels: cross entropy and low entropy."""

from elr.data.stream import Batch
from elr.losses import bootstrap_soft_loss
from elr.methods.base import Method, Step, check_range
from elr.methods.ce import CE
from elr.parts.clock import Clock


class BootstrapSoft(Method):
    """Cross entropy to labels that are, for a small part, the network's own probabilities.

    Args:
        beta: share of the given label, in [0, 1]; 1 is cross entropy.
    """

    reference = "Reed et al., ICLR workshop 2015, soft bootstrapping"
    equation = "L = beta CE(y, p) + (1 - beta) H(p)"
    published = (
        "Table 1, Bootstrap (soft or hard is not said), CIFAR-10, ResNet-34: 86.23, 82.23, 75.12, 54.12 at 20, 40, 60, "
        "80 % symmetric, 81.21 at 40 % asym."
    )
    authors = CE.authors  # Reed et al. trained small networks; the paper ran bootstrapping under its own schedule

    def __init__(self, *, beta: float = 0.95) -> None:
        super().__init__()
        check_range("beta", beta, 0.0, 1.0)
        self.beta = beta

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Mean loss of the batch."""
        logits = self.nets[0](batch.x)
        loss = bootstrap_soft_loss(logits, batch.y, self.beta).mean()
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()))
