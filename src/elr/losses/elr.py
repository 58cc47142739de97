"""Early-learning regularization (Liu et al. 2020): the penalty, its gradient, and the module for your own loop."""

import functools
import math
import warnings
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch import distributed as dist

from elr.losses.label import wide
from elr.parts.ranks import gathered, several
from elr.parts.table import ExampleTable, normalised

Reduction = Literal["mean", "sum", "none"]


def default_floor(num_classes: int) -> float:
    """Lower clamp of p on its way into the target: 1e-4 as in the authors' code up to C = 100, then 1e-2/C.

    A floor of 1e-4 for C = 1,000 caps every target at .909, and for C = 10,000 at .5.
    """
    return min(1e-4, 1e-2 / num_classes)


def elr_penalty(logits: Tensor, targets: Tensor, *, clamp: float = 0.0) -> Tensor:
    r"""Early-learning regularizer, one value per example.

    .. math:: r_i = \log(1 - \langle p_i, t_i \rangle), \qquad p_i = \mathrm{softmax}(z_i)

    Paper: Liu et al. 2020, Eq. (6); gradient in Lemma 2.
    Computed as logsumexp(log p + log1p(-t)), the same number because sum p = 1, finite for any logits.

    Args:
        logits: z, (B, C).
        targets: t, (B, C), rows sum to at most 1; no gradient flows into them.
        clamp: if positive, the authors' form: p clamped to [clamp, 1 - clamp], not renormalised, inside the logarithm.
            Its gradient vanishes once p leaves that range.

    Returns:
        (B,), each <= 0.
    """
    z, t = wide(logits), targets.detach()
    if clamp > 0.0:
        p = z.softmax(dim=1).clamp(clamp, 1.0 - clamp)
        return torch.log(1.0 - (p * t).sum(dim=1))
    return torch.logsumexp(z.log_softmax(dim=1) + torch.log1p(-t), dim=1)


def elr_gradient(logits: Tensor, labels: Tensor, targets: Tensor, lam: float) -> Tensor:
    r"""Gradient of cross entropy + lam * penalty with respect to the logits, in closed form.

    .. math:: (1 - \lambda)\, p + \lambda\, \mathrm{softmax}(z + \log(1 - t)) - y

    Paper: Lemma 2, Eq. (7)-(8), p - y + lam g, rewritten: g = softmax(z + log(1 - t)) - p.

    Args:
        logits: z, (B, C).
        labels: class ids (B,) or probabilities (B, C).
        targets: t, (B, C).
        lam: lambda.

    Returns:
        (B, C), one gradient per example (not divided by B).
    """
    z = wide(logits)
    y = labels if labels.dim() == 2 else nn.functional.one_hot(labels, z.shape[1]).to(z.dtype)
    p = z.softmax(dim=1)
    pulled = torch.softmax(z + torch.log1p(-targets), dim=1)
    return (y.sum(dim=1, keepdim=True) - lam) * p + lam * pulled - y


def elr_pull(p: Tensor, targets: Tensor, lam: float) -> Tensor:
    r"""What the penalty adds to the gradient at the logits, lam g, where the network says p.

    .. math:: g_c = \frac{p_c}{1 - \langle p, t \rangle} \sum_k (t_k - t_c) p_k

    Paper: Lemma 2, Eq. (8).

    Args:
        p: probabilities, (B, C).
        targets: t, (B, C).
        lam: lambda.

    Returns:
        (B, C).
    """
    agreement = (p * targets).sum(dim=1, keepdim=True)  # <p, t>
    rest = (p * (1.0 - targets)).sum(dim=1, keepdim=True).clamp_min(torch.finfo(p.dtype).tiny)  # 1 - <p, t>
    return lam * p * (agreement - targets * p.sum(dim=1, keepdim=True)) / rest


@functools.cache
def minus_one(dtype: torch.dtype, device: torch.device) -> Tensor:
    """A constant that would otherwise be made anew in every step."""
    return torch.full((), -1.0, dtype=dtype, device=device)


class _Loss(torch.autograd.Function):
    """Loss from one softmax; the forward pass writes its gradient, the backward pass scales it.

    Autograd through the textbook expression runs about twice as many kernels, and at C = 10 they are the whole cost.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, log_p: Tensor, p: Tensor, labels: Tensor, targets: Tensor, lam: float, mean: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        # 1 - <p, t> = sum p (1 - t): a sum of non-negative terms, so nothing cancels; it underflows only if t = 1.
        weighted = torch.rsub(targets, 1.0).mul_(p)  # (B, C)
        rest = weighted.sum(dim=1, keepdim=True).clamp_min_(torch.finfo(p.dtype).tiny)  # (B, 1)
        penalty = rest.log().squeeze(1)
        # PAPER Lemma 2, in the form of elr_gradient
        if labels.dim() == 1:
            column = labels.unsqueeze(1)  # (B, 1)
            ce = log_p.gather(1, column).squeeze(1).neg_()
            gradient = (p * (1.0 - lam)).addcdiv_(weighted, rest, value=lam)
            gradient.scatter_add_(1, column, minus_one(p.dtype, p.device).expand_as(column))
        else:
            ce = (labels * log_p).sum(dim=1).neg_()
            gradient = (p * (labels.sum(dim=1, keepdim=True) - lam)).addcdiv_(weighted, rest, value=lam).sub_(labels)
        loss = torch.add(ce, penalty, alpha=lam)
        if mean:  # here rather than by autograd, whose node for it costs more than all kernels of the backward pass
            loss, gradient = loss.mean(), gradient.div_(p.shape[0])
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(ce, penalty)
        return loss, ce, penalty

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True: the saved gradient has no graph, and would count as constant
            raise RuntimeError("elr_loss has no second derivative: use cross_entropy(...) + lam * elr_penalty(...)")
        (gradient,) = ctx.saved_tensors
        above = grads[0]
        return gradient * (above.unsqueeze(1) if above.dim() else above), None, None, None, None, None, None


class Parts(NamedTuple):
    """A loss and what it is made of, one value per example."""

    loss: Tensor  # (B,) ce + lam * penalty, or () their mean
    ce: Tensor  # (B,) detached
    penalty: Tensor  # (B,) detached


def elr_loss(
    logits: Tensor,
    labels: Tensor,
    targets: Tensor,
    lam: float,
    *,
    softmax: tuple[Tensor, Tensor] | None = None,
    clamp: float = 0.0,
    mean: bool = False,
) -> Parts:
    """Cross entropy + lam * penalty of each example, against given targets.

    Paper: Eq. (6). Equal to ``cross_entropy + lam * elr_penalty`` and faster: see ``_Loss``.

    Args:
        logits: z, (B, C).
        labels: class ids (B,) or probabilities (B, C).
        targets: t, (B, C); no gradient flows into them.
        lam: lambda.
        softmax: (log p, p) without a graph, if the caller has them already.
        clamp: see ``elr_penalty``.
        mean: give the mean of the loss rather than one value per example.
    """
    z = wide(logits)
    if clamp > 0.0 or lam == 0.0:  # with lam = 0 the very kernels of cross entropy: ELR is then CE bit for bit
        ce, penalty = cross_entropy(z, labels), elr_penalty(z, targets, clamp=clamp)
        loss = ce + lam * penalty
        return Parts(loss.mean() if mean else loss, ce.detach(), penalty.detach())
    log_p, p = softmax or log_and_p(z)
    return Parts(*_Loss.apply(z, log_p, p, labels, targets, lam, mean))


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of each example, (B,), with class ids (B,) or probabilities (B, C), in float32 at least."""
    z = wide(logits)
    return nn.functional.cross_entropy(z, labels, reduction="none")


def log_and_p(logits: Tensor) -> tuple[Tensor, Tensor]:
    """log p and p of logits, without a graph."""
    log_p = logits.detach().log_softmax(dim=1)
    return log_p, log_p.exp()


def floored(p: Tensor, floor: float) -> Tensor:
    """P clamped to [floor, 1 - floor] and renormalised: what enters the target.

    This saturation is part of the dynamics: without it targets reach 1 and the pull of the penalty never ends.
    """
    if floor <= 0.0:
        return p
    clamped = p.clamp(floor, 1.0 - floor)
    return clamped.div_(clamped.sum(dim=1, keepdim=True))


class Terms(NamedTuple):
    """Parts of the last loss, detached: log these rather than the loss, which may be negative."""

    ce: Tensor  # () mean cross entropy
    penalty: Tensor  # () mean of log(1 - <p, t>)
    agreement: Tensor  # () mean of <p, t>


def mean_terms(ce: Tensor, penalty: Tensor) -> Terms:
    """Means over a batch; <p, t> is read off the penalty, 1 - exp(penalty)."""
    return Terms(ce.mean(), penalty.mean(), torch.expm1(penalty).mean().neg_())


class ELRLoss(nn.Module):
    r"""Cross entropy plus the early-learning regularizer, with a target for each example.

    .. math:: \mathrm{CE}(p_i, y_i) + \lambda \log(1 - \langle p_i, t_i \rangle), \qquad
        t_i \leftarrow \beta t_i + (1 - \beta)\, p_i

    Paper: Algorithm 1. The target is updated first and the loss uses the new one. The loss may be negative; ``last``
    holds cross entropy, penalty and agreement.

    Targets travel in ``state_dict``; ``.eval()`` freezes them, and so does ``update=False`` for one call (a second
    forward pass of the same step: SAM, closures, gradient checkpointing).

    Args:
        num_examples: rows of the training set, ``len(dataset)``.
        num_classes: C.
        lam: strength lambda of the penalty.
        beta: memory of the running average of predictions, in [0, 1).
        floor: p is clamped to [floor, 1 - floor] and renormalised before it enters the target; None: ``default_floor``.
        clamp_penalty: also clamp p inside the penalty, as the authors' code does.
        reduction: "mean", "sum" or "none".
        ignore_index: if given, rows with this label add nothing to the loss and leave their target alone.
        group: for DistributedDataParallel, ``torch.distributed.group.WORLD``: the predictions of all its processes go
            into the targets of each, so that an example has one memory whichever process meets it. All must then call
            the loss equally often.
    """

    def __init__(
        self,
        num_examples: int,
        num_classes: int,
        lam: float = 3.0,
        beta: float = 0.7,
        *,
        floor: float | None = None,
        clamp_penalty: bool = False,
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        if num_examples < 1 or num_classes < 2:
            raise ValueError(f"need an example and two classes at least, got {num_examples} and {num_classes}")
        check_elr(lam, beta, floor, num_classes)
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction must be mean, sum or none, got {reduction!r}")
        self.num_classes = num_classes
        self.lam = lam
        self.beta = beta
        self.floor = default_floor(num_classes) if floor is None else floor
        self.clamp_penalty = clamp_penalty
        self.reduction = reduction
        self.ignore_index = ignore_index
        self.targets = ExampleTable(num_examples, num_classes)
        self.group = group
        if group is None and several():
            warnings.warn(
                "ELRLoss remembers what this process predicts and no other: give group=torch.distributed.group.WORLD, "
                "or give every process the same examples in all epochs",
                stacklevel=2,
            )
        self._last: tuple[Tensor, Tensor, Tensor | None] | None = None  # ce, penalty, ignored rows

    def forward(self, logits: Tensor, labels: Tensor, index: Tensor | None = None, *, update: bool = True) -> Tensor:
        """Loss of a batch: logits (B, C); labels (B,) ids or (B, C) probabilities; index (B,) training rows."""
        if index is None:
            raise TypeError("ELRLoss needs the dataset index of each example: wrap the data set in elr.WithIndex")
        self._check_shapes(logits, labels, index)
        index = index.long() if index.dtype == torch.int32 else index
        # From here on float32 whatever autocast does: 1 - 1e-4 is 1 in bfloat16 and the logarithm would be -inf.
        z = wide(logits)
        softmax = log_and_p(z)
        ignored = labels == self.ignore_index if self.ignore_index is not None and labels.dim() == 1 else None
        if self.training and update:
            t = self.observe(index, softmax[1], ignored)
        else:
            t = self.targets.rows(index)
        given = labels if ignored is None else labels.masked_fill(ignored, 0)
        clamp = self.floor if self.clamp_penalty else 0.0
        mean = self.reduction == "mean" and ignored is None
        loss, ce, penalty = elr_loss(z, given, t.to(z.dtype), self.lam, softmax=softmax, clamp=clamp, mean=mean)
        self._last = ce, penalty, ignored
        if ignored is not None:
            loss = loss.masked_fill(ignored, 0.0)
        if mean or self.reduction == "none":
            return loss
        return loss.sum() if ignored is None or self.reduction == "sum" else loss.sum() / (~ignored).sum()

    @property
    def last(self) -> Terms:
        """Mean cross entropy, penalty and agreement of the last batch: log these, the loss itself may be negative."""
        if self._last is None:
            raise RuntimeError("there is no last batch yet: call the loss first")
        ce, penalty, ignored = self._last
        return mean_terms(ce, penalty) if ignored is None else mean_terms(ce[~ignored], penalty[~ignored])

    def observe(self, index: Tensor, p: Tensor, ignored: Tensor | None = None) -> Tensor:
        """Average predictions p (B, C) into the targets of these rows and return the new targets."""
        p = floored(p.detach().float(), self.floor)
        if ignored is not None:
            p = p.masked_fill(ignored.unsqueeze(1), math.nan)  # a NaN row leaves its target alone
        if self.group is None:
            return self.targets.average_in(index, p, self.beta)  # PAPER Eq. 9
        everywhere, predictions, own = gathered(index, p, self.group)
        return self.targets.average_in(everywhere, predictions, self.beta)[own]

    def probabilities(self) -> Tensor:
        """Targets normalised to sum to 1, (n, C): the model's averaged belief; uniform for a row never visited."""
        return normalised(self.targets.values)

    def _check_shapes(self, logits: Tensor, labels: Tensor, index: Tensor) -> None:
        if logits.dim() != 2 or logits.shape[1] != self.num_classes:
            raise ValueError(f"logits must be (B, {self.num_classes}), got {tuple(logits.shape)}")
        if (labels.dim() != 1 or labels.is_floating_point()) and labels.shape[1:] != logits.shape[1:]:
            kind = f"{labels.dtype} {tuple(labels.shape)}"
            raise ValueError(f"labels must be (B,) class ids or (B, {self.num_classes}) probabilities, got {kind}")
        if not labels.shape[0] == index.shape[0] == logits.shape[0]:
            raise ValueError(f"lengths differ: {len(logits)} logits, {len(labels)} labels, {len(index)} indices")


def check_elr(lam: float, beta: float, floor: float | None, num_classes: int | None = None) -> None:
    """Refuse hyperparameters for which the algorithm is undefined."""
    if not 0.0 <= beta < 1.0:
        raise ValueError(f"beta must lie in [0, 1), got {beta!r}")
    if not 0.0 <= lam < math.inf:
        raise ValueError(f"lam must be a finite number of at least 0, got {lam!r}")
    if floor is not None and not 0.0 <= floor < 1.0 / (num_classes or 2):
        raise ValueError(f"floor must lie in [0, 1/C), got {floor!r}")
