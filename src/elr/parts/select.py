"""Choosing the examples of a batch to learn from: small losses, disagreement of two networks, and how many to keep."""

import math
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from elr.parts.average import still_statistics
from elr.parts.mixture import estimate_noise_rate

USUAL_RATE = 0.4  # of wrong labels, where the cost of a method has to be told before they are counted


class NoiseRate(nn.Module):
    """The fraction of wrong labels: what the user said, or the newest estimate from training losses.

    A method that is given no rate calls ``estimate`` at places that depend on the clock alone; the number is a buffer,
    so a resumed run has it too.
    """

    value: Tensor

    def __init__(self, given: float | None) -> None:
        super().__init__()
        self.given = given
        self.register_buffer("value", torch.tensor(given or 0.0))

    def estimate(self, losses: Tensor) -> None:
        """Take the losses (n,) of all training examples into account, unless the rate was given."""
        if self.given is None:
            self.value.fill_(estimate_noise_rate(losses))

    def __float__(self) -> float:
        return float(self.value.item())


def forget_rate(epoch: int, ramp: float, rate: float, exponent: float = 1.0) -> float:
    """Fraction of a batch that co-teaching drops in this epoch (from 0): a line up to rate^c, then rate itself."""
    # PAPER: tau min(T / T_k, 1) with T = 1, 2, ...
    # DEVIATES from paper: c is the power of the rate and not of the epoch, as in the authors' code.
    # DEVIATES from authors' code: theirs is tau^c T / (T_k - 1), at its end an epoch early, because they spread T_k
    # values over [0, tau^c] and never train in the epoch of the first.
    return float(rate**exponent) * (epoch + 1) / ramp if epoch + 1 <= ramp else rate


def kept_count(size: int, fraction: float) -> int:
    """How many of ``size`` examples a fraction is, rounded down, but one at least if there is any."""
    return min(size, max(1, math.floor(size * fraction + 1e-4)))  # 10 * (1 - .9) is a hair below 1


def smallest(losses: Tensor, count: int) -> Tensor:
    """Positions of the ``count`` smallest losses (B,), of equal ones the first; a NaN counts as the largest."""
    return losses.detach().argsort(stable=True)[:count]


def disagreement(logits: Sequence[Tensor]) -> Tensor:
    """Positions at which two networks' logits (B, C) have different largest classes; a NaN agrees with nothing."""
    first, second = (z.detach() for z in logits)
    differ = (first.argmax(dim=1) != second.argmax(dim=1)) | (first + second).sum(dim=1).isnan()
    return differ.nonzero().squeeze(1)


def look(nets: Iterable[nn.Module], x: Tensor, *, learn: bool) -> list[Tensor]:
    """Logits (B, C) of each network on the whole batch, in training mode.

    If nothing is to be learned from them they have no graph and leave no trace in the statistics of batch norm.
    """
    if learn:
        return [net(x) for net in nets]
    with torch.no_grad(), ExitStack() as stack:
        for net in nets:
            stack.enter_context(still_statistics(net))
        return [net(x) for net in nets]


def logits_of(net: nn.Module, x: Tensor, rows: Tensor) -> Tensor:
    """Logits of some rows of a batch, computed on them alone: batch norm does not see the others.

    Fewer than two rows go with the whole batch, because batch norm cannot normalise one.
    """
    logits = net(x[rows]) if len(rows) > 1 else net(x)[rows]
    return logits  # type: ignore[no-any-return]


def mean_over(losses: Tensor, least: float = 1.0) -> Tensor:
    """Sum over max(number, least): the mean of what was selected, 0 with a graph if nothing was."""
    return losses.sum() / max(len(losses), least)


def log_mean_p(logits: Sequence[Tensor]) -> Tensor:
    """Logits whose softmax is the mean prediction of several networks, (B, C), without a graph."""
    return torch.stack([z.detach().log_softmax(dim=1) for z in logits]).logsumexp(dim=0) - math.log(len(logits))
