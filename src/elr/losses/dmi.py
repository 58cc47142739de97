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
    From the logarithm of the determinant, because the determinant of many classes leaves every range. Where it is
    nothing beside epsilon, as when a class is missing from the batch, the loss is -log(epsilon) and its gradient zero.
    In float64, whatever the logits, because the inverse of U leaves float32 before p does; on the CPU if they are on
    MPS, which has no float64.

    Args:
        logits: z, (B, C).
        labels: class ids (B,) or probabilities (B, C).
        epsilon: added to the determinant.

    Returns:
        (), a scalar.
    """
    log_p = log_probabilities(logits)  # (B, C)
    y = labels if labels.dim() == 2 else nn.functional.one_hot(labels, log_p.shape[1])
    device = "cpu" if log_p.device.type == "mps" else log_p.device
    U = y.to(device).double().T @ log_p.to(device).double().exp()  # (C, C); autocast leaves float64 alone
    log_epsilon = torch.full((), math.log(epsilon), dtype=U.dtype, device=device)
    # The slope of the logarithm is the inverse of U, which a singular U does not have, and which overflows for one that
    # nearly is: take that of another matrix, and do not use it.
    nothing = torch.linalg.slogdet(U.detach()).logabsdet < log_epsilon + math.log(torch.finfo(U.dtype).eps)
    regular = torch.where(nothing, torch.eye(len(U), dtype=U.dtype, device=device), U)
    loss = -torch.where(nothing, log_epsilon, torch.logaddexp(torch.linalg.slogdet(regular).logabsdet, log_epsilon))
    return loss.to(log_p.dtype).to(log_p.device)
