"""Muon: convolutions turn by steps all of whose singular values are alike, everything else takes steps of SGD."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

STEPS = 3  # of Newton and Schulz: singular values end between .7 and 1.2, and nearer than that gains nothing
QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan 2024: the odd polynomial that grows fastest at 0 and stays near 1
SMALLEST = 1e-7


def filters(method: nn.Module) -> set[Tensor]:
    """Kernels whose scale need not be learnt, because a norm stands before or behind: of convolutions without a bias.

    One that starts at 0 has no direction to turn.
    """
    found = (module for module in method.modules() if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d))
    return {layer.weight for layer in found if layer.bias is None and layer.weight.requires_grad and layer.weight.any()}


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
    directions alike, and small networks learn in fewer epochs (K. Jordan's airbench94_muon, 2024). A kernel
    (out, in, height, width) is a matrix with a row for each output channel. It keeps its norm and turns, by about the
    learning rate as an angle; weight decay, which acts on scale alone behind a norm, is left out.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Turn the kernels that have a gradient; the rest is SGD's."""
        for group in self.param_groups:
            if group.get("filters"):
                for kernel in group["params"]:
                    if kernel.grad is not None:
                        self._turn(kernel, kernel.grad, group)
                        kernel.grad = None  # nothing is left for SGD to do
        loss: float | None = super().step(closure)
        return loss

    def _turn(self, kernel: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        momentum = group["momentum"]
        if momentum > 0.0:
            memory = self.state[kernel]["momentum_buffer"].mul_(momentum).add_(grad)
            grad = grad.add(memory, alpha=momentum) if group["nesterov"] else memory
        size = kernel.norm()
        # DEVIATES from authors' code (airbench94_muon): norms stay as they began; theirs are set to sqrt(out). Behind a
        # norm that is the same turn, and where none follows (the branches of preact_resnet18) it changes no output.
        step = orthogonal(grad.flatten(1)).view_as(kernel) * (size / len(kernel) ** 0.5)
        kernel.sub_(step, alpha=group["lr"])
        kernel.mul_(size / kernel.norm())
