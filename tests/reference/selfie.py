"""SELFIE, Algorithm 1 of Song et al. 2019, with restarts, example by example."""

import copy
import math
from collections import Counter
from collections.abc import Sequence

from torch import Tensor, nn

from reference.ce import Trajectory, cross_entropy, one_hot
from reference.co_teaching import mean, record
from reference.descent import Descent


def uncertainty(predictions: Sequence[int], num_classes: int) -> float:
    """Entropy of the predicted classes over its largest value."""
    counts = Counter(predictions).values()
    return -sum(c / len(predictions) * math.log(c / len(predictions)) for c in counts) / math.log(num_classes)


def most_frequent(predictions: Sequence[int]) -> int:
    """The mode, of several the smallest class."""
    counts = Counter(predictions)
    return min(c for c in counts if counts[c] == max(counts.values()))


def number_clean(size: int, rate: float) -> int:
    return max(1, math.ceil(round(size * (1.0 - rate), 6)))


def train(
    starts: Sequence[nn.Module],
    x: Tensor,
    y: Tensor,
    runs: Sequence[Sequence[Sequence[Sequence[int]]]],
    num_classes: int,
    *,
    rate: float,
    eps: float,
    history: int,
    warmup: Sequence[int],
    reuse: bool = False,
    second_pass: bool = True,
    **optim: float,
) -> tuple[Trajectory, list[dict[int, int]], list[float]]:
    """``runs``: batches of the epochs of each run, which begins with its network of ``starts``.

    Also returns the refurbished labels after each step and the rate of each run.
    """
    out, tables, rates = Trajectory(), [], []
    refurbished: dict[int, int] = {}
    label = {i: int(y[i]) for i in range(len(y))}
    for run, epochs in enumerate(runs):
        net = copy.deepcopy(starts[run]).train()
        descent = Descent(net, **optim)
        seen: dict[int, list[int]] = {i: [] for i in label}
        rates.append(rate)
        for epoch, batches in enumerate(epochs):
            for rows in batches:
                twice = second_pass and epoch >= warmup[run]
                logits = (copy.deepcopy(net) if twice else net)(x[list(rows)])  # a copy: looking leaves no trace
                given = [cross_entropy(z, one_hot(int(y[i]), num_classes)) for z, i in zip(logits, rows, strict=True)]
                learn = {i: label[i] for i in rows}
                if epoch >= warmup[run]:
                    order = sorted(range(len(rows)), key=lambda k: given[k].item())
                    clean = [rows[k] for k in order[: number_clean(len(rows), rate)]]
                    learn = {}
                    for i in rows:
                        last = seen[i][-history:]
                        if len(last) == history and uncertainty(last, num_classes) <= eps:
                            refurbished[i] = learn[i] = most_frequent(last)
                        elif reuse and i in refurbished:
                            learn[i] = refurbished[i]
                        elif i in clean:
                            learn[i] = label[i]
                predictions = [int(z.argmax()) for z in logits]
                if twice:
                    kept = [i for i in rows if i in learn] if len(learn) > 1 else list(rows)
                    logits = net(x[kept])
                    chosen = dict(zip(kept, logits, strict=True))
                else:
                    chosen = dict(zip(rows, logits, strict=True))
                own = mean([cross_entropy(chosen[i], one_hot(learn[i], num_classes)) for i in learn], logits)
                descent.update(own)
                for i, c in zip(rows, predictions, strict=True):
                    seen[i].append(c)
                record(out, own.detach(), [net])
                tables.append(dict(refurbished))
        label.update(refurbished)
        rate = min(rate, 1.0 - len(refurbished) / len(label))
    return out, tables, rates
