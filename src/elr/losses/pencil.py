"""The three terms of PENCIL (Yi and Wu 2019) and the gradient that moves its labels."""

from torch import Tensor, nn

from elr.losses.label import wide


def reverse_divergence(logits: Tensor, label_logits: Tensor) -> Tensor:
    r"""KL divergence from the label distribution to the prediction, prediction first, one value per example.

    .. math:: \sum_c f_c \log \frac{f_c}{d_c}, \qquad f = \mathrm{softmax}(z),\; d = \mathrm{softmax}(\tilde y)

    A prediction that is sure of another class than the label has almost no gradient: in this order of the two, wrong
    labels are not memorised but wait to be moved.

    Args:
        logits: z, (B, C).
        label_logits: unnormalised logarithms of the label distribution, (B, C); no gradient flows into them.

    Returns:
        (B,), at least 0.
    """
    z = wide(logits)
    log_f, log_d = z.log_softmax(dim=1), label_logits.detach().to(z.dtype).log_softmax(dim=1)
    return (log_f.exp() * (log_f - log_d)).sum(dim=1)


def compatibility(label_logits: Tensor, labels: Tensor, *, double_softmax: bool = False) -> Tensor:
    """Cross entropy of the label distribution to the given label, one value per example.

    Args:
        label_logits: (B, C).
        labels: class ids (B,).
        double_softmax: the authors' code, which hands probabilities to a function that takes their softmax again.

    Returns:
        (B,).
    """
    z = label_logits.softmax(dim=1) if double_softmax else label_logits
    return nn.functional.cross_entropy(z, labels, reduction="none")


def label_gradient(
    logits: Tensor, label_logits: Tensor, labels: Tensor, alpha: float, *, double_softmax: bool = False
) -> Tensor:
    r"""Gradient of KL / C + alpha * compatibility with respect to the label logits, in closed form.

    .. math:: \frac1C (d - f) + \alpha (d - e_y)

    With two softmaxes the second bracket is J (softmax(d) - e_y), J = diag(d) - d d^T: nothing once d is a corner.

    Args:
        logits: z, (B, C); f is their softmax.
        label_logits: (B, C); d is their softmax.
        labels: class ids (B,).
        alpha: weight of the compatibility.
        double_softmax: as in ``compatibility``.

    Returns:
        (B, C), one gradient per example (not divided by B).
    """
    f = wide(logits).detach().softmax(dim=1)
    d = label_logits.detach().to(f.dtype).softmax(dim=1)
    given = nn.functional.one_hot(labels, f.shape[1]).to(f.dtype)
    if double_softmax:
        pull = d.softmax(dim=1) - given
        pull = d * (pull - (d * pull).sum(dim=1, keepdim=True))
    else:
        pull = d - given
    return (d - f) / f.shape[1] + alpha * pull
