"""mixup: convex combinations of examples with others of their batch (Zhang et al. 2018)."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Mix(NamedTuple):
    """One draw of mixup for a batch; the same draw blends inputs, labels and targets."""

    weight: Tensor  # l' = max(l, 1-l): () for the batch or (B,) for each example
    partner: Tensor  # (B,)

    def blend(self, a: Tensor) -> Tensor:
        """l' a_i + (1 - l') a_j, along the first dimension."""
        weight = self.weight if self.weight.dim() == 0 else self.weight.view(-1, *[1] * (a.dim() - 1))
        return torch.lerp(a[self.partner], a, weight.to(a.dtype))


def draw_mix(rng: np.random.Generator, alpha: float, size: int, device: torch.device, *, per_example: bool) -> Mix:
    """Draw coefficients from Beta(alpha, alpha) and partners by a permutation (an example may meet itself)."""
    draw = rng.beta(alpha, alpha, size=size if per_example else None)
    weight = torch.as_tensor(np.maximum(draw, 1.0 - draw), dtype=torch.float32, device=device)
    return Mix(weight, torch.from_numpy(rng.permutation(size)).to(device))
