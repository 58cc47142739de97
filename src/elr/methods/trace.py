"""Tanno's estimator of annotator confusion: learn T with the network, and of all T that fit take the least sure one."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from elr.data.stream import Batch
from elr.losses import cross_entropy
from elr.losses.correction import forward_loss
from elr.methods.base import MakeNet, Method, Step, check_range, epochs_of
from elr.parts.clock import Clock


class Trace(Method):
    """Learn a confusion matrix T with the network, and press its trace down: -log (p T)_y + lam tr(T).

    Many pairs of T and p explain the labels equally well; among them, the one whose T is least like the identity has
    the purest p. This is the authors' method with a single annotator; predictions are p.

    Args:
        lam: weight of the trace; 0.01 by the authors. More drives more of the noise from p into T: on ten digits with
            40 % noise T is near the true one at 0.06, until the network memorises.
        warmup: epochs of plain cross entropy before T is used, a fraction of the run if at most 1.
        matrix_lr: learning rate of T, in multiples of the network's.
    """

    reference = "Tanno et al., CVPR 2019, Eq. (4), with one annotator"
    equation = "-log sum_i p_i T_iy + lam tr(T),   T = softplus(w) / row sums"

    def __init__(self, *, lam: float = 0.01, warmup: float = 0.1, matrix_lr: float = 20.0) -> None:
        super().__init__()
        check_range("lam", lam, 0.0, 1e6)
        check_range("warmup", warmup, 0.0, float("inf"))
        check_range("matrix_lr", matrix_lr, 0.0, 1e6)
        self.lam = lam
        # DEVIATES from paper: cross entropy comes first, because behind a T that allows for errors a class whose p has
        # sunk too low by chance is taken for noise and never comes back: of ten digits two were never predicted again.
        self.warmup = warmup
        # DEVIATES from authors' code: T learns faster than the network, because by SGD softplus hardly leaves its start
        # at -5, where its slope is .007; their Adam does not feel the slope.
        self.matrix_lr = matrix_lr

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """One network, and T near the identity."""
        super().build(make_net, num_examples, num_classes)
        self.weight = nn.Parameter(6.0 * torch.eye(num_classes) - 5.0)  # w, (C, C)

    def optim_scales(self) -> Mapping[str, tuple[float, float]]:
        """No weight decay: T is no weight, and zero is not its neutral value."""
        return {"weight": (self.matrix_lr, 0.0)}

    @property
    def transition(self) -> Tensor:
        """T, (C, C), with its graph."""
        positive = softplus(self.weight)
        return positive / positive.sum(dim=1, keepdim=True)

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Cross entropy at first, then the loss of the batch behind T plus the trace."""
        logits = self.nets[0](batch.x)
        matrix = self.transition
        trace = matrix.trace()
        if clock.epoch < round(epochs_of(self.warmup, clock.epochs)):
            loss = cross_entropy(logits, batch.y).mean()
        else:
            loss = forward_loss(logits, batch.y, matrix).mean() + self.lam * trace
        log = {"diagonal": trace.detach() / len(matrix)}
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()), log=log)
