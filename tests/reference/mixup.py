"""mixup as its authors write it: l x_i + (1 - l) x_j, l times the loss with y_i plus (1 - l) times that with y_j."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot
from reference.descent import Descent


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    batches: Sequence[tuple[list[int], list[float], list[int]]],  # rows, l of each, position of each one's partner
    num_classes: int,
    **optim: float,
) -> Trajectory:
    """Stochastic gradient descent on mixed pairs."""
    descent, out = Descent(net, **optim), Trajectory()
    net.train()
    for rows, weights, partners in batches:
        pairs = [(rows[k], rows[partners[k]], weights[k]) for k in range(len(rows))]
        logits = net(torch.stack([ell * x[i] + (1.0 - ell) * x[j] for i, j, ell in pairs]))
        loss = torch.zeros((), dtype=x.dtype)
        for z, (i, j, ell) in zip(logits, pairs, strict=True):
            loss = loss + ell * cross_entropy(z, one_hot(int(y[i]), num_classes)) / len(rows)
            loss = loss + (1.0 - ell) * cross_entropy(z, one_hot(int(y[j]), num_classes)) / len(rows)
        descent.update(loss)
        out.loss.append(loss.item())
        out.weights.append([w.detach().clone() for w in net.parameters()])
    return out
