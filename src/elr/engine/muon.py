"""Muon: convolutions turn by steps all of whose singular values are alike, everything else takes steps of SGD."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

STEPS = 3  # of Newton and Schulz: singular values end between .7 and 1.2, and nearer than that gains nothing
QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan 2024: the odd polynomial that grows fastest at 0 and stays near 1
SMALLEST = 1e-7


def filters(method: nn.Module) -> set[Tensor]:
    """Kernels whose scale does not matter, because a norm follows: of convolutions without a bias."""
    found = (module for module in method.modules() if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d))
    return {layer.weight for layer in found if layer.bias is None and layer.weight.requires_grad}


def orthogonal(matrix: Tensor) -> Tensor:
    """U V' of a matrix U S V', roughly: (R, C) of full rank, the iteration of Newton and Schulz."""
    if matrix.shape[0] > matrix.shape[1]:
        wide: Tensor = orthogonal(matrix.T).T
        return wide
    a, b, c = QUINTIC
    x = matrix / matrix.norm().clamp(min=SMALLEST)
    # x -> (a + b A + c A A) x with A = x x' is carried out on the small side alone: all polynomials of A commute.
    gram = x @ x.T  # (R, R)
    turned = torch.eye(len(x), dtype=x.dtype, device=x.device)
    for _ in range(STEPS):
        factor = torch.addmm(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal().add_(a)
        turned = factor @ turned
        gram = factor @ gram @ factor
    result: Tensor = turned @ x
    return result


class Muon(torch.optim.SGD):
    """SGD, but in groups that are marked ``filters`` the step is the orthogonal matrix nearest to the momentum.

    A step of SGD on a convolution is of low rank: few directions have nearly all of it. Orthogonal steps move in all
    directions alike, and small networks learn in fewer epochs. As in K. Jordan's airbench94_muon (2024), a kernel
    (out, in, height, width) is a matrix with a row for each output channel, and is scaled to the norm of its steps
    first, sqrt(out), which changes nothing behind a norm: the learning rate is about the angle it turns by. Weight
    decay, which acts on scale alone there, is left out.
    """

    def __init__(self, params: Iterable[dict[str, Any]], *, lr: float, momentum: float, nesterov: bool, fused: bool):
        super().__init__(params, lr=lr, momentum=momentum, nesterov=nesterov, fused=fused)
        for group in self.param_groups:
            group.setdefault("filters", False)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Turn the kernels that have a gradient; the rest is SGD's."""
        for group in self.param_groups:
            if group["filters"]:
                for kernel in group["params"]:
                    if kernel.grad is not None:
                        self._turn(kernel, group)
                        kernel.grad = None  # nothing is left for SGD to do
        loss: float | None = super().step(closure)
        return loss

    def _turn(self, kernel: Tensor, group: dict[str, Any]) -> None:
        grad, momentum = kernel.grad, group["momentum"]
        assert grad is not None
        if momentum > 0.0:
            state = self.state[kernel]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(kernel)
            memory = state["momentum_buffer"].mul_(momentum).add_(grad)
            grad = grad.add(memory, alpha=momentum) if group["nesterov"] else memory
        kernel.mul_(len(kernel) ** 0.5 / kernel.norm().clamp(min=SMALLEST))
        kernel.sub_(orthogonal(grad.flatten(1)).view_as(kernel), alpha=group["lr"])
