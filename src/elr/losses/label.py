"""What most losses begin and end with: log p of the logits, and a value for each class read at the label."""

import torch
from torch import Tensor


def log_probabilities(logits: Tensor) -> Tensor:
    """Log p of every class, (B, C), float32 at least whatever autocast does, finite for any finite logits."""
    z = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    return z.log_softmax(dim=1)


def under_label(values: Tensor, labels: Tensor) -> Tensor:
    """Values of classes (B, C) at the label, (B,): that of a class id, or the mean under a label's probabilities."""
    if labels.dim() == 1:
        return values.gather(1, labels.unsqueeze(1)).squeeze(1)
    return (labels * values).sum(dim=1)
