"""ELR, then cross entropy to posteriors: one example and one class at a time."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, softmax
from reference.descent import Descent
from reference.elr import floored, new_target
from reference.elr import penalty as elr_penalty


def matrix(targets: Tensor, y: Tensor, prior: float) -> list[list[float]]:
    """T[c][j]: of the rows whose target points at c, how many are labelled j."""
    num_classes = targets.shape[1]
    counts = [[prior / num_classes] * num_classes for _ in range(num_classes)]
    for t, label in zip(targets.tolist(), y.tolist(), strict=True):
        counts[t.index(max(t))][label] += 1.0
    return [[count / sum(row) for count in row] for row in counts]


def posterior(t: Sequence[float], label: int, T: Sequence[Sequence[float]]) -> list[float]:
    """Bayes' rule for one row."""
    weights = [t[c] * T[c][label] for c in range(len(t))]
    return [weight / sum(weights) for weight in weights]


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    epochs: Sequence[Sequence[Sequence[int]]],  # epochs[e] = batches
    num_classes: int,
    *,
    first: int,
    prior: float,
    lam: float,
    beta: float,
    floor: float,
    **optim: float,
) -> Trajectory:
    descent, out = Descent(net, **optim), Trajectory()
    net.train()
    targets = torch.zeros(len(x), num_classes, dtype=torch.float32)
    for e, batches in enumerate(epochs):
        T = matrix(targets, y, prior)
        for batch in batches:
            logits = net(x[list(batch)])
            loss = torch.zeros((), dtype=x.dtype)
            for z, i in zip(logits, batch, strict=True):
                p = softmax(z)
                targets[i] = torch.tensor(new_target(targets[i].tolist(), floored(p, floor), beta))
                t, label = targets[i].tolist(), int(y[i])
                if e < first:
                    given = [1.0 if c == label else 0.0 for c in range(num_classes)]
                    loss = loss + (cross_entropy(z, given) + lam * elr_penalty(p, t)) / len(batch)
                else:
                    loss = loss + cross_entropy(z, posterior(t, label, T)) / len(batch)
            descent.update(loss)
            out.targets.append([targets.clone()])
            out.loss.append(loss.item())
            out.weights.append([w.detach().clone() for w in net.parameters()])
    return out
