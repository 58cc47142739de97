"""Co-teaching+: co-teaching among the examples that the two networks disagree on."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from elr.methods.base import check_range, epochs_of
from elr.methods.co_teaching import CoTeaching
from elr.parts.clock import Clock
from elr.parts.select import disagreement, kept_count, smallest


class CoTeachingPlus(CoTeaching):
    """Co-teaching for a while, then only with examples that the two networks give different classes.

    Args:
        rate: tau, the fraction of wrong labels; none: estimated from the training losses at the end of the ramp.
        warmup: epochs of plain co-teaching before disagreement counts; a fraction of the run if at most 1.
        ramp: T_k, epochs in which the dropped fraction rises to tau; a fraction of the run if at most 1.
        exponent: c, the dropped fraction rises towards tau^c.
        forward_kept_only: learn from a second pass over the kept examples alone, so batch norm sees no others; cheaper
            where a forward pass costs much less than a backward pass, and not what the authors do.
    """

    reference = "Yu et al., ICML 2019, Algorithm 1"
    equation = (
        "L = mean CE_1 over S_2 + mean CE_2 over S_1,  S_k = small losses of network k where argmax p_1, p_2 differ"
    )
    published = (
        "Table 2, PreAct ResNet-18, best epoch on test, 20, 50, 80, 90 % symmetric: CIFAR-10 89.5, 85.7, 67.4, 47.9; "
        "CIFAR-100 65.6, 51.8, 27.9, 13.7"
    )
    authors: ClassVar[Mapping[str, Any]] = CoTeaching.authors

    def __init__(
        self,
        *,
        rate: float | None = None,
        warmup: float = 0.1,
        ramp: float = 0.05,
        exponent: float = 1.0,
        forward_kept_only: bool = False,
    ) -> None:
        super().__init__(rate=rate, ramp=ramp, exponent=exponent, forward_kept_only=forward_kept_only)
        check_range("warmup", warmup, 0.0, float("inf"))
        self.warmup = warmup  # the authors' 20 of 200 epochs on CIFAR-10

    def select(
        self, logits: list[Tensor], losses: list[Tensor], fraction: float, clock: Clock
    ) -> tuple[Tensor, Tensor]:
        """Each other's small losses among the positions of disagreement; nothing where the networks agree on all."""
        # DEVIATES from authors' code: losses are cross entropies of logits, because theirs are of softmax outputs, a
        # second softmax that flattens every gradient; and the first example of the data set is not lost.
        # DEVIATES from authors' code: a batch without disagreement is always skipped, where theirs is learned whole
        # while epoch * batch number < 5000; and where the kept fraction is less than one example, one is kept and not
        # all, because wrong labels are the reason for selecting.
        if clock.epoch < epochs_of(self.warmup, clock.epochs):
            return super().select(logits, losses, fraction, clock)
        rows = disagreement(logits)  # (D,)
        count = kept_count(len(rows), fraction)
        return rows[smallest(losses[1][rows], count)], rows[smallest(losses[0][rows], count)]
