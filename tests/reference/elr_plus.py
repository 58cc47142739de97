"""Algorithm 2 of the paper in loops over examples, every element a switch.

The random draws (order of batches, mixup coefficients and partners) are arguments. Where the paper and the authors'
code differ: averaged weights start as copies (zeros in the paper) and follow after the step, as in the code (the
paper's sequence but for the index of gamma); the cross entropy uses mixed labels (text of the appendix, and code).
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot, softmax
from reference.descent import Descent
from reference.elr import clamp, floored, new_target, penalty


@dataclass
class Draws:
    """One batch: its rows, and for each of them l' and the position of its partner in the batch. l' = 1: not mixed."""

    rows: list[int]
    weight: list[float]
    partner: list[int]


@dataclass
class Switches:
    """The elements of Algorithm 2."""

    lam: float = 3.0
    beta: float = 0.7
    gamma: float = 0.997
    averaging: str = "ramp"  # ramp, fixed, warmup, none
    ramp_steps: float = 0.0  # L of exp(-5 (1 - i/L)^2)
    lam_ramp: bool = False
    label_update: bool = False
    floor: float = 0.0
    clamp_penalty: bool = False
    teacher_bn: str = "batch"


def ramp(i: int, steps: float) -> float:
    """exp(-5 (1 - i/L)^2), 1 from L on."""
    return math.exp(-5.0 * (1.0 - min(i, steps) / steps) ** 2) if steps > 0 else 1.0


def momentum_of_weights(i: int, s: Switches) -> float:
    """gamma at the i-th update, counted from 1."""
    if s.averaging == "ramp":
        return s.gamma * ramp(i, s.ramp_steps)
    if s.averaging == "warmup":
        return min(1.0 - 1.0 / (i + 1), s.gamma)
    return s.gamma


def mixed(rows: Sequence[Sequence[float]], draws: Draws) -> list[list[float]]:
    """l' a_i + (1 - l') a_j."""
    return [
        [weight * a + (1.0 - weight) * b for a, b in zip(rows[i], rows[j], strict=True)]
        for i, (weight, j) in enumerate(zip(draws.weight, draws.partner, strict=True))
    ]


def updated_label(y: Sequence[float], t: Sequence[float]) -> list[float]:
    """y_c t_c / sum_c y_c t_c; y itself where the target gives the label no mass at all."""
    products = [y_c * t_c for y_c, t_c in zip(y, t, strict=True)]
    return [product / sum(products) for product in products] if sum(products) > 1e-30 else list(y)


def normalisations(net: nn.Module) -> list[nn.BatchNorm1d]:
    return [m for m in net.modules() if isinstance(m, nn.BatchNorm1d)]


def teach(net: nn.Module, x: Tensor, bn: str, *, averaged: bool) -> Tensor:
    """Logits of a teacher on unmixed input.

    A raw network that teaches is left as it is, its statistics included. An averaged one gathers statistics of its own:
    from this batch, before they are used.
    """
    with torch.no_grad():
        if bn == "batch":
            return (net if averaged else copy.deepcopy(net)).train()(x)
        if averaged:
            _gather(net, x)
        training = net.training
        logits = net.eval()(x)
        net.train(training)
        return logits


def _gather(net: nn.Module, x: Tensor) -> None:
    """Move every layer's running statistics by this batch, layer by layer from the input."""
    for depth, layer in enumerate(normalisations(net)):
        seen: list[Tensor] = []
        probe = copy.deepcopy(net).eval()
        normalisations(probe)[depth].register_forward_pre_hook(lambda _, inputs, seen=seen: seen.append(inputs[0]))
        probe(x)
        n = len(x)
        for feature in range(seen[0].shape[1]):
            column = seen[0][:, feature]
            mean = sum(column) / n
            variance = sum((value - mean) ** 2 for value in column) / (n - 1)
            momentum = layer.momentum
            layer.running_mean[feature] = (1 - momentum) * layer.running_mean[feature] + momentum * mean
            layer.running_var[feature] = (1 - momentum) * layer.running_var[feature] + momentum * variance


def train(
    nets: Sequence[nn.Module],
    x: Tensor,
    y: Tensor,
    epochs: Sequence[Sequence[Sequence[Draws]]],  # epochs[t][k] = batches of network k in epoch t
    num_classes: int,
    switches: Switches,
    **optim: float,
) -> Trajectory:
    """Algorithm 2 for one network or two."""
    s, out = switches, Trajectory()
    averages = [copy.deepcopy(net).requires_grad_(False) for net in nets]
    descents = [Descent(net, **optim) for net in nets]
    targets = [torch.zeros(len(x), num_classes, dtype=torch.float32) for _ in nets]
    done = [0] * len(nets)
    for net in nets:
        net.train()
    for passes in epochs:
        for k, batches in enumerate(passes):
            other = 1 - k if len(nets) == 2 else k
            for draws in batches:
                done[k] += 1
                i = done[k]
                rows = draws.rows
                x_mixed = torch.tensor(mixed(x[rows].tolist(), draws), dtype=x.dtype)
                y_mixed = mixed([one_hot(int(y[row]), num_classes) for row in rows], draws)
                teacher = nets[other] if s.averaging == "none" else averages[other]
                taught = teach(teacher, x[rows], s.teacher_bn, averaged=s.averaging != "none")
                for row, z in zip(rows, taught, strict=True):
                    targets[k][row] = torch.tensor(
                        new_target(targets[k][row].tolist(), floored(softmax(z), s.floor), s.beta)
                    )
                t_mixed = mixed(targets[k][rows].tolist(), draws)
                lam = s.lam * (ramp(i, s.ramp_steps) if s.lam_ramp else 1.0)
                loss = torch.zeros((), dtype=x.dtype)
                for z, label, t in zip(nets[k](x_mixed), y_mixed, t_mixed, strict=True):
                    p = softmax(z)
                    inside = clamp(p, s.floor) if s.clamp_penalty else p
                    label = updated_label(label, t) if s.label_update else label
                    loss = loss + cross_entropy(z, label) / len(rows) + lam / len(rows) * penalty(inside, t)
                descents[k].update(loss)
                if s.averaging != "none":
                    gamma = momentum_of_weights(i, s)
                    for mean, w in zip(averages[k].parameters(), nets[k].parameters(), strict=True):
                        mean.copy_(gamma * mean + (1.0 - gamma) * w.detach())
                out.loss.append(loss.item())
                out.targets.append([t.clone() for t in targets])
                out.weights.append([w.detach().clone() for net in nets for w in net.parameters()])
                out.averages.append([w.clone() for net in averages for w in net.parameters()])
                out.statistics.append([b.clone() for net in (*nets, *averages) for b in net.buffers()])
    return out
