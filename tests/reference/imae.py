"""Wang et al. 2019 (IMAE): the gradient as the authors tabulate it, class by class."""

import math

from torch import Tensor

from reference.ce import softmax


def loss(z: Tensor, label: int, T: float) -> Tensor:
    """A plane through the reported value, weight times cross entropy, with the tabulated gradient as its slope."""
    p = [p_c.item() for p_c in softmax(z.detach())]
    rest = sum(p_c for c, p_c in enumerate(p) if c != label)  # 1 - p_y, of which a subtraction would lose the digits
    scale = math.exp(T * p[label] * rest)
    slope = [-scale / 2 if c == label else scale * p_c / (2 * rest) for c, p_c in enumerate(p)]
    plane = sum(g_c * (z_c - z_c.item()) for g_c, z_c in zip(slope, z, strict=True))
    ce = -math.log1p(-rest) if rest < 0.5 else -math.log(p[label])
    return plane + scale / (2 * rest) * ce
