"""Mean absolute error: the symmetric loss that others soften."""

from elr.data.stream import Batch
from elr.losses import mae_loss
from elr.methods.base import Method, Step
from elr.methods.gce import GCE
from elr.parts.clock import Clock


class MAE(Method):
    """L1 distance of label and prediction: symmetric noise does not move its minimum, but it learns slowly."""

    reference = "Ghosh et al., AAAI 2017"
    equation = "L = ||y - p||_1 = 2 (1 - p_y)"
    authors = GCE.authors  # the schedule under which Zhang and Sabuncu compared it; Ghosh et al. used smaller networks

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Mean loss of the batch."""
        logits = self.nets[0](batch.x)
        loss = mae_loss(logits, batch.y).mean()
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()))
