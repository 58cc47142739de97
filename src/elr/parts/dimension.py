"""Local intrinsic dimensionality: in how many directions the neighbours of a point lie."""

import torch
from torch import Tensor

CLOSEST = 1e-8  # a neighbour at distance 0 counts as this fraction of the farthest


def local_dimension(features: Tensor, neighbours: int) -> Tensor:
    r"""Maximum-likelihood estimate of the local intrinsic dimensionality of each row among the others.

    .. math:: -\Big(\frac1k \sum_{i=1}^k \log \frac{r_i}{r_k}\Big)^{-1}

    Amsaleg et al. 2015; Ma et al. 2018, Eq. (2). Minus infinity where all neighbours are equally far away.

    Args:
        features: (B, D).
        neighbours: k, at most B - 1 of which are used.

    Returns:
        (B,) float64, on the CPU, since MPS has no float64.
    """
    x = features.detach().flatten(1).cpu().double()
    # By scalar products: nine times as fast as by differences, and in float64 what cancels does not matter.
    distances = torch.cdist(x, x, compute_mode="use_mm_for_euclid_dist")  # (B, B)
    distances.fill_diagonal_(torch.inf)  # a point is not its own neighbour
    nearest = distances.topk(min(neighbours, len(x) - 1), dim=1, largest=False).values  # (B, k), ascending
    return dimension_of_distances(nearest)


def dimension_of_distances(nearest: Tensor) -> Tensor:
    """The same from distances to the k nearest neighbours, (B, k) in ascending order: (B,)."""
    farthest = nearest[:, -1:].clamp_min(torch.finfo(nearest.dtype).tiny)
    return -1.0 / (nearest / farthest).clamp_min(CLOSEST).log().mean(dim=1)
