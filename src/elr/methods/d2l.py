"""D2L: the dimensionality of the features tells when labels begin to be memorised, and how far to trust them then."""

import copy
import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from elr.data.stream import Batch, Stream, TrainData
from elr.losses import cross_entropy
from elr.losses.corrected import corrected_labels
from elr.methods.base import MakeNet, Method, Pass, Step, check_range, epochs_of
from elr.parts.clock import Clock
from elr.parts.dimension import local_dimension
from elr.parts.features import penultimate

BATCH = 128  # examples among which neighbours are looked for
SAMPLED = 10  # such batches in an epoch
AUTHORS_EXAMPLES = 50_000


class D2L(Method):
    """Cross entropy until the local dimensionality of the features rises; from then on labels give way to predictions.

    Dimensionality (LID) is measured at the start of each epoch. It falls while the network learns the pattern and rises
    when it begins to memorise. At that turning point the network goes back by an epoch, and then every epoch labels are
    alpha y + (1 - alpha) predicted class, with alpha = exp(-(epoch / epochs) LID / smallest LID), the same for all.

    Args:
        first: epochs before a turning point is looked for, a fraction of the run if at most 1.
        window: epochs that a rise is measured against: above their mean by twice their standard deviation.
        neighbours: k of the k nearest neighbours.
        rollback: go back by an epoch at the turning point, as the paper says.
    """

    reference = "Ma et al., ICML 2018, Eq. (2), (5), (6), Algorithm 1"
    equation = "CE(p, a y + (1-a) argmax p),   a = exp(-(i/T) LID_i / min_j LID_j) after the turning point, before 1"
    passes = "1 forward and backward; 1,280 forwards of single examples an epoch"
    per_example = "nothing (the last LIDs of an epoch in all)"
    published = "Table 4, WebVision top-1/top-5: 62.68/84.00, ILSVRC12: 57.80/81.36"
    authors: ClassVar[Mapping[str, Any]] = {
        "epochs": 120,
        "optim.lr": 0.1,
        "optim.momentum": 0.9,
        "optim.weight_decay": 1e-4,
        "optim.batch_size": 128,
        "schedule.name": "multistep",
        "schedule.milestones": (40, 80),
        "schedule.factor": 0.1,
    }

    recent: Tensor
    smallest: Tensor
    turning: Tensor
    alpha: Tensor

    def __init__(
        self, *, first: float = 40 / 120, window: int = 5, neighbours: int = 20, rollback: bool = True
    ) -> None:
        super().__init__()
        check_range("first", first, 0.0, float("inf"))
        check_range("window", window, 1, 10_000)
        check_range("neighbours", neighbours, 2, BATCH - 1)
        self.first = first
        self.window = window
        self.neighbours = neighbours
        # DEVIATES from authors' code: the network does go back, because the weights they load are the current ones.
        self.rollback = rollback

    @property
    def cost(self) -> float:
        """The forwards for the LID are one in forty of an epoch on CIFAR, but a whole sweep of 1,280 examples."""
        return 1.0 + BATCH * SAMPLED / AUTHORS_EXAMPLES / 3

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """One network, itself an epoch ago, and what is known of the LID."""
        super().build(make_net, num_examples, num_classes)
        self.num_classes = num_classes
        self.earlier = nn.ModuleList([copy.deepcopy(self.nets[0]).requires_grad_(False)] if self.rollback else [])
        self.register_buffer("recent", torch.zeros(self.window + 1))  # LIDs, the newest last
        self.register_buffer("smallest", torch.zeros(()))
        self.register_buffer("turning", torch.full((), -1))  # epoch of the turning point, -1 before
        self.register_buffer("alpha", torch.ones(()))

    def epoch(self, data: TrainData, clock: Clock) -> Iterator[Pass]:
        """Measure the LID and decide what labels are worth in this epoch; then one pass."""
        self._observe(self._dimension(data, clock), clock.epoch)
        if self.turning < 0:
            if self._rises(clock):
                self.turning.fill_(clock.epoch)
                if self.rollback:
                    self.nets.load_state_dict(self.earlier.state_dict())
            elif self.rollback:
                self.earlier.load_state_dict(self.nets.state_dict())
        if self.turning >= 0:
            self.alpha.fill_(trust(clock.epoch / clock.epochs, float(self.recent[-1]), float(self.smallest)))
        yield Pass(Stream(), self.step)

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Cross entropy with the labels as far as they are trusted, and the predicted classes for the rest."""
        # DEVIATES from authors' code: cross entropy before the turning point, as the paper says; theirs became SL.
        logits = self.nets[0](batch.x).float()
        labels = corrected_labels(batch.y, logits.argmax(dim=1), 1.0 - self.alpha, self.num_classes)
        loss = cross_entropy(logits, labels).mean()
        log = {"lid": self.recent[-1], "alpha": self.alpha}
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()), log=log)

    @torch.no_grad()
    def _dimension(self, data: TrainData, clock: Clock) -> float:
        """Mean LID of the features of some random batches, in evaluation mode without augmentation; NaN if none."""
        size = min(BATCH, len(data))
        rows = clock.rng("dimension").permutation(len(data))[: size * min(SAMPLED, len(data) // size)]
        stream = Stream(indices=torch.from_numpy(rows), batch_size=size, augment=False, shuffle=False)
        net = self.nets[0].eval()
        found = []
        with penultimate(net) as features:
            for batch in data.batches(stream, clock):
                net(batch.x)
                found.append(local_dimension(features[-1], self.neighbours))
        net.train()
        values = torch.cat(found)
        return float(values[values.isfinite()].mean())

    def _observe(self, lid: float, epoch: int) -> None:
        """Take in the LID of an epoch; one that is no number, or not positive, counts as the one before it."""
        if not 0.0 < lid < math.inf:
            lid = float(self.recent[-1]) or 1.0
        self.recent.copy_(torch.cat([self.recent[1:], self.recent.new_tensor([lid])]))
        self.smallest.fill_(lid if epoch == 0 else min(lid, float(self.smallest)))

    def _rises(self, clock: Clock) -> bool:
        """PAPER Section 4.2: the newest LID is above the mean of those before it by two standard deviations."""
        if clock.epoch < round(epochs_of(self.first, clock.epochs)) + self.window:
            return False
        before = self.recent[:-1]
        return bool(self.recent[-1] - before.mean() > 2.0 * before.std(correction=0))


def trust(progress: float, lid: float, smallest: float) -> float:
    """PAPER Eq. 6: what a label still counts after this part of the run, less the more dimensions have come back."""
    return math.exp(-progress * lid / smallest)
