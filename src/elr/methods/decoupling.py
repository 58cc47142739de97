"""Decoupling: two networks learn only where they disagree."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from elr.data.stream import Batch
from elr.losses import cross_entropy
from elr.methods.base import MakeNet, Method, Step, check_range, epochs_of
from elr.parts.clock import Clock
from elr.parts.select import disagreement, log_mean_p, logits_of, look, mean_over


class Decoupling(Method):
    """Two networks updated by cross entropy on the examples they give different classes, and on no others.

    Where they disagree decides when to learn, the given label how. Nothing asks whether that label is right: wrong
    labels keep two networks in disagreement, so under heavy noise most of what is learned is wrong.

    Args:
        warmup: epochs of learning from all examples; a fraction of the run if at most 1. The authors' default is none.
        least: the sum of the selected losses is divided by this fraction of the batch at least, so that a few
            examples do not make a whole step.
        forward_kept_only: learn from a second pass over the examples of disagreement alone, so batch norm sees no
            others; cheaper when they are few, and not what the authors do.
    """

    reference = "Malach and Shalev-Shwartz, NIPS 2017, Algorithm 1"
    equation = "L = sum over D of (CE_1 + CE_2) / max(|D|, B/10),  D = {i: argmax p_1 != argmax p_2}"
    passes = "2 forwards and backwards (one a network)"
    authors: ClassVar[Mapping[str, Any]] = {}  # their experiment is on faces; CIFAR numbers are other people's
    batch_coupled = True  # the divisor

    def __init__(self, *, warmup: float = 0.0, least: float = 0.1, forward_kept_only: bool = False) -> None:
        super().__init__()
        check_range("warmup", warmup, 0.0, float("inf"), open_high=True)
        check_range("least", least, 0.0, 1.0)
        self.warmup = warmup
        self.least = least
        self.forward_kept_only = forward_kept_only

    @property
    def cost(self) -> float:
        """Two networks, and two forward passes more if those of kept examples are separate (at most: few disagree)."""
        return 2.0 + (2.0 / 3.0 if self.forward_kept_only else 0.0)

    @property
    def backwards(self) -> float:
        """One a network."""
        return 2.0

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """Two networks that start differently."""
        self.nets = nn.ModuleList([make_net(0), make_net(1)])

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Sum of both networks' losses over the examples of disagreement."""
        size = len(batch.y)
        logits = look(self.nets, batch.x, learn=not self.forward_kept_only)  # (B, C) each
        if clock.epoch < epochs_of(self.warmup, clock.epochs):
            rows = torch.arange(size, device=batch.y.device)
        else:
            rows = disagreement(logits)  # (D,)
        if self.forward_kept_only:
            kept = [logits_of(net, batch.x, rows) for net in self.nets]
        else:
            kept = [z[rows] for z in logits]
        first, second = (mean_over(cross_entropy(z, batch.y[rows]), max(1.0, self.least * size)) for z in kept)
        return Step(first + second, size, seen=(batch.index, log_mean_p(logits)), log={"kept": len(rows) / size})
