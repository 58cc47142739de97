"""Training with a loss that is a mean over the examples of a batch, one example at a time."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory
from reference.descent import Descent


def train(
    loss_of: Callable[[Tensor, int], Tensor],
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    batches: Sequence[Sequence[int]],
    **optim: float,
) -> Trajectory:
    """Stochastic gradient descent on the mean of ``loss_of(logits of one example, its label)``."""
    descent, out = Descent(net, **optim), Trajectory()
    net.train()
    for batch in batches:
        logits = net(x[list(batch)])
        loss = torch.zeros((), dtype=x.dtype)
        for z, i in zip(logits, batch, strict=True):
            loss = loss + loss_of(z, int(y[i])) / len(batch)
        descent.update(loss)
        out.loss.append(loss.item())
        out.weights.append([w.detach().clone() for w in net.parameters()])
    return out
