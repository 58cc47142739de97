"""How far predictions are from those of another view, another time or another network."""

import torch
from torch import Tensor

from elr.losses.label import log_probabilities


def prediction_mse(logits: Tensor, targets: Tensor) -> Tensor:
    r"""Mean over classes of the squared difference of probabilities, one value per example.

    .. math:: \frac{1}{C} \sum_c (p_c - t_c)^2

    Laine and Aila 2017, Algorithm 2; Tarvainen and Valpola 2017. At most 2/C: a target that is wrong costs little.

    Args:
        logits: z, (B, C).
        targets: t, (B, C) probabilities; no gradient flows into them.

    Returns:
        (B,).
    """
    return (log_probabilities(logits).exp() - targets.detach()).square().mean(dim=1)


def prediction_kl(logits: Tensor, targets: Tensor) -> Tensor:
    r"""Divergence of predictions from targets, one value per example.

    .. math:: \mathrm{KL}(t \| p) = \sum_c t_c (\log t_c - \log p_c)

    Liu et al. 2022 (SOP+). The gradient is that of cross entropy with targets; the value is 0 where they agree.

    Args:
        logits: z, (B, C).
        targets: t, (B, C) probabilities; no gradient flows into them.

    Returns:
        (B,).
    """
    t = targets.detach()
    return (torch.xlogy(t, t) - t * log_probabilities(logits)).sum(dim=1)
