"""SOP+ in loops: SOP on the weak view, divergence of the strong view from it, balance of the classes in the batch."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, softmax
from reference.descent import Descent
from reference.sop import loss_of, moved, prediction, raised


def divergence(weak: Tensor, strong: Tensor) -> Tensor:
    """KL(weak || strong) of one example; the weak view is a constant."""
    pairs = zip(softmax(weak.detach()), softmax(strong), strict=True)
    return sum(p_c * (torch.log(p_c) - torch.log(q_c)) for p_c, q_c in pairs)


def imbalance(predictions: Sequence[Sequence[Tensor]], floor: float) -> Tensor:
    """KL(uniform || mean prediction of the batch)."""
    num_classes = len(predictions[0])
    total = predictions[0][0].new_zeros(())
    for c in range(num_classes):
        mean = raised(sum(p[c] for p in predictions) / len(predictions), floor)
        total = total + (math.log(1.0 / num_classes) - torch.log(mean)) / num_classes
    return total


def train(
    net: nn.Module,
    y: Tensor,
    batches: Sequence[tuple[list[int], Tensor, Tensor]],  # rows, weak view, strong view
    u: Tensor,
    v: Tensor,
    *,
    lr_u: float,
    lr_v: float,
    floor: float,
    consistency: float,
    balance: float,
    **optim: float,
) -> Trajectory:
    descent, out = Descent(net, **optim), Trajectory()
    net.train()
    u, v = u.clone(), v.clone()
    for rows, weak, strong in batches:
        own = {i: (u[i].double().requires_grad_(), v[i].double().requires_grad_()) for i in rows}
        both = net(torch.cat([weak, strong]))
        z_weak, z_strong = both[: len(rows)], both[len(rows) :]
        predictions = [prediction(z, int(y[i]), *own[i], floor) for z, i in zip(z_weak, rows, strict=True)]
        loss = balance * imbalance(predictions, floor)
        for z, z_other, i in zip(z_weak, z_strong, rows, strict=True):
            loss = loss + (loss_of(z, int(y[i]), *own[i], floor) + consistency * divergence(z, z_other)) / len(rows)
        gradients = torch.autograd.grad(loss, [value for pair in own.values() for value in pair], retain_graph=True)
        descent.update(loss)
        for k, i in enumerate(rows):
            u[i] = moved(own[i][0], gradients[2 * k], lr_u)
            v[i] = moved(own[i][1], gradients[2 * k + 1], lr_v)
        out.loss.append(loss.item())
        out.targets.append([u.clone(), v.clone()])
        out.weights.append([w.detach().clone() for w in net.parameters()])
    return out
