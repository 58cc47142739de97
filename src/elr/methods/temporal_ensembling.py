"""Temporal ensembling: predictions are pulled towards the average of those of earlier epochs."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from elr.data.stream import Batch
from elr.losses import cross_entropy
from elr.losses.consistency import prediction_mse
from elr.methods.base import MakeNet, Method, Step, check_range, epochs_of
from elr.parts.clock import Clock
from elr.parts.ramp import ramp
from elr.parts.table import ExampleTable, normalised


class TemporalEnsembling(Method):
    """CE + w(t) |p - t|^2 / C, where t averages the network's predictions of the same example in earlier epochs.

    Args:
        weight: w after its ramp. The authors take 300 with fewer than half of the labels wrong, 3000 with more, and 30
            without noise, too weak to help against it; C is 10. None means 3 C min(C, 10): 300 for ten classes.
        alpha: memory of the average, in [0, 1).
        ramp_length: length of the ramp exp(-5 (1 - t/L)^2) of w: a fraction of the run if at most 1, else epochs.
    """

    reference = "Laine and Aila, ICLR 2017 (Temporal Ensembling for Semi-Supervised Learning), Algorithm 2"
    equation = "CE(p, y) + w(t) |p - t|^2 / C;  Z <- alpha Z + (1-alpha) p,  t = Z / (1 - alpha^epoch)"
    per_example = "C floats (the average Z)"
    published = "not in the paper's tables (Figure D.1 shows such targets without the penalty)"
    # The rate is that of their runs with wrong labels (SVHN), to which w = 300 belongs: .003 and 30 are for clean ones.
    # The schedule is nearest to a rise over 80 epochs, a plateau, and a fall over the last 50.
    authors: ClassVar[Mapping[str, Any]] = {
        "epochs": 300,
        "optim.name": "adam",
        "optim.lr": 0.001,
        "optim.weight_decay": 0.0,
        "optim.batch_size": 100,
        "schedule.name": "onecycle",
        "schedule.warmup": 0.267,
        "schedule.start": 0.0067,
        "schedule.end": 0.0,
    }

    def __init__(self, *, weight: float | None = None, alpha: float = 0.6, ramp_length: float = 80 / 300) -> None:
        super().__init__()
        if weight is not None:
            check_range("weight", weight, 0.0, float("inf"), open_high=True)
        check_range("alpha", alpha, 0.0, 1.0, open_high=True)
        check_range("ramp_length", ramp_length, 0.0, float("inf"), open_high=True)
        # DEVIATES from authors' code: no Gaussian noise on the input and no weight normalisation, because networks are
        # the user's; all examples are labelled, so the factor labelled/n is 1.
        # DEVIATES from authors' code: Adam's beta1 stays, where theirs falls to .5 in the last 50 epochs, because a
        # schedule is one of the learning rate.
        # DEVIATES from authors' code: w depends on the number of classes, because |p - t|^2 / C does, and with three
        # classes 300 lets a network learn nothing after its first epoch.
        self.weight = weight
        self.alpha = alpha
        self.ramp_length = ramp_length

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """One network and one average for each example."""
        super().build(make_net, num_examples, num_classes)
        self.ensemble = ExampleTable(num_examples, num_classes)
        self.full_weight = 3.0 * num_classes * min(num_classes, 10) if self.weight is None else self.weight

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Loss with the average of earlier epochs; then this epoch's prediction joins it."""
        logits = self.nets[0](batch.x)
        # The first epoch has no earlier one: w = 0, and the correction of bias would divide by 0.
        w = self.full_weight * ramp(clock.epoch, epochs_of(self.ramp_length, clock.epochs)) if clock.epoch else 0.0
        z = self.ensemble.rows(batch.index)  # (B, C)
        # Rows of Z sum to 1 - alpha^k after k visits: k is the epoch, but where epochs do not come to every example.
        visited = z.sum(dim=1) > 0
        ce = cross_entropy(logits, batch.y).mean()
        consistency = (prediction_mse(logits, normalised(z)) * visited).mean()
        # Where an epoch comes to every example once, this is the authors' update at its end.
        self.ensemble.average_in(batch.index, logits.detach().float().softmax(dim=1), self.alpha)
        log: dict[str, Tensor | float] = {"ce": ce.detach(), "consistency": consistency.detach(), "weight": w}
        return Step(ce + w * consistency, len(batch.y), seen=(batch.index, logits.detach()), log=log)
