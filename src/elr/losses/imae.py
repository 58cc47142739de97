"""Improved mean absolute error (Wang et al. 2019), a loss that is given by its gradient."""

import math

import torch
from torch import Tensor, nn

from elr.losses.label import log_probabilities, under_label


def imae_loss(logits: Tensor, labels: Tensor, T: float = 8.0) -> Tensor:
    r"""Cross entropy with a constant weight for each example, one value per example.

    .. math:: w_i\, \mathrm{CE}_i, \qquad w = \frac{\exp(T p_y (1 - p_y))}{2 (1 - p_y)}

    Wang et al. 2019 (arXiv 1903.12141): the gradient is w (p - y), of L1 norm exp(T p_y (1 - p_y)). That norm is the
    whole definition; the weight has no gradient, so the value is no potential of this gradient and only a number to
    watch. An example that is fitted perfectly keeps a gradient of norm 1.
    Computed from m = log p_y - log(1 - p_y), in which cross entropy has the slope p_y - 1: the product with w is right
    to the last digit where 1 - p_y is smaller than the rounding of p_y.

    Args:
        logits: z, (B, C).
        labels: class ids (B,) or probabilities (B, C), under which the mean is taken.
        T: how much more the gradient of examples with p_y near 1/2 weighs; 0 gives every example norm 1.

    Returns:
        (B,).
    """
    m = log_odds(log_probabilities(logits))  # (B, C)
    p, rest = m.detach().sigmoid(), m.detach().neg().sigmoid().clamp_min(torch.finfo(m.dtype).tiny)
    weight = torch.exp(T * p * rest) / (2.0 * rest)
    return under_label(-weight * nn.functional.logsigmoid(m), labels)


def log_odds(log_p: Tensor) -> Tensor:
    """Log p - log(1 - p) of every class, (B, C), without cancellation however sure the prediction is."""
    # 1 - p is at least a half for all classes but the most likely one, whose complement is summed from the others.
    top = torch.zeros_like(log_p, dtype=torch.bool).scatter_(1, log_p.detach().argmax(dim=1, keepdim=True), True)
    others = log_p.masked_fill(top, -math.inf).logsumexp(dim=1, keepdim=True)  # (B, 1)
    rest = torch.log(-torch.expm1(log_p.masked_fill(top, -1.0)))  # -1 is any number with a finite slope
    return log_p - torch.where(top, others, rest)
