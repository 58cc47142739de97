"""Truncated generalized cross entropy: train, then give up the examples whose label is unlikely, in turn."""

from collections.abc import Iterator

import torch

from elr.data.stream import Batch, Stream, TrainData
from elr.losses import gce_loss, truncated_gce_loss
from elr.losses.gce import gce_threshold
from elr.methods.base import MakeNet, Method, Pass, Step, check_range, epochs_of, sweep
from elr.methods.gce import GCE, SMALLEST_Q
from elr.parts.clock import Clock
from elr.parts.table import ExampleTable

AUTHORS_EPOCHS = 120


class GCETruncated(Method):
    """Generalized cross entropy that every few epochs prunes the examples whose label has become unlikely.

    Args:
        q: as in gce.
        k: an example is pruned while the probability of its label is at most k; 0 prunes nothing.
        start: first pruning: a fraction of the run if at most 1, else epochs.
        every: time between prunings: a fraction of the run if at most 1, else epochs.
    """

    reference = "Zhang & Sabuncu, NeurIPS 2018, truncated L_q loss, Algorithm 1"
    equation = "L = v (L_q(p_y) - L_q(k)), v = 1[L_q(p_y) < L_q(k)] from time to time"
    passes = "1 forward and backward, and a forward where it prunes"
    per_example = "1 float (v: kept or pruned)"
    published = "not in the paper's tables (its GSE row is the plain loss, gce)"
    authors = GCE.authors

    def __init__(
        self,
        *,
        q: float = 0.7,
        k: float = 0.5,
        start: float = 40 / AUTHORS_EPOCHS,
        every: float = 10 / AUTHORS_EPOCHS,
    ) -> None:
        super().__init__()
        check_range("q", q, SMALLEST_Q, 1.0)
        check_range("k", k, 0.0, 1.0, open_high=True)
        check_range("start", start, 0.0, float("inf"))
        check_range("every", every, 0.0, float("inf"))
        self.q = q
        self.k = k
        self.start = start
        self.every = every

    @property
    def cost(self) -> float:
        """One forward more in each epoch that prunes, over the authors' 120 epochs."""
        prunings = sum(self.prunes(epoch, AUTHORS_EPOCHS) for epoch in range(AUTHORS_EPOCHS))
        return 1.0 + prunings / AUTHORS_EPOCHS / 3.0

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """One network, and every example kept."""
        super().build(make_net, num_examples, num_classes)
        self.kept = ExampleTable(num_examples, 1, fill=1.0)

    def prunes(self, epoch: int, epochs: int) -> bool:
        """Whether this epoch, counted from 0, begins with a pruning: never the first one, of a network unborn."""
        first = max(1, round(epochs_of(self.start, epochs)))
        period = max(1, round(epochs_of(self.every, epochs)))
        return self.k > 0.0 and epoch >= first and (epoch - first) % period == 0

    def epoch(self, data: TrainData, clock: Clock) -> Iterator[Pass]:
        """Prune if it is time to, then one pass over all data: a pruned example still counts in batch norm."""
        if self.prunes(clock.epoch, clock.epochs):
            self._prune(data)
        yield Pass(Stream(), self.step)

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Mean over the batch, to which pruned examples add zero."""
        logits = self.nets[0](batch.x)
        v = self.kept.rows(batch.index).squeeze(1)  # (B,)
        loss = truncated_gce_loss(logits, batch.y, v, self.q, self.k).mean()
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()), log={"kept": v.mean()})

    @torch.no_grad()
    def _prune(self, data: TrainData) -> None:
        # DEVIATES from paper: prunes with the network as it is, not with the best on validation so far, because methods
        # do not see validation data, and the plain loss before the first pruning memorises little.
        losses = gce_loss(sweep(self.nets[0], data), data.y, self.q)  # (n,)
        kept = losses < gce_threshold(self.q, self.k)
        # DEVIATES from paper: a pruning that would leave nothing is not done, because training would end with it.
        if kept.any():
            self.kept.values.copy_(kept.unsqueeze(1))
