"""Networks of timm and torchvision by name, with a head for our classes."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType

from torch import Tensor, nn

from elr.models.weights import load_weights, read_weights


def timm_model(
    name: str,
    input_shape: tuple[int, ...],
    num_classes: int,
    *,
    pretrained: bool = False,
    weights: str | Path | None = None,
) -> nn.Module:
    """Any timm network.

    Args:
        pretrained: let timm fetch the weights it has for the name.
        weights: a local file of weights; the head is new where it is for other classes.
    """
    timm = _library("timm")
    _check(f"timm:{name}", input_shape, pretrained, weights)
    _known("timm", name, timm.list_models())
    config = timm.get_pretrained_cfg(name)
    # Transformers are built for one size; convolutional networks do not know the argument.
    size = {"img_size": input_shape[1:]} if config is not None and config.fixed_input_size else {}
    model: nn.Module = timm.create_model(
        name, pretrained=pretrained, num_classes=num_classes, in_chans=input_shape[0], **size
    )
    if weights is not None:
        load_weights(model, read_weights(weights), _head(model), str(weights))
    return model


def torchvision_model(
    name: str,
    input_shape: tuple[int, ...],
    num_classes: int,
    *,
    pretrained: bool = False,
    weights: str | Path | None = None,
) -> nn.Module:
    """Any torchvision classifier.

    Args:
        pretrained: let torchvision fetch the weights it recommends.
        weights: a local file of weights; the head is new where it is for other classes.
    """
    models = _library("torchvision").models
    _check(f"torchvision:{name}", input_shape, pretrained, weights)
    _known("torchvision", name, models.list_models(module=models))
    if name in ("googlenet", "inception_v3"):
        raise ValueError(f"torchvision:{name} has auxiliary outputs, which no method here uses; use timm:inception_v3")
    if input_shape[0] != 3:
        raise ValueError(f"torchvision:{name} needs colour images, got {input_shape[0]} channels; use timm:{name}")
    model: nn.Module = models.get_model(name, weights=None, num_classes=num_classes)
    if weights is not None:
        load_weights(model, _renamed(read_weights(weights)), _head(model), str(weights))
    elif pretrained:
        own = models.get_model_weights(name).DEFAULT
        load_weights(model, _renamed(own.get_state_dict(check_hash=True, weights_only=True)), _head(model), str(own))
    return model


def _renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Files of DenseNets were written when a name could have a dot in it: ``denselayer1.norm.1`` is ``norm1`` now."""
    return {re.sub(r"(\.denselayer\d+\.(?:norm|conv))\.(\d)\.", r"\1\2.", name): t for name, t in state.items()}


def _library(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        raise ValueError(f"{name} models need the vision extra: pip install elr[vision]") from error


def _check(name: str, input_shape: tuple[int, ...], pretrained: bool, weights: str | Path | None) -> None:
    if len(input_shape) != 3:
        raise ValueError(f"{name} needs images (channels, height, width), got inputs of shape {tuple(input_shape)}")
    if pretrained and weights is not None:
        raise ValueError(f"{name}: give either weights or pretrained, not both")


def _known(library: str, name: str, names: list[str]) -> None:
    architecture = name.split(".")[0]  # timm names carry a tag of the pretrained weights after the dot
    if architecture not in names:
        near = get_close_matches(name, names, n=1)
        hint = f"; did you mean {library}:{near[0]}?" if near else ""
        raise ValueError(f"{library} has no model {name!r}{hint}")


def _head(model: nn.Module) -> set[str]:
    """Parameter names of the last layer with weights that changes the number of features: the classifier."""
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    name, last = layers[-1]
    return {f"{name}.{parameter}" for parameter, _ in last.named_parameters()}
