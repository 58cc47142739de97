"""ELR, then a new network that learns what ELR's targets and the given labels say together."""

from collections.abc import Iterator

from torch import Tensor

from elr.data.stream import Batch, Stream, TrainData
from elr.losses import cross_entropy
from elr.methods.base import MakeNet, Pass, Stage, Step, check_range, epochs_of, shares
from elr.methods.elr import ELR
from elr.parts.clock import Clock
from elr.parts.posterior import noise_matrix, posteriors
from elr.parts.table import ExampleTable


class ELRDistill(ELR):
    """ELR first. Its targets give every class a probability and tell how labels go wrong; with Bayes' rule, a label
    then says what the true class may be. A new network learns these posteriors.

    Not of the paper: self-distillation, which adds to ELR the one thing its targets do not use, that a label which
    agrees with a doubtful prediction makes it likely, and one that does not makes it less so.

    Args:
        lam: strength of ELR's penalty.
        beta: memory of ELR's running average, in [0, 1).
        first: epochs of ELR, a fraction of the run if at most 1; the rest is for the new network.
        strong: show the new network strongly augmented images, so that it cannot learn the first one's mistakes by
            heart: a noisy student, Xie et al., CVPR 2020.
        prior: rows of a class that count as mislabelled evenly before any is seen; keeps posteriors from 0 and 1.
        floor: as in ELR.
        clamp_penalty: as in ELR.
    """

    reference = "ours: Liu et al., NeurIPS 2020, Algorithm 1, then distillation of posteriors"
    equation = (
        "ELR;  T_cj = sum_i t_ic [y_i = j] / sum_i t_ic,  q_ic = t_ic T_c,y_i / norm;  then CE(p, q), new network"
    )
    published = "not in the paper"
    per_example = "2 C floats (target and posterior)"

    def __init__(
        self,
        *,
        lam: float = 3.0,
        beta: float = 0.7,
        first: float = 0.5,
        strong: bool = False,
        prior: float = 1.0,
        floor: float | None = None,
        clamp_penalty: bool = False,
    ) -> None:
        super().__init__(lam=lam, beta=beta, floor=floor, clamp_penalty=clamp_penalty)
        check_range("first", first, 0.0, float("inf"))
        check_range("prior", prior, 0.0, 1e9)
        self.first = first
        self.strong = strong
        self.prior = prior

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """ELR's network and targets, and a posterior for each example."""
        super().build(make_net, num_examples, num_classes)
        self.posterior = ExampleTable(num_examples, num_classes)

    def plan(self, epochs: int) -> list[Stage]:
        """ELR, then a network from the start."""
        first = epochs_of(self.first, epochs)
        before, after = shares(epochs, first, max(epochs - first, 0.0))
        return [Stage(before), Stage(after, fresh=True)]

    def epoch(self, data: TrainData, clock: Clock) -> Iterator[Pass]:
        """One pass; of the second stage on strong views, if asked for."""
        yield Pass(Stream(strong=self.strong and clock.stage == 1), self.step)

    def step(self, batch: Batch, clock: Clock) -> Step:
        """ELR's loss, or in the second stage cross entropy to the posteriors."""
        if clock.stage == 0:
            return super().step(batch, clock)
        logits = self.nets[0](batch.x)
        q = self.posterior.rows(batch.index)
        loss = cross_entropy(logits, q).mean()
        log = {"ce": loss.detach(), "relabelled": (q.argmax(dim=1) != batch.y).float().mean()}
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()), log=log)

    def finish(self, stage: int, data: TrainData) -> None:
        """After ELR: posteriors of all rows."""
        if stage == 0:
            t = self.criterion.probabilities()
            self.posterior.values.copy_(posteriors(t, data.y, noise_matrix(t, data.y, self.prior)))

    def belief(self) -> Tensor:
        """The targets, and when they are known the posteriors."""
        known = self.posterior.values.sum(dim=1, keepdim=True) > 0
        return self.posterior.values.where(known, self.criterion.targets.values)

    def pull(self, p: Tensor) -> None:
        """Not told: in the second stage there is no penalty."""
        return None
