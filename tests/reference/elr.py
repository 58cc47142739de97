"""Algorithm 1 of the paper, with the authors' floor (their loss.py clamps p to [1e-4, 1 - 1e-4] and renormalises)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot, softmax
from reference.descent import Descent


def clamp(p: Sequence[Tensor], floor: float) -> list[Tensor]:
    """Every entry into [floor, 1 - floor]; an entry outside has no gradient."""
    low, high = p[0].new_tensor(floor), p[0].new_tensor(1.0 - floor)
    return [low if p_c < floor else high if p_c > 1.0 - floor else p_c for p_c in p]


def floored(p: Sequence[Tensor], floor: float) -> list[float]:
    """What enters the target: clamped, then renormalised; numbers without a gradient."""
    if floor == 0.0:
        return [p_c.item() for p_c in p]
    clamped = [p_c.item() for p_c in clamp(p, floor)]
    return [p_c / sum(clamped) for p_c in clamped]


def new_target(t: Sequence[float], p: Sequence[float], beta: float) -> list[float]:
    """Eq. (9)."""
    return [beta * t_c + (1.0 - beta) * p_c for t_c, p_c in zip(t, p, strict=True)]


def penalty(p: Sequence[Tensor], t: Sequence[float]) -> Tensor:
    """The regularizer of Eq. (6) for one example, as printed."""
    return torch.log(1.0 - sum(p_c * t_c for p_c, t_c in zip(p, t, strict=True)))


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    batches: Sequence[Sequence[int]],
    num_classes: int,
    *,
    lam: float,
    beta: float,
    floor: float,
    clamp_penalty: bool,
    recorded: Sequence[Sequence[Tensor]] | None = None,
    descent: Descent | None = None,
    **optim: float,
) -> Trajectory:
    """Algorithm 1. The table of targets is float32, as a memory of n x C numbers is in practice.

    With ``recorded``, each step goes on from those targets instead of its own: one step's rounding is then all that can
    differ, and weights must agree to the last digits.
    """
    descent, out = descent or Descent(net, **optim), Trajectory()
    net.train()
    targets = torch.zeros(len(x), num_classes, dtype=torch.float32)
    for k, batch in enumerate(batches):
        logits = net(x[list(batch)])
        for z, i in zip(logits.detach(), batch, strict=True):
            targets[i] = torch.tensor(new_target(targets[i].tolist(), floored(softmax(z), floor), beta))
        out.targets.append([targets.clone()])
        if recorded is not None:
            targets = recorded[k][0].clone()
        loss = torch.zeros((), dtype=x.dtype)
        for z, i in zip(logits, batch, strict=True):
            p = softmax(z)
            inside = clamp(p, floor) if clamp_penalty else p
            loss = loss + cross_entropy(z, one_hot(int(y[i]), num_classes)) / len(batch)
            loss = loss + lam / len(batch) * penalty(inside, targets[i].tolist())
        descent.update(loss)
        out.loss.append(loss.item())
        out.weights.append([w.detach().clone() for w in net.parameters()])
    return out
