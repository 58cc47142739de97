"""MD-DYR-SH (Arazo et al. 2019): plain mixup, then dynamic mixup, then with labels from soft to hard."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot, softmax
from reference.descent import Descent
from reference.m_dyr_h import Draws, Mixture, balance, losses_of, mixed_inputs


def tempered(z: Tensor, heat: float) -> list[float]:
    scaled = [value / heat for value in z.tolist()]
    e = [math.exp(value - max(scaled)) for value in scaled]
    return [value / sum(e) for value in e]


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    epochs: Sequence[Sequence[Draws]],
    num_classes: int,
    *,
    start: int,
    guide: int,
    temperatures: Sequence[float],  # of the epochs after start + guide; the last one stays
    reg: float,
    **optim: float,
) -> Trajectory:
    descent, out = Descent(net.train(), **optim), Trajectory()
    for epoch, batches in enumerate(epochs):
        dynamic, soft = epoch >= start, epoch >= start + guide
        if dynamic:
            mixture = Mixture(losses_of(net, x, y, num_classes))
        for draws in batches:
            size, rows = len(draws.rows), draws.rows
            given = [one_hot(int(y[row]), num_classes) for row in rows]
            targets, inputs, halves = given, [draws.weight] * size, draws.weight
            if soft:
                with torch.no_grad():
                    unmixed = net(x[rows])
            if dynamic:
                wrong = [mixture.wrong(loss) for loss in losses_of(net, x[rows], y[rows], num_classes)]
                inputs = [(1 - w) / ((1 - w) + (1 - wrong[j])) for w, j in zip(wrong, draws.partner, strict=True)]
            if soft:
                heat = temperatures[min(epoch - start - guide, len(temperatures) - 1)]
                guess = [tempered(z, heat) for z in unmixed]
                targets = [
                    [(1 - w) * a + w * b for a, b in zip(label, own, strict=True)]
                    for w, label, own in zip(wrong, given, guess, strict=True)
                ]
                halves = 0.5
            logits = net(mixed_inputs(x, draws, inputs))
            loss = torch.zeros((), dtype=x.dtype)
            for i, z in enumerate(logits):
                loss = loss + halves * cross_entropy(z, targets[i]) / size
                loss = loss + (1 - halves) * cross_entropy(z, targets[draws.partner[i]]) / size
            if soft:
                loss = loss + reg * balance([softmax(z) for z in logits])
            descent.update(loss)
            out.loss.append(loss.item())
            out.weights.append([w.detach().clone() for w in net.parameters()])
    return out
