"""Symmetric cross entropy (Wang et al. 2019): cross entropy plus the same with label and prediction exchanged."""

import torch
from torch import Tensor

from elr.losses.label import log_probabilities, under_label


def sl_loss(logits: Tensor, labels: Tensor, alpha: float = 0.1, beta: float = 1.0, A: float = -9.2103) -> Tensor:
    r"""Cross entropy plus reverse cross entropy, one value per example.

    .. math:: -\alpha \sum_c y_c \log p_c - \beta \sum_c p_c \log y_c, \qquad \log 0 := A

    Wang et al. 2019. For a label that is one class the second sum is |A| (1 - p_y), so the gradient is
    (alpha + beta |A| p_y) (p - y). Logarithms of probabilities below exp(A) are A too.

    Args:
        logits: z, (B, C).
        labels: class ids (B,) or probabilities (B, C).
        alpha: weight of cross entropy.
        beta: weight of reverse cross entropy.
        A: stands for log 0, negative.

    Returns:
        (B,).
    """
    log_p = log_probabilities(logits)
    if labels.dim() == 1:
        reverse = A * torch.expm1(under_label(log_p, labels))
    else:
        reverse = -(log_p.exp() * labels.detach().log().clamp_min(A)).sum(dim=1)
    return beta * reverse - alpha * under_label(log_p, labels)
