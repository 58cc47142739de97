"""L_DMI: cross entropy first, then a mutual information that noise does not change."""

from collections.abc import Mapping
from typing import Any, ClassVar

from elr.data.stream import Batch
from elr.losses import cross_entropy, dmi_loss
from elr.methods.base import Method, Stage, Step, check_range, epochs_of, shares
from elr.parts.clock import Clock
from elr.parts.rate import constant_rate


class DMI(Method):
    """Maximises a mutual information of labels and predictions that class-dependent noise only scales.

    Every class must occur in the batch, else the batch teaches nothing: use batches of many times C examples.

    Args:
        pretrain: cross entropy before it, of which the best epoch on noisy validation is kept: a fraction of the run if
            at most 1, else epochs.
        lr_scale: learning rate of the second stage, relative to the run's; the authors have 1e-6 after .1.
    """

    reference = "Xu et al., NeurIPS 2019, L_DMI"
    equation = "L = -log(|det U| + .001), U_cj = sum over the batch of 1[y_i = c] p_ij"
    batch_coupled = True
    authors: ClassVar[Mapping[str, Any]] = {
        "epochs": 220,
        "optim.lr": 0.1,
        "optim.momentum": 0.9,
        "optim.weight_decay": 1e-4,
        "optim.batch_size": 256,
        "schedule.name": "multistep",
        "schedule.milestones": (40, 80),
        "schedule.factor": 0.1,
    }

    def __init__(self, *, pretrain: float = 120 / 220, lr_scale: float = 1e-5) -> None:
        super().__init__()
        check_range("pretrain", pretrain, 0.0, float("inf"))
        check_range("lr_scale", lr_scale, 0.0, 1.0)
        self.pretrain = pretrain
        self.lr_scale = lr_scale

    def plan(self, epochs: int) -> list[Stage]:
        """Cross entropy, then L_DMI at a small constant learning rate."""
        first = min(epochs_of(self.pretrain, epochs), epochs)
        pretraining, rest = shares(epochs, first, epochs - first)
        # DEVIATES from authors' code: momentum goes on within a stage, because it does in every method; they make a new
        # optimizer for each epoch of both stages.
        # DEVIATES from authors' code: the last epoch is the result; they report the best of the stage on validation.
        return [Stage(pretraining, keep="selected"), Stage(rest, lr_scale=self.lr_scale, schedule=constant_rate)]

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Mean cross entropy in the first stage, L_DMI of the whole batch in the second."""
        # DEVIATES from authors' code: a batch smaller than the others is not left out, in neither stage, because all
        # examples count; if it misses a class, L_DMI learns nothing from it anyway.
        logits = self.nets[0](batch.x)
        seen = (batch.index, logits.detach())
        if clock.stage == 0:
            loss = cross_entropy(logits, batch.y).mean()
            return Step(loss, len(batch.y), seen, log={"ce": loss.detach()})
        missing = batch.y.bincount(minlength=logits.shape[1]).eq(0).any().float()
        return Step(dmi_loss(logits, batch.y), len(batch.y), seen, log={"class_missing": missing})
