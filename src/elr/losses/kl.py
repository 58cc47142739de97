"""Cross entropy to per-example targets, which the paper studies as KL regularization (Section C)."""

from torch import Tensor

from elr.losses.label import log_probabilities


def target_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    r"""Cross entropy between targets and predictions, one value per example.

    .. math:: -\sum_c t_c \log p_c

    Paper: Liu et al. 2020, Eq. (17). It differs from the KL divergence by the entropy of t, which is constant.
    The printed gradient (18), p - t, needs sum t = 1; with targets that start at zero it is (sum t) p - t.

    Args:
        logits: z, (B, C).
        targets: t, (B, C); no gradient flows into them.

    Returns:
        (B,).
    """
    return -(targets.detach() * log_probabilities(logits)).sum(dim=1)
