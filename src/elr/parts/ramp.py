"""Ramps: the sigmoid-shaped one of Laine and Aila (gamma and lambda in ELR+, consistency weights), a straight one."""

import math


def ramp(step: float, length: float) -> float:
    """exp(-5 (1 - step/length)^2), from exp(-5) at step 0 to 1 at ``length`` and after; 1 everywhere if length is 0."""
    if length <= 0:
        return 1.0
    return math.exp(-5.0 * (1.0 - min(max(step / length, 0.0), 1.0)) ** 2)


def rise(elapsed: float, length: float) -> float:
    """A straight line from 0 at the start to 1 at ``length`` and after; 1 everywhere if length is 0."""
    return min(max(elapsed / length, 0.0), 1.0) if length > 0 else 1.0
