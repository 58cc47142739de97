"""Gradient descent on the cross entropy and on the ELR loss of the linear model, for many data sets at a time.

Three readings of the appendix's dynamics, which differ by factors of two (docs/theory.md, errata 1 and 2):

- ``loss``: gradient descent with step eta on the displayed loss of theta; its gradient has tanh(theta^T x / 2).
- ``softmax``: gradient descent with step eta on the rows of Theta; theta = Theta_1 - Theta_2 then moves at 2 eta.
- ``printed``: Eq. 10 as it stands, with tanh(theta^T x). It is what theta = (Theta_1 - Theta_2) / 2 does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from elr.losses.elr import default_floor, elr_gradient, floored
from elr.theory.mixture import Mixture

Form = Literal["loss", "softmax", "printed"]
SPEED: dict[Form, float] = {"loss": 1.0, "softmax": 2.0, "printed": 1.0}
REACHED = 0.1  # theta_T^T v >= 1/10 defines T (P:561)


def project(data: Mixture, theta: Tensor) -> Tensor:
    """theta^T x for every example, (S, n)."""
    return torch.matmul(data.x, theta[:, :, None]).squeeze(2)


def along(data: Mixture, theta: Tensor) -> Tensor:
    """theta^T v, (S,)."""
    return (theta * data.v).sum(dim=1)


def coefficients(data: Mixture, theta: Tensor, form: Form) -> Tensor:
    """tanh(.) - label, (S, n): what an example's gradient is multiplied with."""
    u = project(data, theta)
    # DEVIATES from paper: tanh(theta^T x / 2), because Eq. 10 as printed is not the gradient of the loss above it
    return torch.tanh(u if form == "printed" else u / 2) - data.labels


def weighted_mean(data: Mixture, weights: Tensor) -> Tensor:
    """Sum of weight times x over examples, divided by 2 n: (S, p)."""
    return torch.matmul(weights[:, None, :], data.x).squeeze(1) / (2 * data.x.shape[1])


@dataclass(frozen=True)
class Path:
    """What happened between theta_0 and theta_T, for each of S data sets; NaN after a set's own T."""

    along: Tensor  # (t + 1, S) theta_t^T v
    moved: Tensor  # (t + 1, S) ||theta_t - theta_0||
    correlation: Tensor  # (t, S) of the negative gradient with v
    progress: Tensor  # (t, S) negative gradient times v
    slope: Tensor  # (t, S) norm of the gradient
    first: Tensor  # theta_0, (S, p)
    last: Tensor  # theta_T, (S, p)
    time: Tensor  # T, (S,); 0: not reached


def descend_to_t(data: Mixture, theta0: Tensor, eta: float, form: Form, *, sign: float = 1.0) -> Path:
    """Gradient descent until theta^T v >= 1/10 in every data set, or until it is plain that this will not be.

    At small theta^T v the pull of the labels is (1 - Delta)/2, as the share of right labels among the given ones says;
    three times as many steps as it needs from the worst start, and 3 / eta more, are waited for.

    Args:
        data: S data sets.
        theta0: start, (S, p).
        eta: step size.
        form: which reading of the dynamics.
        sign: -1 climbs instead; the lab's tests see that the claims notice.
    """
    theta = theta0.clone()
    time = torch.zeros(len(theta), dtype=torch.long)
    places, moves = [along(data, theta)], [torch.zeros_like(theta[:, 0])]
    slopes: list[Tensor] = []
    progress: list[Tensor] = []
    correlations: list[Tensor] = []
    pull = float((0.5 - data.wrong.double().mean(dim=1)).abs().mean().clamp_min(0.05))
    way = float((REACHED - places[0]).clamp_min(0).max())
    for step in range(1, math.ceil(3 * (1 + way / pull) / eta) + 1):
        active = time == 0
        gradient = sign * weighted_mean(data, coefficients(data, theta, form))
        ahead, norm = -(gradient * data.v).sum(dim=1), gradient.norm(dim=1)
        for found, values in ((slopes, norm), (progress, ahead), (correlations, ahead / norm)):
            found.append(torch.where(active, values, torch.nan))
        theta = torch.where(active[:, None], theta - SPEED[form] * eta * gradient, theta)
        places.append(torch.where(active, along(data, theta), torch.nan))
        moves.append(torch.where(active, (theta - theta0).norm(dim=1), torch.nan))
        time[active & (places[-1] >= REACHED)] = step
        if (time > 0).all():
            break
    return Path(
        torch.stack(places),
        torch.stack(moves),
        torch.stack(correlations),
        torch.stack(progress),
        torch.stack(slopes),
        theta0,
        theta,
        time,
    )


@dataclass(frozen=True)
class Fit:
    """Share of examples in each state, and the coefficient of the true class, for S data sets at some times."""

    steps: list[int]
    clean_right: Tensor  # (t, S)
    wrong_right: Tensor  # (t, S)
    fresh_right: Tensor  # (t, S) exact accuracy on new examples
    clean_pull: Tensor  # (t, S) mean of (p - y)_c* over clean labels
    wrong_pull: Tensor  # (t, S) the same over wrong labels
    clean_pull_sd: Tensor  # (t, S) its standard deviation over clean labels
    wrong_pull_sd: Tensor  # (t, S) and over wrong labels


def train(
    data: Mixture,
    theta0: Tensor,
    eta: float,
    steps: Sequence[int],
    *,
    lam: float = 0.0,
    beta: float = 0.7,
    sign: float = 1.0,
) -> Fit:
    """Gradient descent on Theta, rows +-theta_0 / 2, looked at after each of these numbers of steps.

    Args:
        data: S data sets.
        theta0: Theta_1 - Theta_2 at the start, (S, p).
        eta: step size for Theta.
        steps: when to look, ascending.
        lam: strength of ELR's penalty; 0 is cross entropy.
        beta: memory of ELR's targets.
        sign: -1 climbs instead.
    """
    weights = torch.stack([theta0, -theta0], dim=1) / 2  # (S, 2, p)
    sets, n, _ = data.x.shape
    labels = (data.labels < 0).long()  # class 0 is the cluster at +v
    y = torch.nn.functional.one_hot(labels, 2).to(data.x.dtype)  # (S, n, 2)
    targets = torch.zeros_like(y).reshape(-1, 2)
    looks = []
    wanted = set(steps)
    for step in range(steps[-1] + 1):
        logits = torch.matmul(data.x, weights.transpose(1, 2))  # (S, n, 2)
        p = logits.softmax(dim=2)
        if step in wanted:
            looks.append(_look(data, weights[:, 0] - weights[:, 1], p - y))
        if lam:
            # PAPER Algorithm 1: the target first, then the loss with the new target
            seen = floored(p.reshape(-1, 2), default_floor(2))
            targets = beta * targets + (1.0 - beta) * seen
            pull = elr_gradient(logits.reshape(-1, 2), labels.reshape(-1), targets, lam).reshape(sets, n, 2)
        else:
            pull = p - y
        weights = weights - sign * eta / n * torch.matmul(pull.transpose(1, 2), data.x)
    return Fit(list(steps), *(torch.stack(values) for values in zip(*looks, strict=True)))


def _look(data: Mixture, theta: Tensor, pull: Tensor) -> tuple[Tensor, ...]:
    right = (project(data, theta).sign() == data.truth).to(data.x.dtype)
    true_class = torch.where(data.truth > 0, pull[:, :, 0], pull[:, :, 1])  # (S, n)
    return (
        mean_over(right, ~data.wrong),
        mean_over(right, data.wrong),
        fresh_accuracy(data, theta),
        mean_over(true_class, ~data.wrong),
        mean_over(true_class, data.wrong),
        deviation_over(true_class, ~data.wrong),
        deviation_over(true_class, data.wrong),
    )


def mean_over(values: Tensor, chosen: Tensor) -> Tensor:
    """Mean over the chosen examples of each data set, (S,); NaN where there are none."""
    return (values * chosen).sum(dim=1) / chosen.sum(dim=1)


def deviation_over(values: Tensor, chosen: Tensor) -> Tensor:
    """Standard deviation over the chosen examples of each data set, (S,)."""
    centred = values - mean_over(values, chosen)[:, None]
    return mean_over(centred.square(), chosen).sqrt()


def fresh_accuracy(data: Mixture, theta: Tensor) -> Tensor:
    """Phi(theta^T v / (sigma ||theta||)): the exact accuracy of theta on examples it has not seen, (S,)."""
    phi: Tensor = torch.special.ndtr(along(data, theta) / (data.sigma * theta.norm(dim=1)))
    return phi
