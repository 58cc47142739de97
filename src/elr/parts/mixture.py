"""Two-component mixtures over the losses of all examples: which labels look wrong, and how many of them.

All of them rest on early learning: after a few epochs wrong labels still have a high loss. They say little before the
network has learned anything, and little again once it has memorised everything.
"""

import math
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

EM_STEPS = 10
BINS = 100
EDGE = 1e-4  # probabilities and scaled losses stay this far from 0 and 1
OUTSIDE = 1e-3  # as far from 0 and 1 the authors put scaled losses that lie on or beyond them
MIN_VARIANCE = 1e-6


def gaussian_clean_probability(
    losses: Tensor, *, scale: bool = True, max_iter: int = 10, tol: float = 1e-2, reg_covar: float = 5e-4
) -> Tensor:
    """Probability that a label is right: posterior of the low-mean one of two Gaussians fitted to the losses.

    Li et al., ICLR 2020 (DivideMix), Section 3.1, with the authors' settings of the fit. Losses that are all equal
    speak against no label: every probability is 1. Otherwise, a loss that is not a finite number has probability 0.

    Args:
        losses: (n,), not negative.
        scale: scale them to [0, 1]; False for means of losses that were, which the authors fit as they are.
        max_iter: most steps of expectation maximisation.
        tol: it stops when the mean log-likelihood gains less than this.
        reg_covar: added to both variances of the scaled losses.

    Returns:
        (n,) float32, on the device of the losses.
    """
    values = losses.detach().cpu().double().numpy()  # in this order: MPS has no float64
    finite = np.isfinite(values)
    seen = values[finite]
    if len(seen) < 2 or seen.max() <= seen.min():
        return torch.ones_like(losses, dtype=torch.float32)
    x = (seen - seen.min()) / (seen.max() - seen.min()) if scale else seen
    # Imported here: scikit-learn takes longer to import than all that is ours.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    weights, means, variances = two_heaps(x)
    # DEVIATES from authors' code: EM starts from the best split into two heaps, not from k-means, because that has
    # random starts and adds up threads in the order in which they end: equal runs would not give equal bits.
    mixture = GaussianMixture(
        2,
        max_iter=max_iter,
        tol=tol,
        reg_covar=reg_covar,
        weights_init=weights,
        means_init=means[:, None],
        precisions_init=1.0 / (variances + reg_covar)[:, None, None],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # ten steps are all the authors take
        posterior = mixture.fit(x[:, None]).predict_proba(x[:, None])  # (m, 2)
    clean = np.zeros(len(values), dtype=np.float32)
    clean[finite] = posterior[:, mixture.means_[:, 0].argmin()]
    return torch.from_numpy(clean).to(losses.device)


def two_heaps(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Weight, mean and variance (2,) of the two heaps whose sum of squares is least: 2-means, exact on a line.

    The best heaps are neighbours in sorted order, so all splits are tried at once; x (n,) holds two values at least.
    """
    x = np.sort(x)
    sizes = np.arange(1, len(x))
    sums = np.cumsum(x)
    between = sums[:-1] ** 2 / sizes + (sums[-1] - sums[:-1]) ** 2 / (len(x) - sizes)
    heaps = np.split(x, [int(between.argmax()) + 1])
    weight, mean, variance = zip(*((len(heap) / len(x), heap.mean(), heap.var()) for heap in heaps), strict=True)
    return np.array(weight), np.array(mean), np.array(variance)


def estimate_noise_rate(losses: Tensor) -> float:
    """Fraction of wrong labels: the mean posterior of the high-loss Gaussian, in [0, 1].

    It assumes that the network has learned the pattern and not yet the labels, so that the losses fall into two heaps,
    and that wrong labels are not so rare that the second heap is the tail of the first: on clean data it says some
    per cent, and with noise that depends on the input it says too little.
    """
    return float(1.0 - gaussian_clean_probability(losses).cpu().double().mean())


@dataclass(frozen=True)
class BetaMixture:
    """Two Beta distributions over scaled losses; the second, with the higher mean, is that of wrong labels.

    Arazo et al., ICML 2019, Section 3.1. Six numbers and the range of losses that was scaled to [0, 1]; ``numbers``
    and ``of`` take them to a buffer and back. Before ``fit`` it is the start of expectation maximisation.
    """

    weight: tuple[float, float] = (0.5, 0.5)
    alpha: tuple[float, float] = (1.0, 2.0)
    beta: tuple[float, float] = (2.0, 1.0)
    low: float = 0.0
    high: float = 1.0

    @classmethod
    def fit(cls, losses: Tensor, *, steps: int = EM_STEPS) -> "BetaMixture":
        """Fit to the losses (n,) of all examples, the outer 5 % on either side left out.

        Losses that are all equal speak against no label: the weight of the second component is then 0.
        """
        values = losses.detach().cpu().double().numpy()
        values = values[np.isfinite(values)]
        first, last = np.percentile(values, [5, 95]).tolist() if len(values) else (0.0, 0.0)
        low, high = first + 1e-5, last + 1e-6
        if high <= low:
            return cls(weight=(1.0, 0.0))
        inner = values[(values >= first) & (values <= last)]
        inner = inner if len(inner) > 1 else values  # of two examples none is left
        x = (torch.from_numpy(inner) - low) / (high - low)
        x = x.masked_fill(x <= 0.0, OUTSIDE).masked_fill(x >= 1.0, 1.0 - OUTSIDE).clamp(EDGE, 1.0 - EDGE)
        mixture = cls(low=low, high=high)
        for _ in range(steps):
            mixture = mixture._em_step(x)
        return mixture._ordered()

    def wrong_probability(self, losses: Tensor) -> Tensor:
        """Posterior of the second component for losses (B,), in [1e-4, 1 - 1e-4]: (B,) float32.

        Read off a table of 100 bins that stays flat after its maximum: the posterior itself falls again at the highest
        losses, where the wider component has the longer tail.
        """
        half = losses.dtype in (torch.float16, torch.bfloat16)
        x = ((losses.float() if half else losses).detach() - self.low) / (self.high - self.low)
        bins = (x.nan_to_num(nan=1.0).clamp(EDGE, 1.0 - EDGE) * BINS).long()
        return self._table().to(losses.device)[bins]

    def numbers(self) -> Tensor:
        """All of it as (8,) float32: weights, alphas, betas, range."""
        return torch.tensor([*self.weight, *self.alpha, *self.beta, self.low, self.high])

    @classmethod
    def of(cls, numbers: Tensor) -> "BetaMixture":
        """The mixture that ``numbers`` came from, to float32."""
        w0, w1, a0, a1, b0, b1, low, high = numbers.tolist()
        return cls((w0, w1), (a0, a1), (b0, b1), low, high)

    @property
    def means(self) -> tuple[float, float]:
        """Mean of each component, of losses scaled to [0, 1]."""
        first, second = (a / (a + b) for a, b in zip(self.alpha, self.beta, strict=True))
        return first, second

    def _em_step(self, x: Tensor) -> "BetaMixture":
        r = self._joint(x).clamp_min(1e-12)  # (2, n)
        r = r / r.sum(dim=0)
        (a0, b0), (a1, b1) = beta_from_moments(x, r[0]), beta_from_moments(x, r[1])
        w0, w1 = (r.sum(dim=1) / r.sum()).tolist()
        return BetaMixture((w0, w1), (a0, a1), (b0, b1), self.low, self.high)

    def _joint(self, x: Tensor) -> Tensor:
        """Weight times density of each component at x (n,) in (0, 1): (2, n)."""
        rows = []
        for w, a, b in zip(self.weight, self.alpha, self.beta, strict=True):
            constant = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
            rows.append(w * torch.exp((a - 1.0) * x.log() + (b - 1.0) * torch.log1p(-x) + constant))
        return torch.stack(rows)

    def _ordered(self) -> "BetaMixture":
        # DEVIATES from authors' code: components are put in order, because only their start says which is which there.
        if self.means[0] <= self.means[1]:
            return self
        w, a, b = ((pair[1], pair[0]) for pair in (self.weight, self.alpha, self.beta))
        return BetaMixture(w, a, b, self.low, self.high)

    def _table(self) -> Tensor:
        # DEVIATES from authors' code: the table begins and ends 1e-4 from 0 and 1, theirs 1e-12 with 1e-12 added to the
        # denominator, because so close to an end the power of x alone decides, whatever the weights.
        joint = self._joint(torch.linspace(EDGE, 1.0 - EDGE, BINS, dtype=torch.float64))
        wrong = joint[1] / joint.sum(dim=0).clamp_min(torch.finfo(torch.float64).tiny)  # (BINS,)
        peak = int(wrong.argmax())
        wrong[peak:] = wrong[peak].clone()
        return wrong.clamp(EDGE, 1.0 - EDGE).float()


def beta_from_moments(x: Tensor, weight: Tensor) -> tuple[float, float]:
    """(alpha, beta) of the Beta distribution with the weighted mean m and variance v of x (n,).

    alpha = m (m (1 - m) / v - 1), beta = alpha (1 - m) / m; v is kept off 0, where both are infinite, and below the
    m (1 - m) at which both are 0.
    """
    total = weight.sum()
    m = float((weight * x).sum() / total)
    v = float((weight * (x - m) ** 2).sum() / total)
    v = min(max(v, MIN_VARIANCE), m * (1.0 - m) * (1.0 - 1e-6))
    alpha = m * (m * (1.0 - m) / v - 1.0)
    return alpha, alpha * (1.0 - m) / m
