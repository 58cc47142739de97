"""SOP in loops over examples and classes: Algorithm 1 with the terms of the authors' current code."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, softmax
from reference.descent import Descent


def raised(value: Tensor, floor: float) -> Tensor:
    """At least ``floor``; what is raised to it has no gradient."""
    return value if value > floor else value.new_tensor(floor)


def prediction(z: Tensor, label: int, u: Tensor, v: Tensor, floor: float) -> list[Tensor]:
    """Network and noise together, for one example; v is a constant here."""
    values = []
    for c, p_c in enumerate(softmax(z)):
        values.append(raised(p_c + u[0] ** 2 if c == label else p_c - v[c].detach() ** 2, floor))
    return [raised(value / sum(values), floor) for value in values]


def squared_error(z: Tensor, label: int, u: Tensor, v: Tensor) -> Tensor:
    """Of the predicted class and the noise together against the given class."""
    winner = max(range(len(z)), key=lambda c: z[c].item())
    total = z.new_zeros(())
    for c in range(len(z)):
        noise = u[0] ** 2 if c == label else -(v[c] ** 2)
        total = total + (float(c == winner) + noise - float(c == label)) ** 2
    return total


def loss_of(z: Tensor, label: int, u: Tensor, v: Tensor, floor: float) -> Tensor:
    return -torch.log(prediction(z, label, u, v, floor)[label]) + squared_error(z, label, u, v)


def moved(value: Tensor, gradient: Tensor, lr: float) -> Tensor:
    """One gradient step, and back into [-1, 1]."""
    return torch.tensor(
        [min(1.0, max(-1.0, w - lr * g)) for w, g in zip(value.tolist(), gradient.tolist(), strict=True)]
    )


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    batches: Sequence[Sequence[int]],
    u: Tensor,  # (n, 1) at the start
    v: Tensor,  # (n, C)
    *,
    lr_u: float,
    lr_v: float,
    floor: float,
    **optim: float,
) -> Trajectory:
    descent, out = Descent(net, **optim), Trajectory()
    net.train()
    u, v = u.clone(), v.clone()
    for rows in batches:
        own = {i: (u[i].double().requires_grad_(), v[i].double().requires_grad_()) for i in rows}
        loss = torch.zeros((), dtype=x.dtype)
        for z, i in zip(net(x[list(rows)]), rows, strict=True):
            loss = loss + loss_of(z, int(y[i]), *own[i], floor) / len(rows)
        gradients = torch.autograd.grad(loss, [value for pair in own.values() for value in pair], retain_graph=True)
        descent.update(loss)
        for k, i in enumerate(rows):
            u[i] = moved(own[i][0], gradients[2 * k], lr_u)
            v[i] = moved(own[i][1], gradients[2 * k + 1], lr_v)
        out.loss.append(loss.item())
        out.targets.append([u.clone(), v.clone()])
        out.weights.append([w.detach().clone() for w in net.parameters()])
    return out
