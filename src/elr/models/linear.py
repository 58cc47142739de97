"""Softmax regression on the flattened input."""

from math import prod

from torch import nn


class Linear(nn.Sequential):
    """One linear layer; the model of the paper's theory (Section 3).

    Args:
        bias: add a bias to each logit; the theory has none.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int, *, bias: bool = True) -> None:
        super().__init__(nn.Flatten(), nn.Linear(prod(input_shape), num_classes, bias=bias))
