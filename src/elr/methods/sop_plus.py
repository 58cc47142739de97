"""SOP+: SOP whose network also has to agree with itself on a strongly augmented view and to use all classes."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import torch

from elr.data.stream import Batch, Stream, TrainData
from elr.losses.consistency import prediction_kl
from elr.losses.label import log_probabilities
from elr.losses.sop import FLOOR, class_balance, sop_loss
from elr.methods.base import Pass, Step, check_range
from elr.methods.sop import SOP
from elr.parts.clock import Clock


class SOPPlus(SOP):
    """SOP, plus agreement between a weak and a strong augmentation, plus a prior that all classes are equally frequent.

    Args:
        lr_u: learning rate of u, as in SOP.
        lr_v: learning rate of v, as in SOP.
        init: standard deviation of u and v at the start.
        floor: least probability in the cross entropy, as in SOP.
        consistency: weight of the divergence of the strong view's prediction from the weak view's.
        balance: weight of the class-balance term; 0 where classes are known to differ in size.
    """

    reference = "Liu, Zhu, Qu, You, ICML 2022 (Robust Training under Label Noise by Over-parameterization), Section 2.3"
    equation = "SOP + consistency KL(p(weak) | p(strong)) + balance KL(1/C | mean p)"
    passes = "2 forwards and backwards"
    batch_coupled = True  # the class balance is one of a batch
    views = 2
    authors: ClassVar[Mapping[str, Any]] = {
        "epochs": 300,
        "optim.lr": 0.02,
        "optim.momentum": 0.9,
        "optim.weight_decay": 1e-3,
        "optim.batch_size": 128,
        "schedule.name": "cosine",
        "schedule.period": 300,
        "schedule.min_lr": 2e-4,
    }

    def __init__(
        self,
        *,
        lr_u: float = 10.0,
        lr_v: float = 10.0,
        init: float = 1e-8,
        floor: float = FLOOR,
        consistency: float = 0.9,
        balance: float = 0.1,
    ) -> None:
        super().__init__(lr_u=lr_u, lr_v=lr_v, init=init, floor=floor)
        check_range("consistency", consistency, 0.0, float("inf"), open_high=True)
        check_range("balance", balance, 0.0, float("inf"), open_high=True)
        self.consistency = consistency
        self.balance = balance

    @property
    def cost(self) -> float:
        """Both views go forward and backward."""
        return 2.0

    @property
    def backwards(self) -> float:
        """Both views have a gradient."""
        return 2.0

    def epoch(self, data: TrainData, clock: Clock) -> Iterator[Pass]:
        """One pass with a weak and a strong view of each example."""
        # DEVIATES from authors' code: the strong view is that of data.augment, not AutoAugment's CIFAR-10 policy and
        # cutout of 16 pixels, because it has to fit any images, and vectors (where it is a threefold jitter).
        yield Pass(Stream(views=2, strong=True), self.step)

    def step(self, batch: Batch, clock: Clock) -> Step:
        """SOP's loss on the weak view, agreement of the strong view with it, class balance."""
        (strong,) = batch.views
        # One forward for both views, as the authors do: batch norm sees their common statistics.
        logits, strong_logits = self.nets[0](torch.cat([batch.x, strong])).chunk(2)
        u, v = self.u.rows(batch.index).requires_grad_(), self.v.rows(batch.index).requires_grad_()
        parts = sop_loss(logits, batch.y, u, v, floor=self.floor)
        agreement = prediction_kl(strong_logits, log_probabilities(logits.detach()).exp()).mean()
        balance = class_balance(parts.prediction, floor=self.floor)
        loss = parts.loss.mean() + self.consistency * agreement + self.balance * balance
        log = {
            "ce": parts.ce.mean(),
            "mse": parts.mse.mean(),
            "u_square": u.detach().square().mean(),
            "consistency": agreement.detach(),
            "balance": balance.detach(),
        }
        then = partial(self.absorb, batch.index, u, v)
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()), log=log, then=then)
