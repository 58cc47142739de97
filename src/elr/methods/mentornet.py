"""MentorNet: example weights that follow a curriculum over the losses of a batch."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from elr.data.stream import Batch
from elr.losses import cross_entropy
from elr.methods.base import MakeNet, Method, Step, check_choice, check_range, epochs_of
from elr.parts.clock import Clock

Curriculum = Literal["predefined", "self_paced"]
PERCENTILES: dict[str, float] = {"predefined": 0.75, "self_paced": 0.7}


class MentorNet(Method):
    """Cross entropy weighted by a curriculum: examples whose loss is above a moving percentile count less or nothing.

    ``self_paced``: weight 1 up to the threshold, 0 above it, from the first step on, so a class that is learned late
    may be left out for good (on digits one is). ``predefined``: at first every weight is 1, then self-paced, and
    in the last tenth weights fall in a line above the threshold; besides, a random part of each batch is left out. Both
    are used in closed form, which is what the authors train their network of weights to reproduce.
    Their data-driven curriculum is not here: it is learned from examples whose labels are known to be right.

    Args:
        curriculum: predefined or self_paced.
        percentile: p, the part of a batch that lies below the threshold; none: .75 for predefined, the authors' value
            at 20 and 40 % noise (.5 at 80 %), and .7 for self_paced.
        memory: of the moving average of the p-th percentile, in [0, 1).
        gamma: width of the linear fall above the threshold (predefined).
        burn_in: epochs with all weights 1 (predefined); a fraction of the run if at most 1.
        linear_from: epoch from which weights fall in a line (predefined); a fraction of the run if at most 1.
        dropout: part of each batch left out at random until ``dropout_until`` (predefined).
        late_dropout: part of each batch left out after that (predefined).
        dropout_until: epochs; a fraction of the run if at most 1.
    """

    reference = "Jiang et al., ICML 2018, Section 3 and the authors' MentorNet PD"
    equation = "L = (1/B) sum_i v_i CE_i,  v_i = [CE_i <= q];  q <- .5 q + .5 percentile_p(CE)"
    published = "Table 4, InceptionResNetV2, top-1 / top-5: mini WebVision 63.00 / 81.40, ILSVRC12 57.80 / 79.92"
    authors: ClassVar[Mapping[str, Any]] = {  # 39,000 steps; drops at 19,531, 25,000 and 30,000
        "epochs": 100,
        "optim.lr": 0.1,
        "optim.momentum": 0.9,
        "optim.weight_decay": 2e-4,
        "optim.batch_size": 128,
        "schedule.name": "multistep",
        "schedule.milestones": (50, 64, 77),
        "schedule.factor": 0.1,
    }
    batch_coupled = True

    threshold: Tensor

    def __init__(
        self,
        *,
        curriculum: Curriculum = "predefined",
        percentile: float | None = None,
        memory: float = 0.5,
        gamma: float = 1.0,
        burn_in: float = 0.19,
        linear_from: float = 0.9,
        dropout: float = 0.5,
        late_dropout: float = 0.05,
        dropout_until: float = 0.17,
    ) -> None:
        super().__init__()
        check_choice("curriculum", curriculum, get_args(Curriculum))
        if percentile is not None:
            check_range("percentile", percentile, 0.0, 1.0)
        check_range("memory", memory, 0.0, 1.0, open_high=True)
        check_range("gamma", gamma, 1e-6, float("inf"), open_high=True)
        for name, length in (("burn_in", burn_in), ("linear_from", linear_from), ("dropout_until", dropout_until)):
            check_range(name, length, 0.0, float("inf"), open_high=True)
        check_range("dropout", dropout, 0.0, 1.0, open_high=True)
        check_range("late_dropout", late_dropout, 0.0, 1.0, open_high=True)
        self.curriculum = curriculum
        self.percentile = percentile
        self.memory = memory
        self.gamma = gamma
        self.burn_in = burn_in
        self.linear_from = linear_from
        self.dropout = dropout
        self.late_dropout = late_dropout
        self.dropout_until = dropout_until

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """One network and the moving threshold, which starts at 0 as the authors' does."""
        super().build(make_net, num_examples, num_classes)
        self.register_buffer("threshold", torch.zeros(()))

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Mean over the whole batch of weighted losses: a batch of which little is kept makes a small step."""
        logits = self.nets[0](batch.x)
        losses = cross_entropy(logits, batch.y)  # (B,)
        q = self._follow(losses.detach())
        v = self.weights(losses.detach(), q, clock)  # (B,)
        if self.curriculum == "predefined":
            v = v * self._lottery(len(v), clock).to(v)
        # DEVIATES from authors' code: weight decay is not multiplied by the mean of v, because the optimizer has it.
        loss = (v * losses).mean()
        log = {"ce": losses.detach().mean(), "kept": v.mean(), "threshold": q}
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()), log=log)

    def weights(self, losses: Tensor, threshold: Tensor, clock: Clock) -> Tensor:
        """Curriculum v* of each example, (B,), before dropout."""
        elapsed = clock.epoch + clock.batch / clock.batches
        above = losses - threshold
        if self.curriculum == "predefined":
            if elapsed < epochs_of(self.burn_in, clock.epochs):
                return torch.ones_like(losses)
            if elapsed >= epochs_of(self.linear_from, clock.epochs):
                return (1.0 - above / self.gamma).clamp(0.0, 1.0)
        return (above <= 0.0).to(losses)

    def _follow(self, losses: Tensor) -> Tensor:
        """Move the threshold towards this batch's percentile and return it."""
        p = PERCENTILES[self.curriculum] if self.percentile is None else self.percentile
        now = losses.quantile(p, interpolation="nearest").to(self.threshold)
        self.threshold.lerp_(now, 1.0 - self.memory)
        return self.threshold.clone()

    def _lottery(self, size: int, clock: Clock) -> Tensor:
        """1 for the examples that stay and 0 for those left out by chance, (B,)."""
        elapsed = clock.epoch + clock.batch / clock.batches
        early = elapsed < epochs_of(self.dropout_until, clock.epochs)
        stay = int(size * (1.0 - (self.dropout if early else self.late_dropout)))
        drawn = torch.zeros(size)
        drawn[torch.from_numpy(clock.rng("example dropout").permutation(size)[:stay])] = 1.0
        return drawn
