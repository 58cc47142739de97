"""Reed et al. 2015: cross entropy to a blend of the label with the prediction, class by class."""

import torch
from torch import Tensor

from reference.ce import one_hot, softmax


def soft(z: Tensor, label: int, beta: float) -> Tensor:
    """The prediction in the blend is differentiated too."""
    p, y = softmax(z), one_hot(label, len(z))
    return -sum((beta * y_c + (1 - beta) * p_c) * torch.log(p_c) for y_c, p_c in zip(y, p, strict=True))


def hard(z: Tensor, label: int, beta: float) -> Tensor:
    """The predicted class is the first of the largest probabilities."""
    p, y = softmax(z), one_hot(label, len(z))
    predicted = one_hot(max(range(len(z)), key=lambda c: p[c].item()), len(z))
    blend = [beta * y_c + (1 - beta) * k_c for y_c, k_c in zip(y, predicted, strict=True)]
    return -sum(t_c * torch.log(p_c) for t_c, p_c in zip(blend, p, strict=True))
