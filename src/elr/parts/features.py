"""The features a network classifies: what enters its last linear layer."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn


def head(net: nn.Module) -> nn.Linear:
    """The last linear layer of a network, in the order of its definition: its ``in_features`` are the feature width."""
    layers = [module for module in net.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise ValueError(f"{type(net).__name__} has no linear layer, so there are no features before its classifier")
    return layers[-1]


@contextmanager
def penultimate(net: nn.Module) -> Iterator[list[Tensor]]:
    """Inside, each forward pass of ``net`` appends its features (B, D), with their graph, to the list it is given.

    ``with penultimate(net) as features: logits = net(x)`` leaves them in ``features[-1]``.
    """
    seen: list[Tensor] = []

    def keep(layer: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        seen.append(inputs[0] if inputs else named["input"])

    hook = head(net).register_forward_pre_hook(keep, with_kwargs=True)
    try:
        yield seen
    finally:
        hook.remove()
    if not seen:
        raise RuntimeError(
            f"no forward pass reached the last linear layer of {type(net).__name__}: turn off compilation"
        )
