"""Plain cross entropy, and cross entropy stopped where the noisy validation set says so."""

from elr.data.stream import Batch
from elr.losses import cross_entropy
from elr.methods.base import Method, Step
from elr.parts.clock import Clock


class CE(Method):
    """Cross entropy on the given labels: learns the pattern first, then memorises the wrong labels."""

    reference = "Paper Eq. (4)"

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Mean cross entropy of the batch."""
        logits = self.nets[0](batch.x)
        loss = cross_entropy(logits, batch.y).mean()
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()), log={"ce": loss.detach()})


class EarlyStopping(CE):
    """Cross entropy whose result is the epoch chosen on noisy validation: the honest baseline for every method."""

    reference = "Common practice; the validation labels are as noisy as the training labels"
    keeps = "selected"
