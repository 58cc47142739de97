"""MentorNet's closed-form curricula (Jiang et al. 2018), example by example."""

from collections.abc import Sequence

from torch import Tensor, nn

from reference.ce import Trajectory
from reference.co_teaching import example_losses, record
from reference.descent import Descent


def percentile(values: Sequence[float], p: float) -> float:
    """The value nearest to rank p (n - 1)."""
    return sorted(values)[round(p * (len(values) - 1))]


def weight(curriculum: str, loss: float, threshold: float, percent: int, gamma: float) -> float:
    """v* of one example when ``percent`` of training is behind us."""
    if curriculum == "predefined":
        if percent <= 18:
            return 1.0
        if percent >= 90:
            return max(0.0, min(1.0, 1.0 - (loss - threshold) / gamma))
    return 1.0 if loss <= threshold else 0.0


def dropout_rate(percent: int) -> float:
    return 0.5 if percent < 17 else 0.05


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    batches: Sequence[Sequence[int]],
    orders: Sequence[Sequence[int]],
    num_classes: int,
    *,
    curriculum: str,
    p: float,
    memory: float,
    gamma: float,
    **optim: float,
) -> tuple[Trajectory, list[float]]:
    """Also returns the threshold after each step. ``orders``: a shuffle of each batch, whose tail is left out."""
    descent, out, thresholds, q = Descent(net, **optim), Trajectory(), [], 0.0
    net.train()
    for step, (rows, order) in enumerate(zip(batches, orders, strict=True)):
        percent = 100 * step // len(batches)
        logits, losses = example_losses(net, x, y, rows, num_classes)
        q = memory * q + (1.0 - memory) * percentile([v.item() for v in losses], p)
        stay = set(range(len(rows)))
        if curriculum == "predefined":
            stay = set(order[: int(len(rows) * (1.0 - dropout_rate(percent)))])
        loss = 0.0 * logits.sum()
        for i, value in enumerate(losses):
            if i in stay:
                loss = loss + weight(curriculum, value.item(), q, percent, gamma) * value / len(rows)
        descent.update(loss)
        thresholds.append(q)
        record(out, loss.detach(), [net])
    return out, thresholds
