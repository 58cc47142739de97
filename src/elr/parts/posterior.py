"""What a label says about the true class, when predictions tell how labels go wrong."""

from torch import Tensor


def noise_matrix(t: Tensor, y: Tensor, prior: float) -> Tensor:
    """T[c, j], how often class c is labelled j if rows are of class c with probability t, (C, C).

    Args:
        t: probabilities, (n, C).
        y: labels, (n,).
        prior: rows added to each class, spread evenly over labels.
    """
    num_classes = t.shape[1]
    counts = t.new_zeros(num_classes, num_classes).index_add_(0, y, t).T + prior / num_classes
    return counts / counts.sum(dim=1, keepdim=True).clamp_min(1e-30)


def posteriors(t: Tensor, y: Tensor, T: Tensor) -> Tensor:
    """Bayes' rule: q[i, c] proportional to t[i, c] T[c, y_i], (n, C); t itself where nothing is possible."""
    q = t * T.T[y]  # (n, C)
    total = q.sum(dim=1, keepdim=True)
    return (q / total.clamp_min(1e-30)).where(total > 0, t)
