"""Mean absolute error between label and prediction (Ghosh et al. 2017)."""

import torch
from torch import Tensor

from elr.losses.label import log_probabilities, under_label


def mae_loss(logits: Tensor, labels: Tensor) -> Tensor:
    r"""L1 distance of label and prediction, one value per example.

    .. math:: \lVert y - p \rVert_1 = 2 (1 - p_y)

    Ghosh et al. 2017. Symmetric: its sum over all labels is the constant 2 (C - 1), which is why symmetric noise does
    not move its minimum. The gradient is 2 p_y (p - y): an example that looks wrong teaches next to nothing, and so
    does one that is not learned yet. Some write 1 - p_y; the factor 2 is one of the learning rate.

    Args:
        logits: z, (B, C).
        labels: class ids (B,) or probabilities (B, C).

    Returns:
        (B,), each in [0, 2].
    """
    log_p = log_probabilities(logits)
    if labels.dim() == 1:
        return -2.0 * torch.expm1(under_label(log_p, labels))
    return (labels - log_p.exp()).abs().sum(dim=1)
