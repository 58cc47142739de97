"""Backward correction: an unbiased estimate of the loss on clean labels by the inverse of the transition matrix."""

import torch
from torch import Tensor

from elr.losses.correction import backward_loss
from elr.methods.base import MakeNet, check_range
from elr.methods.forward import Forward
from elr.parts.anchors import well_conditioned

MOST_CONDITION = 100.0  # symmetric noise of 89 % among ten classes has 90


class Backward(Forward):
    """Backward correction: cross entropies with all labels, mixed by the inverse of T; T is estimated as in forward.

    Unbiased whatever the network, but the inverse has negative entries and multiplies the variance by T's condition.

    Args:
        matrix: file with T, T[i, j] = P(label j | class i), rows sum to 1: .npy, .csv or .json; none: estimate it.
        estimate: epochs of cross entropy before T is estimated, a fraction of the run if at most 1.
        percentile: examples at or above this percentile of p_i cannot stand for class i; none: 97 up to ten classes,
            else 100, which leaves nothing out.
        clip: p is clamped to [clip, 1 - clip] inside the logarithm; 0 leaves the loss without a lower bound.
    """

    reference = "Patrini et al., CVPR 2017, Theorem 1, Algorithm 1"
    equation = "-sum_j (T^-1)_yj log p_j"
    published = "not in the paper's tables"

    inverse: Tensor

    def __init__(
        self,
        *,
        matrix: str | None = None,
        estimate: float = 0.5,
        percentile: float | None = None,
        clip: float = 1e-7,
    ) -> None:
        super().__init__(matrix=matrix, estimate=estimate, percentile=percentile)
        check_range("clip", clip, 0.0, 0.5, open_high=True)
        self.clip = clip

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """One network, T and its inverse."""
        self.register_buffer("inverse", torch.eye(num_classes))
        super().build(make_net, num_examples, num_classes)

    def _use(self, matrix: Tensor) -> None:
        # DEVIATES from authors' code: a T that can hardly be inverted is drawn towards the identity, because a network
        # trained for a few epochs may take one example as the anchor of two classes.
        wide = matrix.cpu().double()  # in this order: MPS has no float64
        usable = well_conditioned(wide, MOST_CONDITION)
        if self.matrix is not None and not torch.equal(usable, wide):
            raise ValueError(f"{self.matrix} can hardly be inverted: use method forward, which needs no inverse")
        super()._use(usable.float())
        self.inverse.copy_(torch.linalg.inv(usable))

    def _corrected(self, logits: Tensor, labels: Tensor) -> Tensor:
        return backward_loss(logits, labels, self.inverse, clip=self.clip)
