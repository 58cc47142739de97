"""Labels that networks guess for examples whose own are not trusted, or not trusted wholly."""

from collections.abc import Sequence

import torch
from torch import Tensor


def sharpen(p: Tensor, temperature: float) -> Tensor:
    """p_c^(1/T) / sum_c p_c^(1/T), (B, C): below T = 1 the likelier classes gain.

    Computed as softmax(log p / T): at small T the powers themselves would underflow for every class.
    """
    return (p.log() / temperature).softmax(dim=1)


def guess_labels(predictions: Sequence[Tensor], temperature: float) -> Tensor:
    """Sharpened mean of several predictions (B, C) for the same examples: views of one network, or of two."""
    return sharpen(torch.stack(list(predictions)).mean(dim=0), temperature)


def refine_labels(y: Tensor, trust: Tensor, p: Tensor, temperature: float) -> Tensor:
    """sharpen(w y + (1 - w) p): given labels, believed as far as they are trusted.

    Args:
        y: class ids, (B,).
        trust: w, the probability that each is right, (B,).
        p: predictions, (B, C).
        temperature: T of ``sharpen``.

    Returns:
        (B, C).
    """
    given = torch.nn.functional.one_hot(y, p.shape[1]).to(p.dtype)
    return sharpen(torch.lerp(p, given, trust.to(p.dtype).unsqueeze(1)), temperature)


def published_lambda_u(rate: float, num_classes: int) -> float:
    """Weight of the unlabelled loss in DivideMix for the published noise level nearest to ``rate``.

    The authors tune it by noise level (their Table 7); with one value for all, light noise costs five points.

    ================================  =====  =====  =====  =====
    labels drawn anew                  20 %   50 %   80 %   90 %
    wrong labels among 10 classes      18 %   45 %   72 %   81 %
    CIFAR-10                              0     25     25     50
    wrong labels among 100 classes     20 %   50 %   79 %   89 %
    CIFAR-100                            25    150    150    150
    ================================  =====  =====  =====  =====

    CIFAR-10 with 40 % asymmetric noise, 20 % wrong labels, has 0 too.

    Args:
        rate: fraction of wrong labels.
        num_classes: C; CIFAR-100's row is taken from 32 classes on.
    """
    if num_classes >= 32:
        return 25.0 if rate < 0.35 else 150.0
    if rate < 0.315:
        return 0.0
    return 25.0 if rate < 0.765 else 50.0
