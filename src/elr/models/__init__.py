"""Networks by name. A constructor takes (input_shape, num_classes) and its own hyperparameters by keyword.

A network is a plain ``nn.Module`` from (B, *input_shape) to logits (B, C) that draws its initial weights from torch's
global generator only. Two optional methods are honoured by the engine:

``optim_scales() -> dict[str, tuple[float, float]]``
    parameter name -> (learning-rate multiplier, weight-decay multiplier).
``prepare(x)``
    called once before training with up to 5,000 normalised, un-augmented training inputs.
"""

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from typing import Any

from torch import nn

from elr.models.fastnet import FastNet
from elr.models.library import timm_model, torchvision_model
from elr.models.linear import Linear
from elr.models.mlp import MLP
from elr.models.preact import PreActResNet18
from elr.models.resnet import resnet18, resnet34
from elr.models.small_cnn import SmallCNN

Constructor = Callable[..., nn.Module]

MODELS: dict[str, Constructor] = {
    "linear": Linear,
    "mlp": MLP,
    "small_cnn": SmallCNN,
    "resnet18": resnet18,
    "resnet34": resnet34,
    "preact_resnet18": PreActResNet18,
    "fastnet": FastNet,
}
LIBRARIES: dict[str, Constructor] = {"timm": timm_model, "torchvision": torchvision_model}


def constructor(name: str) -> Constructor:
    """The constructor behind a name, ``timm:NAME`` and ``torchvision:NAME`` included."""
    library, colon, member = name.partition(":")
    if colon and library in LIBRARIES:
        return partial(LIBRARIES[library], member)
    if name in MODELS:
        return MODELS[name]
    near = get_close_matches(name, [*MODELS, *(f"{library}:NAME" for library in LIBRARIES)], n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(MODELS)}, timm:NAME, torchvision:NAME"
    raise ValueError(f"unknown model {name!r}; {hint}")


def hyperparameters(name: str) -> dict[str, inspect.Parameter]:
    """What can be set for a model: its keyword-only arguments, with annotation and default."""
    parameters = inspect.signature(constructor(name)).parameters
    return {key: p for key, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}


def make_model(name: str, input_shape: tuple[int, ...], num_classes: int, **arguments: Any) -> nn.Module:
    """Build a freshly initialised network for inputs of this shape, (C, H, W) or (D,)."""
    known = hyperparameters(name)
    for argument in arguments:
        if argument not in known:
            near = get_close_matches(argument, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(known) or 'none'}"
            raise ValueError(f"model {name!r} has no argument {argument!r}; {hint}")
    if num_classes < 2:
        raise ValueError(f"a classifier needs at least 2 classes, got {num_classes}")
    return constructor(name)(input_shape, num_classes, **arguments)


__all__ = ["LIBRARIES", "MODELS", "constructor", "hyperparameters", "make_model"]
