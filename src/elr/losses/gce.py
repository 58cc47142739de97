"""Generalized cross entropy (Zhang and Sabuncu 2018): between cross entropy and mean absolute error."""

import math

import torch
from torch import Tensor

from elr.losses.label import log_probabilities, under_label


def gce_loss(logits: Tensor, labels: Tensor, q: float = 0.7) -> Tensor:
    r"""Box-Cox transformation of the label's probability, one value per example.

    .. math:: L_q = (1 - p_y^q) / q

    Zhang and Sabuncu 2018. Cross entropy as q -> 0, half the L1 distance at q = 1; the gradient is
    p_y^q (p - y).
    Computed as -expm1(q log p_y) / q: p_y^q has an infinite slope where p_y underflows, and loses the digits of a
    small q.

    Args:
        logits: z, (B, C).
        labels: class ids (B,) or probabilities (B, C), under which the mean is taken.
        q: in (0, 1].

    Returns:
        (B,), each in [0, 1/q].
    """
    return under_label(torch.expm1(q * log_probabilities(logits)), labels) / -q


def gce_threshold(q: float, k: float) -> float:
    """L_q at p_y = k, the loss above which truncation gives an example up."""
    return (1.0 - math.pow(k, q)) / q


def truncated_gce_loss(logits: Tensor, labels: Tensor, kept: Tensor, q: float = 0.7, k: float = 0.5) -> Tensor:
    r"""Generalized cross entropy of the examples that are kept, one value per example.

    .. math:: v_i (L_q(p_i) - L_q(k)), \qquad v_i \in \{0, 1\}

    Zhang and Sabuncu 2018, for given v. The minimum over v is v_i = 1[L_q(p_i) < L_q(k)], and the loss is
    then the truncated one but for a constant.

    Args:
        logits: z, (B, C).
        labels: class ids (B,) or probabilities (B, C).
        kept: v, (B,).
        q: in (0, 1].
        k: probability of the label below which an example is to be given up.

    Returns:
        (B,), negative where a kept example is fitted well.
    """
    return kept * (gce_loss(logits, labels, q) - gce_threshold(q, k))
