"""Determinant-based mutual information (Xu et al. 2019), a loss of a whole batch."""

import math

import torch
from torch import Tensor, nn

from elr.losses.label import log_probabilities


def dmi_loss(logits: Tensor, labels: Tensor, epsilon: float = 1e-3) -> Tensor:
    r"""Minus log determinant of the joint distribution of label and prediction, one value for the batch.

    .. math:: -\log(|\det U| + \epsilon), \qquad U_{cj} = \sum_i 1[y_i = c]\, p_{ij}

    Xu et al. 2019, in the form of the authors' code: U is a sum rather than a mean, which adds the constant
    C log B, and epsilon keeps the logarithm finite. Noise that depends on the class multiplies U by the transition
    matrix and so adds a constant; but exchanged classes give the same loss, and only a network that knows them already
    will keep them apart.
    From the logarithm of the determinant, because the determinant of many classes leaves float32. Where U is
    singular, as it is when a class is missing from the batch, the loss is -log(epsilon) and its gradient zero.

    Args:
        logits: z, (B, C).
        labels: class ids (B,) or probabilities (B, C).
        epsilon: added to the determinant.

    Returns:
        (), a scalar.
    """
    p = log_probabilities(logits).exp()  # (B, C)
    y = labels if labels.dim() == 2 else nn.functional.one_hot(labels, p.shape[1])
    with torch.autocast(p.device.type, enabled=False):  # a product in bfloat16 would leave the determinant no digit
        U = y.to(p.dtype).T @ p  # (C, C)
    # The slope of the logarithm is the inverse of U, which a singular U does not have: take that of another matrix,
    # and do not use it.
    singular = torch.linalg.slogdet(U.detach()).logabsdet == -math.inf
    regular = torch.where(singular, torch.eye(len(U), dtype=U.dtype, device=U.device), U)
    log_epsilon = torch.full((), math.log(epsilon), dtype=U.dtype, device=U.device)
    return -torch.where(singular, log_epsilon, torch.logaddexp(torch.linalg.slogdet(regular).logabsdet, log_epsilon))
