"""Losses corrected by a transition matrix T[i, j] = P(noisy label j | true label i).

p is what the network says of the true class, pT what it then expects of the label. Always p T, never T p, and never T
times logits; and always predict with p.
"""

import math

import torch
from torch import Tensor

from elr.losses.label import log_probabilities, under_label

TINY = torch.finfo(torch.float32).tiny  # stands for 0 inside a logarithm, the same number in every precision
MOST_WEIGHT = 100.0


def forward_loss(logits: Tensor, labels: Tensor, matrix: Tensor) -> Tensor:
    r"""Forward correction, one value per example: cross entropy between the label and pT.

    .. math:: -\log \sum_i p_i T_{iy}

    Patrini et al. 2017, Theorem 2. Its minimiser on noisy labels is that of cross entropy on clean ones.

    Args:
        logits: z, (B, C).
        labels: class ids (B,) or probabilities (B, C).
        matrix: T, (C, C), rows sum to 1; a gradient flows into it if it asks for one.

    Returns:
        (B,).
    """
    log_p = log_probabilities(logits)
    return -_at_label(_noisy_log_p(log_p, labels, _logarithm(matrix, log_p)), labels)


def noisy_nll(logits: Tensor, labels: Tensor, log_matrix: Tensor) -> Tensor:
    """Forward correction with log T, (C, C) for all examples or (B, C, C) for each; exact where T is a softmax."""
    return -_at_label(_noisy_log_p(log_probabilities(logits), labels, log_matrix), labels)


def backward_loss(logits: Tensor, labels: Tensor, inverse: Tensor, *, clip: float = 0.0) -> Tensor:
    r"""Backward correction, one value per example: the losses of all labels, mixed by a row of T's inverse.

    .. math:: -\sum_j (T^{-1})_{yj} \log p_j

    Patrini et al. 2017, Theorem 1. Its mean over labels drawn from row i of T is -log p_i exactly. The inverse has
    negative entries, so without a clip the loss has no lower bound.

    Args:
        logits: z, (B, C).
        labels: class ids (B,) or probabilities (B, C).
        inverse: the inverse of T, (C, C).
        clip: p is clamped to [clip, 1 - clip] inside the logarithm, without a gradient beyond.

    Returns:
        (B,), possibly negative.
    """
    log_p = log_probabilities(logits)
    if clip > 0.0:
        log_p = log_p.clamp(math.log(clip), math.log1p(-clip))
    if labels.dim() == 1:
        rows = inverse[labels].to(log_p.dtype)  # (B, C)
    else:  # in float64, because autocast would multiply in half precision
        rows = _like(torch.matmul(_float64(labels), _float64(inverse)), log_p)
    return -(rows * log_p).sum(dim=1)


def reweighted_loss(logits: Tensor, labels: Tensor, matrix: Tensor, *, through_weight: bool = False) -> Tensor:
    r"""Importance reweighting, one value per example: cross entropy times P(true = y) / P(noisy = y).

    .. math:: \frac{p_y}{(pT)_y} \, (-\log p_y)

    Liu and Tao 2016; Xia et al. 2019.

    Args:
        logits: z, (B, C).
        labels: class ids (B,) or probabilities (B, C).
        matrix: T, (C, C).
        through_weight: let the gradient flow through the weight, and by it into T; else the weight is a constant.

    Returns:
        (B,).
    """
    log_p = log_probabilities(logits)
    own = log_p if labels.dim() == 2 else under_label(log_p, labels)  # (B, C) or (B,)
    # DEVIATES from authors' code: a weight is at most 100, because it can reach 1 / T_yy, which has no bound where a
    # class was not found.
    excess = own - _noisy_log_p(log_p, labels, _logarithm(matrix, log_p))
    weight = excess.clamp(max=math.log(MOST_WEIGHT)).exp()
    return _at_label(-own * (weight if through_weight else weight.detach()), labels)


def _logarithm(matrix: Tensor, log_p: Tensor) -> Tensor:
    return matrix.to(log_p.dtype).clamp_min(TINY).log()


def _float64(values: Tensor) -> Tensor:
    """In float64, on the CPU unless the device surely has it: MPS has none."""
    return (values if values.is_cuda else values.cpu()).double()


def _like(values: Tensor, other: Tensor) -> Tensor:
    return values.to(other.dtype).to(other.device)  # in this order, and back in the other: float64 stays on the CPU


def _at_label(values: Tensor, labels: Tensor) -> Tensor:
    """Values are those of the label already if it is an id."""
    return values if labels.dim() == 1 else under_label(values, labels)


def _noisy_log_p(log_p: Tensor, labels: Tensor, log_matrix: Tensor) -> Tensor:
    """Log of pT: (B,) at the label if labels are ids, else (B, C).

    A logsumexp of log p + log T, because the product underflows where p is sure of a class that never gets this label;
    for all classes at once a product after all, in float64, where the smallest T times p does not underflow.
    """
    if labels.dim() == 2:
        p, matrix = _float64(log_p).exp().unsqueeze(1), _float64(log_matrix).exp()
        return _like(torch.matmul(p, matrix).squeeze(1).log(), log_p)
    if log_matrix.dim() == 2:
        return torch.logsumexp(log_p + log_matrix.T[labels], dim=1)
    column = labels.view(-1, 1, 1).expand(-1, log_p.shape[1], 1)  # (B, C, 1)
    return torch.logsumexp(log_p + log_matrix.gather(2, column).squeeze(2), dim=1)
