"""Forward correction: cross entropy between the noisy label and what the transition matrix makes of p."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from elr.data.stream import Batch, TrainData
from elr.losses import cross_entropy
from elr.losses.correction import forward_loss
from elr.methods.base import MakeNet, Method, Stage, Step, check_range, epochs_of, shares, sweep
from elr.noise.transition import read_matrix
from elr.parts.anchors import anchor_matrix
from elr.parts.clock import Clock


class Forward(Method):
    """Forward correction: -log (p T)_y, where T says how labels are confused; without T it is estimated first.

    To estimate T, cross entropy is trained to the epoch chosen on noisy validation, and row i of T is its prediction
    for an example that surely belongs to class i. Then a fresh network is trained with the corrected loss.

    Args:
        matrix: file with T, T[i, j] = P(label j | class i), rows sum to 1: .npy, .csv or .json; none: estimate it.
        estimate: epochs of cross entropy before T is estimated, a fraction of the run if at most 1.
        percentile: examples at or above this percentile of p_i cannot stand for class i; none: 97 up to ten classes,
            else 100, which leaves nothing out.
    """

    reference = "Patrini et al., CVPR 2017, Theorem 2, Algorithm 1"
    equation = "-log sum_i p_i T_iy"
    passes = "1 forward and backward; 1 sweep in the run"
    keeps = "selected"  # as in the authors' code
    published = (
        "Table 1, CIFAR-10, estimated T: symmetric 20/40/60/80 % 87.99 83.25 74.96 54.64, asymmetric 10/20/30/40 % "
        "90.52 89.09 86.79 83.55; Table 3, Clothing1M: 69.84"
    )
    authors: ClassVar[Mapping[str, Any]] = {  # 120 epochs for T, 120 with it
        "epochs": 240,
        "optim.lr": 0.1,
        "optim.momentum": 0.9,
        "optim.weight_decay": 1e-4,
        "optim.batch_size": 128,
        "schedule.name": "multistep",
        "schedule.milestones": (41, 81),  # their "epoch > 40" counts from 0
        "schedule.factor": 0.1,
    }

    transition: Tensor

    def __init__(self, *, matrix: str | None = None, estimate: float = 0.5, percentile: float | None = None) -> None:
        super().__init__()
        check_range("estimate", estimate, 0.0, float("inf"))
        if percentile is not None:
            check_range("percentile", percentile, 0.0, 100.0)
        if matrix is not None:
            read_matrix(matrix)  # refuses a file that is no transition matrix before any data are read
        self.matrix = matrix
        self.estimate = estimate
        self.percentile = percentile

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """One network, and T: the identity until it is known."""
        super().build(make_net, num_examples, num_classes)
        self.register_buffer("transition", torch.eye(num_classes))
        if self.matrix is not None:
            table = torch.from_numpy(read_matrix(self.matrix))
            if len(table) != num_classes:
                raise ValueError(f"{self.matrix} is for {len(table)} classes, the data have {num_classes}")
            self._use(table.float())

    def plan(self, epochs: int) -> list[Stage]:
        """Estimate T, then train anew; the second only if T is given."""
        if self.matrix is not None:
            return [Stage(epochs)]
        first = epochs_of(self.estimate, epochs)
        before, after = shares(epochs, first, max(epochs - first, 0.0))
        # DEVIATES from authors' code: the network for T is chosen by smoothed accuracy on noisy validation, because the
        # engine chooses so for every method; theirs by the loss.
        return [Stage(before, keep="selected"), Stage(after, fresh=True)]

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Cross entropy while T is not known, the corrected loss after."""
        logits = self.nets[0](batch.x)
        unknown = self.matrix is None and clock.stage == 0
        loss = (cross_entropy(logits, batch.y) if unknown else self._corrected(logits, batch.y)).mean()
        log = {"diagonal": self.transition.diagonal().mean()}
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()), log=log)

    def finish(self, stage: int, data: TrainData) -> None:
        """After the first stage, read T off the predictions."""
        if stage == 0 and self.matrix is None:
            # DEVIATES from authors' code: anchors come from the training part only, because methods never see
            # validation data.
            p = sweep(self.predict, data)
            self._use(anchor_matrix(p, self.percentile))

    def _use(self, matrix: Tensor) -> None:
        self.transition.copy_(matrix)

    def _corrected(self, logits: Tensor, labels: Tensor) -> Tensor:
        return forward_loss(logits, labels, self.transition)
