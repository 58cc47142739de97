"""Fully connected network on the flattened input."""

from math import prod

from torch import nn


class MLP(nn.Sequential):
    """Linear-ReLU layers with optional batch norm and dropout, then a linear head.

    Args:
        hidden: widths of the hidden layers.
        dropout: probability of zeroing a hidden unit.
        batch_norm: normalise before each ReLU.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_classes: int,
        *,
        hidden: tuple[int, ...] = (256, 256),
        dropout: float = 0.0,
        batch_norm: bool = False,
    ) -> None:
        if any(width < 1 for width in hidden):
            raise ValueError(f"mlp needs hidden widths of at least 1, got {tuple(hidden)}")
        if not 0 <= dropout < 1:
            raise ValueError(f"mlp needs a dropout in [0, 1), got {dropout}")
        layers: list[nn.Module] = [nn.Flatten()]
        before = prod(input_shape)
        for width in hidden:
            layers.append(nn.Linear(before, width))
            if batch_norm:
                layers.append(nn.BatchNorm1d(width))
            layers.append(nn.ReLU())
            if dropout:
                layers.append(nn.Dropout(dropout))
            before = width
        super().__init__(*layers, nn.Linear(before, num_classes))
