"""One SGD for all networks of a method: an idle network has no gradient and is skipped, momentum included."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class OptimConfig:
    """How weights are updated."""

    name: Literal["sgd"] = field(default="sgd", metadata={"help": "optimizer"})
    lr: float = field(default=0.02, metadata={"help": "learning rate at its peak"})
    momentum: float = field(default=0.9, metadata={"help": "momentum, in [0, 1)"})
    nesterov: bool = field(default=False, metadata={"help": "Nesterov momentum"})
    weight_decay: float = field(default=1e-3, metadata={"help": "L2 coefficient"})
    batch_size: int = field(default=128, metadata={"help": "examples in a batch"})

    def __post_init__(self) -> None:
        if self.name != "sgd":
            raise ValueError(f"optim.name must be sgd, got {self.name!r}")
        if not 0.0 < self.lr < float("inf"):
            raise ValueError(f"optim.lr must be positive, got {self.lr!r}")
        if not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"optim.momentum must lie in [0, 1), got {self.momentum!r}")
        if not 0.0 <= self.weight_decay < float("inf"):
            raise ValueError(f"optim.weight_decay must be at least 0, got {self.weight_decay!r}")
        if self.batch_size < 1:
            raise ValueError(f"optim.batch_size must be at least 1, got {self.batch_size!r}")
        if self.nesterov and self.momentum == 0.0:
            raise ValueError("optim.nesterov needs optim.momentum above 0")


def scales(method: nn.Module) -> dict[Tensor, tuple[float, float]]:
    """(learning-rate, weight-decay) multipliers of trainable parameters; a model names its own in ``optim_scales``."""
    found: dict[Tensor, tuple[float, float]] = {p: (1.0, 1.0) for p in method.parameters() if p.requires_grad}
    for module in method.modules():
        own_scales = getattr(module, "optim_scales", None)
        if callable(own_scales):
            own = dict(module.named_parameters())
            found.update({own[name]: scale for name, scale in own_scales().items() if own[name] in found})
    return found


def build_optimizer(method: nn.Module, config: OptimConfig) -> torch.optim.SGD:
    """SGD with one group for each pair of multipliers."""
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for parameter, scale in scales(method).items():
        groups.setdefault(scale, []).append(parameter)
    return torch.optim.SGD(
        [
            {"params": params, "lr_scale": lr, "weight_decay": config.weight_decay * decay}
            for (lr, decay), params in groups.items()
        ],
        lr=config.lr,
        momentum=config.momentum,
        nesterov=config.nesterov,
        fused=all(p.device.type in ("cpu", "cuda") for p in method.parameters()),
    )


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every group, times the group's multiplier."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_scale"]


def momenta(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Momentum buffers by position of their parameter, for a checkpoint."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state = optimizer.state
    return {
        str(k): state[p]["momentum_buffer"]
        for k, p in enumerate(parameters)
        if state.get(p, {}).get("momentum_buffer") is not None
    }


def load_momenta(optimizer: torch.optim.Optimizer, saved: Mapping[str, Tensor]) -> None:
    """Take momentum buffers from a checkpoint."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    optimizer.state.clear()
    for k, buffer in saved.items():
        optimizer.state[parameters[int(k)]]["momentum_buffer"] = buffer.to(parameters[int(k)].device).clone()
