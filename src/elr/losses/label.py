"""What most losses begin and end with: logits in full precision, their log p, and values read at the label."""

import torch
from torch import Tensor

_HALF = (torch.float16, torch.bfloat16)


def wide(logits: Tensor) -> Tensor:
    """Logits in float32 at least, whatever autocast does: 1 - 1e-4 is 1 in bfloat16."""
    return logits.float() if logits.dtype in _HALF else logits


def log_probabilities(logits: Tensor) -> Tensor:
    """Log p of every class, (B, C), in float32 at least, finite for any finite logits."""
    return wide(logits).log_softmax(dim=1)


def under_label(values: Tensor, labels: Tensor) -> Tensor:
    """Values of classes (B, C) at the label, (B,): that of a class id, or the mean under a label's probabilities."""
    if labels.dim() == 1:
        return values.gather(1, labels.unsqueeze(1)).squeeze(1)
    return (labels * values).sum(dim=1)
