"""Counted randomness: every draw is a pure function of where it happens, so there is no generator state to save.

``fold`` turns a seed and a place ("augment", epoch 3, pass 0, ...) into a 64-bit key; ``uniforms`` turns a key and
example ids into numbers that depend on nothing else: not on the batch, the number of workers or what was drawn before.
See docs/decisions/002-randomness.md.
"""

import math
import zlib

import numpy as np
import torch
from torch import Tensor

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def _signed(value: int) -> int:
    """The same 64 bits as torch's int64 reads them."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _mix_int(x: int) -> int:
    """SplitMix64's finaliser (Steele et al. 2014): every input bit changes about half of the output bits."""
    x = ((x ^ (x >> 30)) * _MIX_1) & _MASK
    x = ((x ^ (x >> 27)) * _MIX_2) & _MASK
    return x ^ (x >> 31)


def _mix(x: Tensor) -> Tensor:
    """The same finaliser on an int64 tensor; torch shifts arithmetically, hence the masks."""
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _signed(_MIX_1)
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _signed(_MIX_2)
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def fold(seed: int, purpose: str, *place: int) -> int:
    """A 64-bit key for one purpose at one place; different purposes never share a stream."""
    key = _mix_int((seed + zlib.crc32(purpose.encode()) * _GOLDEN) & _MASK)
    for part in place:
        key = _mix_int((key + (part + 1) * _GOLDEN) & _MASK)
    return key


def uniforms(key: int, ids: Tensor, count: int) -> Tensor:
    """``count`` uniform numbers in [0, 1) for each id: (B, count) float32, equal for equal (key, id)."""
    rows = _mix(ids.to(torch.int64) + _signed(key))  # (B,)
    steps = torch.arange(1, count + 1, device=ids.device) * _signed(_GOLDEN)  # (count,)
    bits = _mix(rows[:, None] + steps)
    return ((bits >> 40) & ((1 << 24) - 1)).to(torch.float32) * 2.0**-24


def normals(key: int, ids: Tensor, count: int) -> Tensor:
    """``count`` standard normal numbers for each id: (B, count) float32, by Box and Muller's transform."""
    u = uniforms(key, ids, 2 * count)  # (B, 2 count)
    return torch.sqrt(-2.0 * torch.log1p(-u[:, :count])) * torch.cos(2.0 * math.pi * u[:, count:])


def generator(key: int) -> np.random.Generator:
    """A NumPy generator for draws that belong to no single example (a permutation, a mixup coefficient)."""
    return np.random.Generator(np.random.Philox(key=key))
