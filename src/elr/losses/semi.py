"""Terms that semi-supervised methods add to the cross entropy of trusted examples."""

import math

from torch import Tensor

from elr.losses.label import log_probabilities


def negative_entropy(logits: Tensor) -> Tensor:
    r"""Confidence of predictions, one value per example.

    .. math:: \sum_c p_c \log p_c

    Li et al. 2020 (DivideMix), Section 3.1. Added to cross entropy it keeps a network from growing sure of wrong
    labels, which under asymmetric noise takes few epochs.

    Args:
        logits: z, (B, C).

    Returns:
        (B,), each in [-log C, 0].
    """
    log_p = log_probabilities(logits)
    return (log_p.exp() * log_p).sum(dim=1)


def balance_penalty(logits: Tensor) -> Tensor:
    r"""Divergence of the batch's mean prediction from the uniform distribution: one number for the batch.

    .. math:: \sum_c \pi_c \log \frac{\pi_c}{\bar p_c}, \qquad \pi_c = \frac{1}{C}, \quad
        \bar p = \frac{1}{B} \sum_i p_i

    Li et al. 2020 (DivideMix), Section 3.2. It keeps all examples from being guessed into one class. The logarithm of
    the mean is taken by logsumexp, so a class that nobody predicts costs much, not infinitely much.

    Args:
        logits: z, (B, C).

    Returns:
        ().
    """
    log_mean = log_probabilities(logits).logsumexp(dim=0) - math.log(len(logits))  # (C,)
    return -math.log(logits.shape[1]) - log_mean.mean()
