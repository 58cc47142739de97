"""T-revision: estimate T, train with importance weights, then revise T together with the network."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from elr.data.stream import Batch, TrainData
from elr.losses import cross_entropy
from elr.losses.correction import forward_loss, reweighted_loss
from elr.methods.base import MakeNet, Method, Stage, Step, check_choice, check_range, epochs_of, shares, sweep
from elr.parts.anchors import anchor_matrix
from elr.parts.clock import Clock
from elr.parts.rate import constant_rate

Objective = Literal["reweight", "forward"]
FLOOR = 1e-6  # of an entry of the revised T: no label is impossible


class TRevision(Method):
    """Estimate T from anchors, train with losses weighted by p_y / (p T)_y, then learn a slack to T with the network.

    Anchors are rarely pure, so the first T is biased; the last stage lets the data move it.

    Args:
        objective: losses are reweighted (the paper's Reweight-R) or corrected forward (its Forward-R).
        estimate: epochs of cross entropy before T is estimated, a fraction of the run if at most 1.
        revision: epochs of the last stage, a fraction of the run if at most 1.
        revision_lr: learning rate of the last stage, in multiples of the run's.
        slack_lr: learning rate of the slack, in multiples of the last stage's.
        percentile: examples at or above this percentile of p_i cannot stand for class i; none: 97 up to ten classes,
            else 100, which leaves nothing out.
    """

    reference = "Xia et al., NeurIPS 2019, Algorithm 1"
    equation = "p_y / (p (T + dT))_y (-log p_y)"
    passes = "1 forward and backward; 1 sweep in the run"
    keeps = "selected"  # PAPER Algorithm 1: stop at the least error on noisy validation
    authors: ClassVar[Mapping[str, Any]] = {  # 20 epochs for T, 200 with it, 200 to revise it
        "epochs": 420,
        "method.estimate": 20,
        "method.revision": 200,
        "optim.lr": 0.01,
        "optim.momentum": 0.9,
        "optim.weight_decay": 1e-4,
        "optim.batch_size": 128,
        "schedule.name": "multistep",
        "schedule.milestones": (40, 80),
        "schedule.factor": 0.1,
    }

    transition: Tensor

    def __init__(
        self,
        *,
        objective: Objective = "reweight",
        estimate: float = 0.25,
        revision: float = 200 / 420,
        revision_lr: float = 0.01,
        slack_lr: float = 1.0,
        percentile: float | None = None,
    ) -> None:
        super().__init__()
        check_choice("objective", objective, get_args(Objective))
        check_range("estimate", estimate, 0.0, float("inf"))
        check_range("revision", revision, 0.0, float("inf"))
        check_range("revision_lr", revision_lr, 0.0, 1e3)
        check_range("slack_lr", slack_lr, 0.0, 1e6)
        if percentile is not None:
            check_range("percentile", percentile, 0.0, 100.0)
        self.objective = objective
        # DEVIATES from authors' code: a quarter of the run for the estimate, because their 20 of 420 epochs are hardly
        # one of a short run, and a network of one epoch has no anchors yet.
        self.estimate = estimate
        self.revision = revision
        # DEVIATES from authors' code: the run's optimizer at a small constant rate revises, because a run has one;
        # theirs is Adam at 5e-7, which moves an entry of T by .035 at most in their 200 epochs.
        # DEVIATES from authors' code: the estimate has the run's momentum, for the same reason; theirs has none.
        self.revision_lr = revision_lr
        self.slack_lr = slack_lr
        self.percentile = percentile

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """One network, T, and its slack."""
        super().build(make_net, num_examples, num_classes)
        self.register_buffer("transition", torch.eye(num_classes))
        self.slack = nn.Parameter(torch.zeros(num_classes, num_classes))

    def optim_scales(self) -> Mapping[str, tuple[float, float]]:
        """No weight decay, as for every matrix that is learned."""
        # DEVIATES from authors' code: the slack is not decayed (1e-4 there), because that pulls T back to its estimate.
        return {"slack": (self.slack_lr, 0.0)}

    def plan(self, epochs: int) -> list[Stage]:
        """Estimate, train with T, revise; the network is never started anew."""
        first, last = epochs_of(self.estimate, epochs), epochs_of(self.revision, epochs)
        before, middle, after = shares(epochs, first, max(epochs - first - last, 0.0), last)
        # DEVIATES from authors' code: noisy validation scores p in every stage, because that is what predicts; from the
        # second stage on they score the argmax of p T.
        return [
            Stage(before, keep="selected"),
            Stage(middle, keep="selected"),
            Stage(after, lr_scale=self.revision_lr, schedule=constant_rate),
        ]

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Cross entropy, then the loss with the estimated T, then with the revised one."""
        logits = self.nets[0](batch.x)
        matrix = self.transition if clock.stage < 2 else self.revised
        if clock.stage == 0:
            loss = cross_entropy(logits, batch.y).mean()
        elif self.objective == "forward":
            loss = forward_loss(logits, batch.y, matrix).mean()
        else:
            # In the authors' first code the weight is a constant in the second stage and not in the third; in their
            # second code it is constant in both, and then nothing ever moves the slack.
            loss = reweighted_loss(logits, batch.y, matrix, through_weight=clock.stage == 2).mean()
        log = {"diagonal": matrix.detach().diagonal().mean()}
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()), log=log)

    def finish(self, stage: int, data: TrainData) -> None:
        """After the first stage, read T off the predictions."""
        if stage == 0:
            p = sweep(self.predict, data)
            self.transition.copy_(anchor_matrix(p, self.percentile))

    @property
    def revised(self) -> Tensor:
        """T + slack, (C, C), with its graph."""
        # DEVIATES from authors' code: entries stay positive and rows sum to 1, because otherwise the loss falls without
        # end as all entries grow.
        positive = (self.transition + self.slack).clamp_min(FLOOR)
        return positive / positive.sum(dim=1, keepdim=True)
