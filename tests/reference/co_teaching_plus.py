"""Co-teaching+, Algorithm 1 of Yu et al. 2019: co-teaching, and later only where the two networks disagree."""

from collections.abc import Sequence

from torch import Tensor, nn

from reference import co_teaching
from reference.ce import Trajectory


def train(
    nets: Sequence[nn.Module],
    x: Tensor,
    y: Tensor,
    epochs: Sequence[Sequence[Sequence[int]]],
    num_classes: int,
    *,
    warmup: int,
    **settings: float,
) -> Trajectory:
    return co_teaching.train(nets, x, y, epochs, num_classes, disagree_from=warmup, **settings)
