"""D2L (Ma et al. 2018): LID by loops over pairs of examples, its turning point, labels that give way after it.

For data that fit into one of the batches in which neighbours are looked for: the random choice of examples is then the
whole set.
"""

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot
from reference.descent import Descent


def lid(distances: Sequence[float]) -> float:
    """From the distances to the k nearest neighbours, in any order."""
    r = sorted(distances)
    return -1.0 / (sum(math.log(value / r[-1]) for value in r) / len(r))


def mean_lid(features: Tensor, k: int) -> float:
    values = []
    for i, a in enumerate(features):
        others = [math.sqrt(sum((a - b) ** 2).item()) for j, b in enumerate(features) if j != i]
        values.append(lid(sorted(others)[:k]))
    return sum(values) / len(values)


def turning_point(lids: Sequence[float], first: int, window: int) -> bool:
    """Whether the last of these LIDs is above the mean of those before it by two standard deviations."""
    if len(lids) <= first + window:
        return False
    before = lids[-window - 1 : -1]
    mean = sum(before) / window
    deviation = math.sqrt(sum((value - mean) ** 2 for value in before) / window)
    return lids[-1] - mean > 2 * deviation


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    epochs: Sequence[Sequence[Sequence[int]]],
    num_classes: int,
    *,
    first: int,
    window: int,
    neighbours: int,
    rollback: bool,
    **optim: float,
) -> tuple[Trajectory, list[float], int | None]:
    descent, out = Descent(net.train(), **optim), Trajectory()
    lids: list[float] = []
    turning, alpha, earlier = None, 1.0, copy.deepcopy(net.state_dict())
    for epoch, batches in enumerate(epochs):
        net.eval()
        with torch.no_grad():
            lids.append(mean_lid(net.layers[:-1](x), neighbours))
        net.train()
        if turning is None and turning_point(lids, first, window):
            turning = epoch
            if rollback:
                net.load_state_dict(earlier)
        earlier = copy.deepcopy(net.state_dict())
        if turning is not None:
            alpha = math.exp(-epoch / len(epochs) * lids[-1] / min(lids))
        for batch in batches:
            loss = torch.zeros((), dtype=x.dtype)
            for z, i in zip(net(x[list(batch)]), batch, strict=True):
                given, own = one_hot(int(y[i]), num_classes), one_hot(int(z.argmax()), num_classes)
                label = [alpha * a + (1 - alpha) * b for a, b in zip(given, own, strict=True)]
                loss = loss + cross_entropy(z, label) / len(batch)
            descent.update(loss)
            out.loss.append(loss.item())
            out.weights.append([w.detach().clone() for w in net.parameters()])
    return out, lids, turning
