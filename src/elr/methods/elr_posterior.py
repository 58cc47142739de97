"""ELR, then the same network on what its targets and the given labels say together."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from elr.data.stream import Batch, TrainData
from elr.losses import cross_entropy
from elr.methods.base import MakeNet, Pass, Step, check_range, epochs_of
from elr.methods.elr import ELR
from elr.parts.clock import Clock
from elr.parts.posterior import noise_matrix, posteriors


class ELRPosterior(ELR):
    """ELR first. Then cross entropy to posteriors: the targets, which go on being averaged, times how likely each class
    gets the given label. How labels go wrong is counted anew every epoch, from the classes the targets point at.

    Not of the paper. While targets are vague, ELR is what holds a network to the truth. Once they are sure, its pull is
    as strong for a hard example with a right label as for one with a wrong label; a posterior tells them apart. But it
    leaves a wrong label a few per cent, and a wide network learns those, epoch after epoch: docs/marks.md.

    Args:
        lam: strength of ELR's penalty.
        beta: memory of the running average, in [0, 1).
        first: epochs of ELR, a fraction of the run if at most 1.
        prior: rows of a class that count as mislabelled evenly before any is seen; keeps posteriors from 0 and 1.
        floor: as in ELR.
        clamp_penalty: as in ELR.
    """

    reference = "ours: Liu et al., NeurIPS 2020, Algorithm 1, then posteriors"
    equation = "ELR;  then CE(p, q),  q_ic = t_ic T_c,y_i / norm,  T_cj = share of y = j where argmax t = c"
    published = "not in the paper"

    T: Tensor  # T[c, j], how often class c is labelled j, (C, C)

    def __init__(
        self,
        *,
        lam: float = 3.0,
        beta: float = 0.7,
        first: float = 0.6,
        prior: float = 1.0,
        floor: float | None = None,
        clamp_penalty: bool = False,
    ) -> None:
        super().__init__(lam=lam, beta=beta, floor=floor, clamp_penalty=clamp_penalty)
        check_range("first", first, 0.0, float("inf"))
        check_range("prior", prior, 0.0, 1e9)
        self.first = first
        self.prior = prior

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """ELR's network and targets, and the noise matrix."""
        super().build(make_net, num_examples, num_classes)
        self.register_buffer("T", torch.eye(num_classes))

    def epoch(self, data: TrainData, clock: Clock) -> Iterator[Pass]:
        """One pass; after ELR's epochs the noise matrix is counted before it."""
        if not self._early(clock):
            believed = one_hot(self.criterion.targets.values.argmax(dim=1), data.num_classes).float()
            self.T.copy_(noise_matrix(believed, data.y, self.prior))
        yield from super().epoch(data, clock)

    def step(self, batch: Batch, clock: Clock) -> Step:
        """ELR's loss, or later cross entropy to posteriors."""
        if self._early(clock):
            return super().step(batch, clock)
        logits = self.nets[0](batch.x)
        t = self.criterion.observe(batch.index, logits.detach().float().softmax(dim=1))
        q = posteriors(t / t.sum(dim=1, keepdim=True).clamp_min(1e-30), batch.y, self.T)
        loss = cross_entropy(logits, q).mean()
        log = {"ce": loss.detach(), "relabelled": (q.argmax(dim=1) != batch.y).float().mean()}
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()), log=log)

    def pull(self, p: Tensor) -> None:
        """Not told: there is no penalty in the end."""
        return None

    def _early(self, clock: Clock) -> bool:
        return clock.epoch < epochs_of(self.first, clock.epochs)
