"""A transition matrix from predictions of noisy labels, read off examples that surely belong to their class."""

import math

import torch
from torch import Tensor


def default_percentile(num_classes: int) -> float:
    """97 up to ten classes, 100 above, as in Patrini's code: 3 % of the data are the whole of one class in 33."""
    return 97.0 if num_classes <= 10 else 100.0


def anchor_matrix(p: Tensor, percentile: float | None = None) -> Tensor:
    """T, (C, C): row i is what p, (n, C), says of the anchor of class i. Patrini et al. 2017, Eq. (12) and (13).

    The anchor is the example with the largest p_i below the percentile, since the largest of all are often outliers; a
    percentile of 100 leaves nothing out, None is the default one. p must predict the *noisy* label.
    """
    percentile = default_percentile(p.shape[1]) if percentile is None else percentile
    masked = p
    if percentile < 100.0:
        rank = math.ceil(percentile / 100.0 * (len(p) - 1))
        bound = p.kthvalue(rank + 1, dim=0).values  # (C,)
        masked = p.masked_fill(p >= bound, -1.0)
        masked = torch.where(masked.amax(dim=0) < 0.0, p, masked)  # all are equal: nothing would be left
    # DEVIATES from authors' code: whole rows are read, because there the filter writes zeros through a view into p and
    # the rows of later classes are read with holes.
    rows = p[masked.argmax(dim=0)]
    return rows / rows.sum(dim=1, keepdim=True)


def well_conditioned(matrix: Tensor, most: float) -> Tensor:
    """T drawn towards the identity in steps of a twentieth until its condition number is at most ``most``."""
    eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    for step in range(21):
        mixed = torch.lerp(matrix, eye, step / 20)
        if torch.linalg.cond(mixed) <= most:
            return mixed
    return eye
