"""A network whose weights are the running average of another's."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

TeacherBN = Literal["batch", "running"]


class AveragedNet(nn.Module):
    """Starts as a copy of ``net`` and follows its parameters; never receives a gradient.

    Only parameters are averaged. The statistics of its batch-norm layers come from its own forward passes, which see
    unmixed inputs only: the student's statistics would come from mixed ones. Not ``swa_utils.AveragedModel``: its first
    update is a copy, and its gamma cannot rise with the clock.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = copy.deepcopy(net).requires_grad_(False)

    @torch.no_grad()
    def update(self, net: nn.Module, gamma: float) -> None:
        """theta_bar <- gamma theta_bar + (1 - gamma) theta."""
        torch._foreach_lerp_(list(self.net.parameters()), [p.detach() for p in net.parameters()], 1.0 - gamma)

    @torch.no_grad()
    def forward(self, x: Tensor, bn: TeacherBN = "batch") -> Tensor:
        """Logits for targets, normalised by this ``batch`` or by the ``running`` statistics. Both move the latter."""
        self.net.train(bn == "batch")
        with nullcontext() if bn == "batch" else moving_statistics(self.net):
            return self.net(x)  # type: ignore[no-any-return]


def batch_norms(net: nn.Module) -> list[_BatchNorm]:
    """All batch-norm layers of a network."""
    return [m for m in net.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]


@contextmanager
def moving_statistics(net: nn.Module) -> Iterator[None]:
    """In evaluation mode, still fold each batch into the running statistics of batch-norm before they are used."""

    def fold(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, _BatchNorm)
        assert layer.running_mean is not None
        assert layer.running_var is not None
        (x,) = inputs
        dims = [d for d in range(x.dim()) if d != 1]
        var, mean = torch.var_mean(x.to(layer.running_mean.dtype), dims)
        momentum = layer.momentum if layer.momentum is not None else 0.1
        layer.running_mean.lerp_(mean, momentum)
        layer.running_var.lerp_(var, momentum)

    hooks = [layer.register_forward_pre_hook(fold) for layer in batch_norms(net)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def still_statistics(net: nn.Module) -> Iterator[None]:
    """In training mode, normalise by the batch but leave the running statistics as they are."""
    layers = batch_norms(net)
    for layer in layers:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in layers:
            layer.track_running_stats = True


def warm_memory(step: int, gamma: float) -> float:
    """min(1 - 1/(i+1), gamma) for update i = step + 1: a plain mean until gamma remembers less than that."""
    return min(1.0 - 1.0 / (step + 2), gamma)
