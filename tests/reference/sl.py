"""Wang et al. 2019: cross entropy and reverse cross entropy as printed, log 0 replaced by A."""

import math

import torch
from torch import Tensor

from reference.ce import one_hot, softmax


def loss(z: Tensor, label: int, alpha: float, beta: float, A: float) -> Tensor:
    p, y = softmax(z), one_hot(label, len(z))
    log_y = [math.log(y_c) if y_c > 0 else A for y_c in y]
    forward = -sum(y_c * torch.log(p_c) for y_c, p_c in zip(y, p, strict=True))
    backward = -sum(p_c * l_c for p_c, l_c in zip(p, log_y, strict=True))
    return alpha * forward + beta * backward
