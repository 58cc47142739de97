"""Labels that give way to what the network says, as far as they are thought to be wrong."""

import torch
from torch import Tensor, nn


def corrected_labels(labels: Tensor, guess: Tensor, wrong: Tensor, num_classes: int) -> Tensor:
    r"""The given label as far as it is right, the guess as far as it is wrong: a distribution for each example.

    .. math:: (1 - w_i)\, y_i + w_i\, z_i

    Cross entropy is linear in the label, so with these it is (1 - w) CE(y) + w CE(z): the bootstrapping loss of Reed et
    al. 2015 with a weight for each example (Arazo et al. 2019) or for each epoch (Ma et al. 2018).

    Args:
        labels: y, class ids (B,) or probabilities (B, C).
        guess: z, class ids (B,) or probabilities (B, C); no gradient flows into it.
        wrong: w, the probability that a label is wrong, (B,) or a single one.
        num_classes: C.

    Returns:
        (B, C), in the precision of the probabilities given, float32 for class ids.
    """
    y, z = label_rows(labels, num_classes), label_rows(guess.detach(), num_classes)
    dtype = torch.promote_types(y.dtype, z.dtype)
    weight = wrong.to(dtype) if wrong.dim() == 0 else wrong.to(dtype).unsqueeze(1)
    return torch.lerp(y.to(dtype), z.to(dtype), weight)


def label_rows(labels: Tensor, num_classes: int) -> Tensor:
    """Labels as probabilities (B, C), one for the class of a class id."""
    return labels if labels.dim() == 2 else nn.functional.one_hot(labels, num_classes).float()
