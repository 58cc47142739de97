"""Zhang and Sabuncu 2018: L_q as printed."""

from torch import Tensor

from reference.ce import softmax


def loss(z: Tensor, label: int, q: float) -> Tensor:
    return (1 - softmax(z)[label] ** q) / q
