"""ELR, then distillation of posteriors: one example and one class at a time."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy
from reference.descent import Descent
from reference.elr import train as train_elr


def posterior(targets: Tensor, y: Tensor, prior: float, sharpen: float) -> Tensor:
    """q of every row, from targets that need not sum to 1."""
    n, num_classes = targets.shape
    t = [[float(v) ** sharpen for v in row] for row in targets]
    t = [[v / sum(row) for v in row] for row in t]
    counts = [[prior / num_classes] * num_classes for _ in range(num_classes)]
    for i in range(n):
        for c in range(num_classes):
            counts[c][int(y[i])] += t[i][c]
    out = torch.zeros(n, num_classes)
    for i in range(n):
        weights = [t[i][c] * counts[c][int(y[i])] / sum(counts[c]) for c in range(num_classes)]
        for c in range(num_classes):
            out[i, c] = weights[c] / sum(weights)
    return out


def train(
    nets: Sequence[nn.Module],
    x: Tensor,
    y: Tensor,
    steps: Sequence[Sequence[Sequence[Sequence[int]]]],  # steps[s][epoch] = batches
    num_classes: int,
    *,
    prior: float,
    sharpen: float,
    fresh: bool,
    lam: float,
    beta: float,
    floor: float,
    clamp_penalty: bool,
    **optim: float,
) -> Trajectory:
    first = [batch for epoch in steps[0] for batch in epoch]
    net, *others = nets
    descent = Descent(net, **optim)
    values = {"lam": lam, "beta": beta, "floor": floor, "clamp_penalty": clamp_penalty}
    out = train_elr(net, x, y, first, num_classes, descent=descent, **values)
    p = out.targets[-1][0]
    if fresh:
        (net,) = others
        descent = Descent(net, **optim)
    for k, epochs in enumerate(steps[1:]):
        q = posterior(p, y, prior, sharpen)
        net.train()
        if k == (1 if fresh else 0):
            descent.lr *= 0.6
        for epoch in epochs:
            for batch in epoch:
                logits = net(x[list(batch)])
                loss = torch.zeros((), dtype=x.dtype)
                for z, i in zip(logits, batch, strict=True):
                    loss = loss + cross_entropy(z, q[i].tolist()) / len(batch)
                descent.update(loss)
                out.loss.append(loss.item())
                out.weights.append([w.detach().clone() for w in net.parameters()])
        net.eval()
        with torch.no_grad():
            p = torch.stack([net(row[None])[0].softmax(dim=0) for row in x])
    return out
