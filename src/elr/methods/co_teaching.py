"""Co-teaching: each of two networks learns from the examples that the other finds easy."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from elr.data.stream import Batch, Stream, TrainData
from elr.losses import cross_entropy
from elr.methods.base import MakeNet, Method, Pass, Step, check_range, epochs_of, part_of_run, sweep
from elr.parts.clock import Clock
from elr.parts.select import (
    USUAL_RATE,
    NoiseRate,
    forget_rate,
    kept_count,
    log_mean_p,
    logits_of,
    look,
    mean_over,
    smallest,
)

AUTHORS_EPOCHS = 200


class CoTeaching(Method):
    """Two networks; each takes the examples of the batch with the smallest loss under the other, fewer as epochs pass.

    Args:
        rate: tau, the fraction of wrong labels; none: estimated from the training losses at the end of the ramp.
        ramp: T_k, epochs in which the dropped fraction rises to tau; a fraction of the run if at most 1.
        exponent: c, the dropped fraction rises towards tau^c.
        forward_kept_only: learn from a second pass over the kept examples alone, so batch norm sees no others; cheaper
            where a forward pass costs much less than a backward pass, and not what the authors do.
    """

    reference = "Han et al., NeurIPS 2018, Algorithm 1"
    equation = "L = mean CE_1 over S_2 + mean CE_2 over S_1,  S_k = the (1 - tau(T)) B smallest losses of network k"
    passes = "2 forwards and backwards (one a network)"
    published = "Table 4, InceptionResNetV2, top-1 / top-5: mini WebVision 63.58 / 85.20, ILSVRC12 61.48 / 84.70"
    # DEVIATES from authors' code: theirs lowers Adam's beta1 from .9 to .1 at epoch 80, because optimizer settings but
    # the learning rate are constant here.
    authors: ClassVar[Mapping[str, Any]] = {
        "epochs": AUTHORS_EPOCHS,
        "optim.name": "adam",
        "optim.lr": 1e-3,
        "optim.weight_decay": 0.0,
        "optim.batch_size": 128,
        "schedule.name": "linear",
        "schedule.milestone": 0.4,
    }
    batch_coupled = True

    def __init__(
        self,
        *,
        rate: float | None = None,
        ramp: float = 0.05,
        exponent: float = 1.0,
        forward_kept_only: bool = False,
    ) -> None:
        super().__init__()
        if rate is not None:
            check_range("rate", rate, 0.0, 1.0, open_high=True)
        check_range("ramp", ramp, 0.0, float("inf"))
        check_range("exponent", exponent, 0.0, float("inf"))
        self.rate = rate
        self.ramp = ramp  # the authors' 10 of 200 epochs
        self.exponent = exponent
        self.forward_kept_only = forward_kept_only

    @property
    def cost(self) -> float:
        """Two networks; a sweep of both in each epoch of the ramp, if the rate is to be estimated."""
        sweeps = part_of_run(self.ramp, AUTHORS_EPOCHS) if self.rate is None else 0.0
        trained = 1.0 / 3.0 + self.backwards / 2.0 if self.forward_kept_only else 1.0
        return 2.0 * (trained + sweeps / 3.0)

    @property
    def backwards(self) -> float:
        """One a network; with ``forward_kept_only`` of kept examples alone."""
        rate = USUAL_RATE if self.rate is None else self.rate
        return 2.0 * (1.0 - rate) if self.forward_kept_only else 2.0

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """Two networks that start differently, and the noise rate."""
        self.nets = nn.ModuleList([make_net(0), make_net(1)])
        self.noise_rate = NoiseRate(self.rate)

    def epoch(self, data: TrainData, clock: Clock) -> Iterator[Pass]:
        """Estimate the noise rate while the dropped fraction rises, then one pass."""
        if self.rate is None and self._estimates(clock):
            losses = [cross_entropy(sweep(net, data), data.y) for net in self.nets]
            self.noise_rate.estimate(torch.stack(losses).mean(dim=0))
        yield Pass(Stream(), self.step)

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Sum of both networks' losses: picks are positions, so no gradient passes from one to the other."""
        logits = look(self.nets, batch.x, learn=not self.forward_kept_only)  # (B, C) each
        losses = [cross_entropy(z, batch.y) for z in logits]  # (B,) each
        forgotten = forget_rate(clock.epoch, epochs_of(self.ramp, clock.epochs), float(self.noise_rate), self.exponent)
        kept = self.select(logits, losses, 1.0 - forgotten, clock)
        if self.forward_kept_only:
            ours = [
                cross_entropy(logits_of(net, batch.x, kept[k]), batch.y[kept[k]]) for k, net in enumerate(self.nets)
            ]
        else:
            ours = [losses[k][kept[k]] for k in range(2)]
        # DEVIATES from authors' code: the mean is not divided by the number of kept examples a second time.
        loss = mean_over(ours[0]) + mean_over(ours[1])
        log: dict[str, Tensor | float] = {
            "ce": torch.stack([values.detach().mean() for values in losses]).mean(),
            "kept": (len(kept[0]) + len(kept[1])) / (2 * len(batch.y)),
            "noise_rate": float(self.noise_rate),
        }
        return Step(loss, len(batch.y), seen=(batch.index, log_mean_p(logits)), log=log)

    def select(
        self, logits: list[Tensor], losses: list[Tensor], fraction: float, clock: Clock
    ) -> tuple[Tensor, Tensor]:
        """Positions in the batch that the first and the second network learn from: each other's small losses."""
        count = kept_count(len(losses[0]), fraction)
        return smallest(losses[1], count), smallest(losses[0], count)

    def _estimates(self, clock: Clock) -> bool:
        """In the epochs of the ramp but the first, whose networks know nothing: without a rate it keeps everything."""
        return 1 <= clock.epoch <= max(1.0, epochs_of(self.ramp, clock.epochs))
