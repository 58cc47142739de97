"""Networks that are given from outside: refused before anything is written, and told apart afterwards."""

import re
from collections.abc import Callable

import torch
from torch import Tensor, nn

from elr.data import Data
from elr.engine.device import private_randomness

ADDRESS = re.compile("0x[0-9a-fA-F]+")  # of an object in memory: another one in every process


def check_network(make_model: Callable[[], nn.Module], data: Data, *, channels_last: bool = True) -> bool:
    """Refuse a network that cannot take these inputs or tell these classes apart, before anything is written.

    Returns whether images may be channels-last: not for a network that flattens with ``x.view(len(x), -1)``, say.
    """
    with private_randomness(torch.device("cpu")), torch.inference_mode():
        row = torch.tensor([0])
        x = data.transform(data.train.inputs.fetch(row), data.train.keys[row], None)
        try:
            net = make_model().cpu().eval()
        except RuntimeError as error:
            raise ValueError(f"the network cannot be built: {_first_line(error)}") from error
        try:
            z = net(x)
        except (RuntimeError, TypeError, IndexError) as error:
            raise ValueError(f"the network cannot take inputs of shape {data.shape}: {_first_line(error)}") from error
        if not isinstance(z, Tensor):
            raise ValueError(
                f"the network gives a {type(z).__name__}, expected a tensor: let its forward return logits (B, C)"
            )
        shape = tuple(z.shape)
    if shape != (1, data.num_classes):
        raise ValueError(
            f"the network gives {shape} for one input, expected (1, {data.num_classes}): one logit a class"
        )
    return channels_last and (x.dim() != 4 or _takes_channels_last(net, x))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


@torch.inference_mode()
def _takes_channels_last(net: nn.Module, x: Tensor) -> bool:
    try:
        net.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
    except RuntimeError:
        return False
    return True


def described(make_model: Callable[[], nn.Module]) -> str:
    """A network that was given as an object, in words: configurations know only those that have a name."""
    with private_randomness(torch.device("cpu")):
        net = make_model()
    shapes = [f"{name} {tuple(value.shape)}" for name, value in net.state_dict().items() if isinstance(value, Tensor)]
    return ADDRESS.sub("0x", "\n".join([repr(net), "", *shapes, ""]))
