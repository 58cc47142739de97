"""Noise that depends on the input: similar inputs are mistaken for the same wrong class."""

import numpy as np
from numpy.typing import NDArray

from elr.noise.clean import Clean, Labels

_SPREAD = 0.1  # standard deviation of the examples' own flip rates
_CHUNK = 1024  # rows in memory at a time


def instance(clean: Clean, rate: float, rng: np.random.Generator) -> Labels:
    """Flip each example at a rate of its own, towards a class chosen by a random projection of its input.

    Xia et al. 2020 (part-dependent label noise), Algorithm 2: rates from a normal around ``rate`` truncated to [0, 1];
    for every class c a Gaussian matrix W_c (S, C); the wrong class is drawn from softmax(x W_c) without c. The matrices
    are drawn class by class and only flipped examples are read, so memory is one matrix and one chunk of inputs.
    """
    if clean.features is None:
        raise ValueError("noise 'instance' needs the inputs")
    new = clean.y.copy()
    if rate == 0:  # the truncated normal around 0 has mean 0.08
        return new
    rows = np.flatnonzero(rng.random(len(new)) < _own_rates(len(new), rate, rng))
    for label in np.unique(clean.y[rows]):
        projection: NDArray[np.float32] | None = None
        mine = rows[clean.y[rows] == label]
        for chunk in np.split(mine, range(_CHUNK, len(mine), _CHUNK)):
            x = clean.features(chunk)  # (b, S)
            if projection is None:
                projection = _projection(clean.key, int(label), x.shape[1], len(clean.classes))
            logits = (x @ projection).astype(np.float64)  # (b, C)
            logits[:, label] = -np.inf
            # argmax of logits + Gumbel noise is a draw from their softmax, without overflow for inputs of any scale
            new[chunk] = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return new


def _own_rates(n: int, rate: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """A normal around ``rate`` truncated to [0, 1], by drawing again what falls outside: at most half does."""
    rates = rng.normal(rate, _SPREAD, n)
    while (outside := np.flatnonzero((rates < 0) | (rates > 1))).size:
        rates[outside] = rng.normal(rate, _SPREAD, outside.size)
    return rates


def _projection(key: int, label: int, width: int, num_classes: int) -> NDArray[np.float32]:
    """W_c: a function of the key and the class alone, so that every part of the data meets the same annotator."""
    rng = np.random.Generator(np.random.Philox(key=np.array([key, label], dtype=np.uint64)))
    return rng.standard_normal((width, num_classes), dtype=np.float32)
