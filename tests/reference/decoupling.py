"""Update by disagreement, Algorithm 1 of Malach and Shalev-Shwartz 2017, example by example."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory
from reference.co_teaching import example_losses, mean, record
from reference.descent import Descent


def train(
    nets: Sequence[nn.Module],
    x: Tensor,
    y: Tensor,
    epochs: Sequence[Sequence[Sequence[int]]],
    num_classes: int,
    *,
    warmup: int = 0,
    least: float = 0.1,
    **optim: float,
) -> Trajectory:
    """Both networks learn the examples on which their predictions differ; in warm-up, all."""
    descents, out = [Descent(net, **optim) for net in nets], Trajectory()
    for net in nets:
        net.train()
    for epoch, batches in enumerate(epochs):
        for rows in batches:
            logits, losses = zip(*(example_losses(net, x, y, rows, num_classes) for net in nets), strict=True)
            differ = [
                i
                for i in range(len(rows))
                if epoch < warmup or int(logits[0][i].argmax()) != int(logits[1][i].argmax())
            ]
            total = torch.zeros((), dtype=x.dtype)
            for k in range(2):
                own = mean([losses[k][i] for i in differ], logits[k], max(1.0, least * len(rows)))
                descents[k].update(own)
                total = total + own.detach()
            record(out, total, nets)
    return out
