"""ELR, then the same networks on what their targets and the given labels say together."""

from collections.abc import Iterator
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from elr.data.stream import Batch, Stream, TrainData
from elr.losses import ELRLoss, cross_entropy
from elr.losses.elr import check_elr
from elr.methods.base import MakeNet, Method, Pass, Step, check_choice, check_range, epochs_of
from elr.parts.clock import Clock
from elr.parts.posterior import noise_matrix, posteriors
from elr.parts.table import ExampleTable


class ELRPosterior(Method):
    """ELR first. Then cross entropy to posteriors: the targets, which go on being averaged, times how likely each class
    gets the given label. How labels go wrong is counted anew every epoch, from the classes the targets point at.

    Not of the paper. While targets are vague, ELR is what holds a network to the truth. Once they are sure, its pull is
    as strong for a hard example with a right label as for one with a wrong label; a posterior tells them apart.

    Args:
        lam: strength of ELR's penalty.
        beta: memory of the running average, in [0, 1).
        first: epochs of ELR, a fraction of the run if at most 1.
        prior: rows of a class that count as mislabelled evenly before any is seen; keeps posteriors from 0 and 1.
        networks: with 2, posteriors are made of the mean of their targets: each knows what the other has got wrong.
        floor: as in ELR.
        clamp_penalty: as in ELR.
    """

    reference = "ours: Liu et al., NeurIPS 2020, Algorithm 1, then posteriors"
    equation = "ELR;  then CE(p, q),  q_ic = t_ic T_c,y_i / norm,  T_cj = share of y = j where argmax t = c"
    published = "not in the paper"
    per_example = "C floats for each network (the target)"

    T: Tensor  # T[c, j], how often class c is labelled j, (C, C)

    def __init__(
        self,
        *,
        lam: float = 3.0,
        beta: float = 0.7,
        first: float = 0.6,
        prior: float = 1.0,
        networks: Literal[1, 2] = 1,
        floor: float | None = None,
        clamp_penalty: bool = False,
    ) -> None:
        super().__init__()
        check_elr(lam, beta, floor)
        check_range("first", first, 0.0, float("inf"))
        check_range("prior", prior, 0.0, 1e9)
        check_choice("networks", networks, (1, 2))
        self.lam = lam
        self.beta = beta
        self.first = first
        self.prior = prior
        self.networks = networks
        self.floor = floor
        self.clamp_penalty = clamp_penalty

    @property
    def cost(self) -> float:
        """Each network is trained as with cross entropy."""
        return float(self.networks)

    @property
    def backwards(self) -> float:
        """Each network sees every example."""
        return float(self.networks)

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """Networks, a table of targets for each, and the noise matrix."""
        self.nets = nn.ModuleList([make_net(k) for k in range(self.networks)])
        self.criteria = nn.ModuleList(
            ELRLoss(num_examples, num_classes, self.lam, self.beta, floor=self.floor, clamp_penalty=self.clamp_penalty)
            for _ in self.nets
        )
        self.register_buffer("T", torch.eye(num_classes))

    def epoch(self, data: TrainData, clock: Clock) -> Iterator[Pass]:
        """A pass for each network; after ELR's epochs the noise matrix is counted before them."""
        if not self._early(clock):
            believed = one_hot(self.belief().argmax(dim=1), data.num_classes).float()
            self.T.copy_(noise_matrix(believed, data.y, self.prior))
        for k in range(self.networks):
            yield Pass(Stream(), partial(self.step_of, k))

    def step_of(self, k: int, batch: Batch, clock: Clock) -> Step:
        """ELR's loss of network k, or later cross entropy to posteriors."""
        logits = self.nets[k](batch.x)
        criterion = self.criteria[k]
        assert isinstance(criterion, ELRLoss)
        seen = batch.index, logits.detach()
        if self._early(clock):
            loss = criterion(logits, batch.y, batch.index)
            return Step(loss, len(batch.y), seen, criterion.last._asdict())
        criterion.observe(batch.index, logits.detach().float().softmax(dim=1))
        t = torch.stack([table.rows(batch.index) for table in self._tables()]).mean(dim=0)
        q = posteriors(t / t.sum(dim=1, keepdim=True).clamp_min(1e-30), batch.y, self.T)
        loss = cross_entropy(logits, q).mean()
        log = {"ce": loss.detach(), "relabelled": (q.argmax(dim=1) != batch.y).float().mean()}
        return Step(loss, len(batch.y), seen, log)

    def belief(self) -> Tensor:
        """Mean of the targets of the networks."""
        return torch.stack([table.values for table in self._tables()]).mean(dim=0)

    def _tables(self) -> list[ExampleTable]:
        return [criterion.targets for criterion in self.criteria if isinstance(criterion, ELRLoss)]

    def _early(self, clock: Clock) -> bool:
        return clock.epoch < epochs_of(self.first, clock.epochs)
