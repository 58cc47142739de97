"""Stochastic gradient descent with momentum and weight decay, written out."""

import torch
from torch import Tensor, nn


class Descent:
    """v <- momentum v + (gradient + decay w), v = gradient + decay w at first; w <- w - lr v."""

    def __init__(self, net: nn.Module, *, lr: float, momentum: float, weight_decay: float) -> None:
        self.parameters = list(net.parameters())
        self.velocity: list[Tensor | None] = [None] * len(self.parameters)
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay

    def update(self, loss: Tensor) -> None:
        gradients = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            for k, (w, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
                force = gradient + self.weight_decay * w
                previous = self.velocity[k]
                v = force if previous is None else self.momentum * previous + force
                self.velocity[k] = v
                w -= self.lr * v
