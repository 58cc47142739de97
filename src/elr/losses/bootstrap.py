"""Bootstrapping (Reed et al. 2015): part of the label is what the network itself predicts."""

import torch
from torch import Tensor

from elr.losses.label import log_probabilities, under_label


def bootstrap_soft_loss(logits: Tensor, labels: Tensor, beta: float = 0.95) -> Tensor:
    r"""Cross entropy to a blend of label and prediction, one value per example.

    .. math:: -\sum_c (\beta y_c + (1 - \beta) p_c) \log p_c = \beta\, \mathrm{CE} + (1 - \beta)\, H(p)

    Reed et al. 2015, soft form. The prediction inside the blend has a gradient: the loss is cross entropy with minimum
    entropy regularization. With a detached prediction the gradient would be beta (p - y), cross entropy and nothing
    else.

    Args:
        logits: z, (B, C).
        labels: class ids (B,) or probabilities (B, C).
        beta: share of the label.

    Returns:
        (B,).
    """
    log_p = log_probabilities(logits)
    entropy = -(log_p.exp() * log_p).sum(dim=1)
    return torch.lerp(entropy, -under_label(log_p, labels), beta)


def bootstrap_hard_loss(logits: Tensor, labels: Tensor, beta: float = 0.8) -> Tensor:
    r"""Cross entropy to a blend of label and predicted class, one value per example.

    .. math:: -\sum_c (\beta y_c + (1 - \beta) 1[c = \arg\max p]) \log p_c

    Reed et al. 2015, hard form. Where the label is the predicted class this is cross entropy, exactly. Of classes that
    are equally likely the first one counts as predicted.

    Args:
        logits: z, (B, C).
        labels: class ids (B,) or probabilities (B, C).
        beta: share of the label.

    Returns:
        (B,).
    """
    log_p = log_probabilities(logits)
    predicted = log_p.detach().argmax(dim=1)
    return torch.lerp(-under_label(log_p, predicted), -under_label(log_p, labels), beta)
