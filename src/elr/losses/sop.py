"""Sparse over-parameterization (Liu et al. 2022): a wrong label is explained by variables of its own example."""

from typing import NamedTuple

from torch import Tensor, nn

from elr.losses.label import wide

# DEVIATES from authors' code: 1e-4 there, because an example below the floor has no gradient: classes that a network
# learns late may then never be learned (2 of the 10 digits at a learning rate of .05). ``floor`` restores it.
FLOOR = 1e-8


class SOPParts(NamedTuple):
    """A loss, what it is made of, and the prediction that the label is compared with."""

    loss: Tensor  # (B,) ce + mse
    ce: Tensor  # (B,) detached
    mse: Tensor  # (B,) detached
    prediction: Tensor  # (B, C) of network and noise together


def sop_loss(logits: Tensor, labels: Tensor, u: Tensor, v: Tensor, *, floor: float = FLOOR) -> SOPParts:
    r"""Cross entropy of network plus noise, and the squared error that makes the noise explain what is left.

    .. math:: -\sum_c y_c \log \phi(p + u^2 y - v^2 (1 - y))_c
        + \| e_{\arg\max z} + u^2 y - v^2 (1 - y) - y \|^2

    Liu et al. 2022, Algorithm 1, in the form of the authors' current code. phi raises to ``floor`` what is below it and
    normalises to sum 1: an example whose label network and noise find less likely than that has no gradient.

    Args:
        logits: z, (B, C).
        labels: class ids (B,) or probabilities (B, C).
        u: (B, 1), in [-1, 1]: what the given class owes to noise. Learns from both terms.
        v: (B, C), in [-1, 1]: what noise has taken from the other classes. Learns from the squared error.
        floor: least probability of a class. At the 1e-4 of the authors' code whole classes may fall silent for good.
    """
    z = wide(logits)
    y = labels if labels.dim() == 2 else nn.functional.one_hot(labels, z.shape[1]).to(z.dtype)
    gained, lost = u.square() * y, v.square() * (1.0 - y)  # (B, C)
    prediction = (z.softmax(dim=1) + gained - lost.detach()).clamp_min(floor)
    prediction = (prediction / prediction.sum(dim=1, keepdim=True)).clamp_min(floor)
    ce = -(y * prediction.log()).sum(dim=1)
    winner = nn.functional.one_hot(z.argmax(dim=1), z.shape[1]).to(z.dtype)
    # DEVIATES from paper: u learns from the squared error too, because the authors' code, from which the learning
    # rates come, was changed to that after publication.
    mse = (winner + gained - lost - y).square().sum(dim=1)
    return SOPParts(ce + mse, ce.detach(), mse.detach(), prediction)


def class_balance(prediction: Tensor, *, floor: float = FLOOR) -> Tensor:
    r"""How far the classes that a batch is given are from equally frequent: one value for the batch, 0 at best.

    .. math:: \mathrm{KL}(1/C \,\|\, \bar p), \qquad \bar p = \frac{1}{B} \sum_i p_i

    Liu et al. 2022, the second regularizer of SOP+. The authors' code adds the constant log C.

    Args:
        prediction: p, (B, C) probabilities, with their graph.
        floor: a class that nobody predicts counts as this frequent.
    """
    mean = prediction.mean(dim=0).clamp_min(floor)
    return -(mean * mean.numel()).log().mean()
