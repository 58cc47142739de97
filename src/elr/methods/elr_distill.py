"""ELR, then a new network that learns what ELR's targets and the given labels say together."""

from collections.abc import Iterator

from torch import Tensor

from elr.data.stream import Batch, Stream, TrainData
from elr.losses import cross_entropy
from elr.methods.base import MakeNet, Pass, Stage, Step, check_range, epochs_of, shares, sweep
from elr.methods.elr import ELR
from elr.parts.clock import Clock
from elr.parts.guess import sharpen
from elr.parts.posterior import noise_matrix, posteriors
from elr.parts.table import ExampleTable

VIEWS = 2  # weak ones, that a network's predictions are averaged over before posteriors are made of them
AGAIN = 0.6  # learning rate of later rounds beside the first: they begin with a network that knows something


class ELRDistill(ELR):
    """ELR, then a new network that learns posteriors of the true classes.

    ELR's targets give every class a probability and tell how labels go wrong; with Bayes' rule, a label then says what
    the true class may be. Asked for more rounds, the new network goes on with posteriors of its own predictions,
    averaged over two views of every example.

    Not of the paper: self-distillation, which adds to ELR the one thing its targets do not use, that a label which
    agrees with a doubtful prediction makes it likely, and one that does not makes it less so.

    Args:
        lam: strength of ELR's penalty.
        beta: memory of ELR's running average, in [0, 1).
        first: epochs of ELR, a fraction of the run if at most 1; the rest is for the new network.
        rounds: how often the new network gets posteriors, each for an equal part of its epochs, after the
            first at .6 of the learning rate (without ``fresh``, all of them).
        sharpen: power of the probabilities that posteriors are made of. Averages over training, and networks that were
            shown strong views, are vaguer than they are right: above 1 makes up for it.
        strong: show the new network strongly augmented images, so that it cannot learn mistakes in the posteriors by
            heart: a noisy student, Xie et al., CVPR 2020.
        fresh: begin with a new network after ELR. If not, ELR's own goes on: it keeps what little it has memorised, and
            saves the epochs that a new one needs to come this far.
        prior: rows of a class that count as mislabelled evenly before any is seen; keeps posteriors from 0 and 1.
        floor: as in ELR.
        clamp_penalty: as in ELR.
    """

    reference = "ours: Liu et al., NeurIPS 2020, Algorithm 1, then distillation of posteriors"
    equation = (
        "ELR;  s = t^sharpen / norm,  T_cj = sum_i s_ic [y_i = j] / sum_i s_ic,  q_ic = s_ic T_c,y_i / norm;  "
        "then CE(p, q), new network;  again with its p for t"
    )
    published = "not in the paper"
    per_example = "2 C floats (target and posterior)"

    def __init__(
        self,
        *,
        lam: float = 3.0,
        beta: float = 0.7,
        first: float = 0.5,
        rounds: int = 1,
        sharpen: float = 1.0,
        strong: bool = False,
        fresh: bool = True,
        prior: float = 1.0,
        floor: float | None = None,
        clamp_penalty: bool = False,
    ) -> None:
        super().__init__(lam=lam, beta=beta, floor=floor, clamp_penalty=clamp_penalty)
        check_range("first", first, 0.0, float("inf"))
        check_range("rounds", rounds, 1, 100)
        check_range("sharpen", sharpen, 0.01, 100.0)
        check_range("prior", prior, 0.0, 1e9)
        self.first = first
        self.rounds = rounds
        self.sharpen = sharpen
        self.strong = strong
        self.fresh = fresh
        self.prior = prior

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """ELR's network and targets, and a posterior for each example."""
        super().build(make_net, num_examples, num_classes)
        self.posterior = ExampleTable(num_examples, num_classes)

    def plan(self, epochs: int) -> list[Stage]:
        """ELR, then a network from the start or its own; every round has a learning-rate curve of its own."""
        first = epochs_of(self.first, epochs)
        before, *after = shares(epochs, first, *[max(epochs - first, 0.0) / self.rounds] * self.rounds)
        second = Stage(after[0], fresh=True) if self.fresh else Stage(after[0], AGAIN)
        return [Stage(before), second, *(Stage(length, AGAIN) for length in after[1:])]

    def epoch(self, data: TrainData, clock: Clock) -> Iterator[Pass]:
        """One pass; after the first stage on strong views, if asked for."""
        yield Pass(Stream(strong=self.strong and clock.stage > 0), self.step)

    def step(self, batch: Batch, clock: Clock) -> Step:
        """ELR's loss, or after the first stage cross entropy to the posteriors."""
        if clock.stage == 0:
            return super().step(batch, clock)
        logits = self.nets[0](batch.x)
        q = self.posterior.rows(batch.index)
        loss = cross_entropy(logits, q).mean()
        log = {"ce": loss.detach(), "relabelled": (q.argmax(dim=1) != batch.y).float().mean()}
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()), log=log)

    def finish(self, stage: int, data: TrainData) -> None:
        """Posteriors of all rows, for the next stage."""
        if stage < self.rounds:
            t = self.criterion.probabilities() if stage == 0 else sweep(self.nets[0], data, views=VIEWS).softmax(dim=1)
            s = sharpen(t, 1.0 / self.sharpen)
            self.posterior.values.copy_(posteriors(s, data.y, noise_matrix(s, data.y, self.prior)))

    def belief(self) -> Tensor:
        """The targets, and when they are known the posteriors."""
        known = self.posterior.values.sum(dim=1, keepdim=True) > 0
        return self.posterior.values.where(known, self.criterion.targets.values).unsqueeze(0)

    def pull(self, p: Tensor) -> None:
        """Not told: after the first stage there is no penalty."""
        return None
