"""Zhang and Sabuncu 2018, Algorithm 1: descent for given v, then v for a given network, in turn."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn

from reference import gce
from reference.ce import Trajectory, softmax
from reference.descent import Descent


def prune(net: nn.Module, x: Tensor, y: Tensor, k: float, v: list[int]) -> list[int]:
    """Keep what has more than k on its label; leave v alone if that is nothing."""
    net.eval()
    with torch.no_grad():
        new = [1 if softmax(net(x[i : i + 1])[0])[int(y[i])].item() > k else 0 for i in range(len(x))]
    net.train()
    return new if sum(new) > 0 else v


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    epochs: Sequence[Sequence[Sequence[int]]],
    *,
    q: float,
    k: float,
    prunings: Collection[int],
    **optim: float,
) -> Trajectory:
    """Batches by epoch; ``prunings`` are the epochs, from 0, that begin with one."""
    descent, out = Descent(net, **optim), Trajectory()
    net.train()
    v = [1] * len(x)
    for epoch, batches in enumerate(epochs):
        if epoch in prunings:
            v = prune(net, x, y, k, v)
        for batch in batches:
            logits = net(x[list(batch)])
            loss = torch.zeros((), dtype=x.dtype)
            for z, i in zip(logits, batch, strict=True):
                loss = loss + v[i] * (gce.loss(z, int(y[i]), q) - (1 - k**q) / q) / len(batch)
            descent.update(loss)
            out.loss.append(loss.item())
            out.targets.append([torch.tensor(v, dtype=torch.float32).unsqueeze(1)])
            out.weights.append([w.detach().clone() for w in net.parameters()])
    return out
