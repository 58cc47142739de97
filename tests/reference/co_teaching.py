"""Co-teaching, Algorithm 1 of Han et al. 2018, example by example."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot
from reference.descent import Descent


def dropped_fractions(epochs: int, rate: float, ramp: int, exponent: float) -> list[float]:
    """One for each epoch T = 1, 2, ...: ``ramp`` equal steps up to rate^c, and the rate itself from there on."""
    return [rate**exponent * t / ramp if t <= ramp else rate for t in range(1, epochs + 1)]


def easiest(losses: Sequence[float], among: Sequence[int], keep: float) -> list[int]:
    """Positions of the smallest losses, a fraction ``keep`` of those looked at but one at least."""
    count = max(1, int(round(keep * len(among), 6))) if among else 0
    return sorted(among, key=lambda i: losses[i])[:count]


def example_losses(net: nn.Module, x: Tensor, y: Tensor, rows: Sequence[int], num_classes: int):
    logits = net(x[list(rows)])
    losses = [cross_entropy(z, one_hot(int(y[i]), num_classes)) for z, i in zip(logits, rows, strict=True)]
    return logits, losses


def record(out: Trajectory, loss: Tensor, nets: Sequence[nn.Module]) -> None:
    out.loss.append(loss.item())
    out.weights.append([w.detach().clone() for net in nets for w in net.parameters()])
    out.statistics.append([b.clone() for net in nets for b in net.buffers()])


def mean(losses: Sequence[Tensor], like: Tensor, least: float = 1.0) -> Tensor:
    """Mean of some losses; of none, a zero that reaches the network."""
    return sum(losses, 0.0 * like.sum()) / max(len(losses), least)


def train(
    nets: Sequence[nn.Module],
    x: Tensor,
    y: Tensor,
    epochs: Sequence[Sequence[Sequence[int]]],
    num_classes: int,
    *,
    rate: float,
    ramp: int,
    exponent: float = 1.0,
    disagree_from: int | None = None,
    **optim: float,
) -> Trajectory:
    """Two networks with an optimizer each, which exchange the examples they find easy.

    From the epoch ``disagree_from`` on, only among those they predict differently (Co-teaching+).
    """
    descents, out = [Descent(net, **optim) for net in nets], Trajectory()
    for net in nets:
        net.train()
    fractions = dropped_fractions(len(epochs), rate, ramp, exponent)
    for epoch, batches in enumerate(epochs):
        for rows in batches:
            logits, losses = zip(*(example_losses(net, x, y, rows, num_classes) for net in nets), strict=True)
            among = list(range(len(rows)))
            if disagree_from is not None and epoch >= disagree_from:
                among = [i for i in among if int(logits[0][i].argmax()) != int(logits[1][i].argmax())]
            picks = [easiest([v.item() for v in losses[k]], among, 1.0 - fractions[epoch]) for k in range(2)]
            total = torch.zeros((), dtype=x.dtype)
            for k in range(2):
                own = mean([losses[k][i] for i in picks[1 - k]], logits[k])
                descents[k].update(own)
                total = total + own.detach()
            record(out, total, nets)
    return out
