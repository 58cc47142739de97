"""One optimizer for all networks of a method: an idle network has no gradient and is skipped, its state included."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from elr.engine.muon import Muon, filters

Name = Literal["sgd", "adam", "muon"]
TURN = 0.1  # per step of Muon
# What optimizers remember of a parameter, by the name it has in a checkpoint: torch's own name.
STATE = {"momentum": "momentum_buffer", "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq", "step": "step"}


@dataclass(frozen=True)
class OptimConfig:
    """How weights are updated."""

    name: Name = field(default="sgd", metadata={"help": "optimizer: sgd, adam or muon"})
    lr: float = field(default=0.02, metadata={"help": "learning rate at its peak"})
    momentum: float = field(default=0.9, metadata={"help": "momentum of sgd and muon, in [0, 1)"})
    nesterov: bool = field(default=False, metadata={"help": "Nesterov momentum, for sgd and muon"})
    turn: float | None = field(
        default=None,
        metadata={
            "help": "angle, about, that muon turns convolutions by in a step at the peak of lr; 0.1 unless given"
        },
    )
    beta1: float = field(default=0.9, metadata={"help": "memory of adam's mean of gradients, in [0, 1)"})
    beta2: float = field(default=0.999, metadata={"help": "memory of adam's mean of squared gradients, in [0, 1)"})
    weight_decay: float = field(default=1e-3, metadata={"help": "L2 coefficient, added to the gradient"})
    batch_size: int = field(default=128, metadata={"help": "examples in a batch"})

    def __post_init__(self) -> None:
        if self.name not in get_args(Name):
            raise ValueError(f"optim.name must be one of {', '.join(get_args(Name))}, got {self.name!r}")
        if not 0.0 < self.lr < float("inf"):
            raise ValueError(f"optim.lr must be positive, got {self.lr!r}")
        if self.turn is not None and not 0.0 < self.turn < float("inf"):
            raise ValueError(f"optim.turn must be positive, got {self.turn!r}")
        for memory in ("momentum", "beta1", "beta2"):
            if not 0.0 <= getattr(self, memory) < 1.0:
                raise ValueError(f"optim.{memory} must lie in [0, 1), got {getattr(self, memory)!r}")
        if not 0.0 <= self.weight_decay < float("inf"):
            raise ValueError(f"optim.weight_decay must be at least 0, got {self.weight_decay!r}")
        if self.batch_size < 1:
            raise ValueError(f"optim.batch_size must be at least 1, got {self.batch_size!r}")
        if self.nesterov and self.name == "adam":
            raise ValueError("optim.nesterov is for sgd and muon, not for adam")
        if self.nesterov and self.momentum == 0.0:
            raise ValueError("optim.nesterov needs optim.momentum above 0")
        if self.name != "adam" and (self.beta1, self.beta2) != (OptimConfig.beta1, OptimConfig.beta2):
            raise ValueError(f"optim.beta1 and optim.beta2 are for adam, not for {self.name}")
        if self.name != "muon" and self.turn is not None:
            raise ValueError(f"optim.turn is for muon, not for {self.name}")


def scales(method: nn.Module) -> dict[Tensor, tuple[float, float]]:
    """(learning-rate, weight-decay) multipliers of trainable parameters; a model names its own in ``optim_scales``."""
    found: dict[Tensor, tuple[float, float]] = {p: (1.0, 1.0) for p in method.parameters() if p.requires_grad}
    for module in method.modules():
        own_scales = getattr(module, "optim_scales", None)
        if callable(own_scales):
            own = dict(module.named_parameters())
            found.update({own[name]: scale for name, scale in own_scales().items() if own[name] in found})
    return found


def build_optimizer(method: nn.Module, config: OptimConfig) -> torch.optim.Optimizer:
    """One group for each pair of multipliers; with muon, one more for the convolutions it turns."""
    turned = filters(method) if config.name == "muon" else set()
    kernels: list[Tensor] = []
    by_scale: dict[tuple[float, float], list[Tensor]] = {}
    for parameter, scale in scales(method).items():
        (kernels if parameter in turned else by_scale.setdefault(scale, [])).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": params, "lr_scale": lr, "weight_decay": config.weight_decay * decay}
        for (lr, decay), params in by_scale.items()
    ]
    fused = all(p.device.type in ("cpu", "cuda") for p in method.parameters())
    if config.name == "adam":
        return torch.optim.Adam(groups, lr=config.lr, betas=(config.beta1, config.beta2), fused=fused)
    kind = torch.optim.SGD
    if config.name == "muon":
        if not kernels:
            raise ValueError("optim muon turns convolutions without a bias, and this network has none: use sgd or adam")
        turn = TURN if config.turn is None else config.turn
        groups.append({"params": kernels, "lr_scale": turn / config.lr, "weight_decay": 0.0, "filters": True})
        kind = Muon
    sgd = kind(groups, lr=config.lr, momentum=config.momentum, nesterov=config.nesterov, fused=fused)
    forget(sgd)
    return sgd


def forget(optimizer: torch.optim.Optimizer) -> None:
    """Start anew: no momentum. Written out as zeros, the same arithmetic as none.

    Fused SGD fails on a group of which some parameters have momentum and others get their first gradient.
    """
    optimizer.state.clear()
    if isinstance(optimizer, torch.optim.SGD) and optimizer.defaults["momentum"] > 0:
        for parameter in _parameters(optimizer):
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every group, times the group's multiplier."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_scale"]


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What the optimizer remembers, as ``name.position of the parameter``, for a checkpoint."""
    return {
        f"{name}.{k}": optimizer.state[p][key]
        for name, key in STATE.items()
        for k, p in enumerate(_parameters(optimizer))
        if optimizer.state.get(p, {}).get(key) is not None
    }


def load_optimizer_state(optimizer: torch.optim.Optimizer, saved: Mapping[str, Tensor]) -> None:
    """Take what the optimizer remembers from a checkpoint; names of other things are passed over."""
    parameters = _parameters(optimizer)
    forget(optimizer)
    for name, tensor in saved.items():
        kind, _, position = name.partition(".")
        if kind not in STATE:
            continue
        parameter = parameters[int(position)]
        # Laid out as the parameter is: fused kernels walk through both memories side by side.
        like = parameter if tensor.shape == parameter.shape else tensor
        own = torch.empty_like(like, dtype=tensor.dtype, device=parameter.device)
        optimizer.state[parameter][STATE[kind]] = own.copy_(tensor)


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]
