"""INCV: rounds of cross-validation find labels that others predict; co-teaching learns from those."""

import copy
import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from elr.data.stream import Batch, Stream, TrainData
from elr.losses import cross_entropy
from elr.methods.base import (
    MakeNet,
    Method,
    Pass,
    Stage,
    Step,
    check_choice,
    check_range,
    epochs_of,
    shares,
    sweep,
)
from elr.parts.clock import Clock
from elr.parts.ramp import rise
from elr.parts.select import USUAL_RATE, NoiseRate, log_mean_p, smallest
from elr.parts.table import ExampleTable

Pattern = Literal["symmetric", "asymmetric"]

CANDIDATE, SELECTED, REMOVED = 0, 1, 2
MOST_REMOVED = 2.0  # times the number selected


class INCV(Method):
    """Iterative noisy cross-validation: keep the labels that a network trained on the other half predicts.

    Each of several rounds starts from the same initial weights. Candidates are cut into halves; one network learns from
    the selected examples and the first half, another from the selected and the second. A candidate whose label is
    predicted by the network that has not seen it is selected; those with the largest loss are removed. The first round
    tells the noise rate. A last stage trains two new networks by co-teaching on the selected examples, later with some
    of the remaining candidates in each batch.

    Args:
        pattern: what is assumed of the noise: the flips are symmetric, or each class flips to one other mostly.
            Asymmetric: nothing is removed, and the warm-up is longer.
        rounds: of cross-validation.
        round_length: epochs of a round: a fraction of the run if at most 1. What rounds leave is the last stage.
        rate: fraction of wrong labels; none estimates it from the agreement in the first round.
        warmup: epochs of the last stage on selected examples only: a fraction of that stage if at most 1. None: .2, or
            .4 if the noise is asymmetric or above 60 %, as the authors do.
        ramp_length: epochs of the last stage in which co-teaching comes to drop as many as are expected to be wrong: a
            fraction of that stage if at most 1.
    """

    reference = "Chen et al., ICML 2019, Algorithms 1-3"
    equation = "select argmax p = y on the held-out half; (1-e)^2 + e^2/(C-1) = agreement; then co-teaching"
    passes = "rounds: 1 to 2 forwards and backwards, 1 sweep of the held-out half; last stage: 2, and 2 forwards"
    published = (
        "Table 4 (Iterative-CV, cited there as Wang et al. 2018), top-1 / top-5: mini WebVision 65.24 / 85.34, "
        "ILSVRC12 61.60 / 84.98"
    )
    # DEVIATES from authors' code: the rate is not halved at epoch 180, because a schedule has one factor.
    authors: ClassVar[Mapping[str, Any]] = {  # 4 rounds of 50 epochs and 200; milestones are those of the last stage
        "epochs": 400,
        "optim.name": "adam",
        "optim.lr": 1e-3,
        "optim.weight_decay": 1e-4,
        "optim.batch_size": 128,
        "schedule.name": "multistep",
        "schedule.milestones": (80, 120, 160),
        "schedule.factor": 0.1,
    }
    per_example = "4 small numbers (candidate, selected or removed; its half; agreement and loss when held out)"
    batch_coupled = True  # the smallest losses of a batch

    best: Tensor

    def __init__(
        self,
        *,
        pattern: Pattern = "symmetric",
        rounds: int = 4,
        round_length: float = 50 / 400,
        rate: float | None = None,
        warmup: float | None = None,
        ramp_length: float = 10 / 200,
    ) -> None:
        super().__init__()
        check_choice("pattern", pattern, get_args(Pattern))
        check_range("rounds", rounds, 1, 100)
        check_range("round_length", round_length, 0.0, float("inf"))
        check_range("ramp_length", ramp_length, 0.0, float("inf"))
        if rate is not None:
            check_range("rate", rate, 0.0, 1.0, open_high=True)
        if warmup is not None:
            check_range("warmup", warmup, 0.0, float("inf"))
        self.pattern = pattern
        self.rounds = rounds
        self.round_length = round_length
        self.rate = rate
        self.warmup = warmup
        self.ramp_length = ramp_length

    @property
    def cost(self) -> float:
        """Mean over the run, if right labels are selected in the first round."""
        right = 1.0 - (USUAL_RATE if self.rate is None else self.rate)
        selected = right * (self.rounds - 1) / self.rounds
        in_round = 2.0 * selected + (1.0 - selected) * 4.0 / 3.0
        last = right * 2.0 * 4.0 / 3.0
        return self._over_stages(in_round, last)

    @property
    def backwards(self) -> float:
        """Selected examples count twice, candidates once; in the last stage selected ones twice."""
        right = 1.0 - (USUAL_RATE if self.rate is None else self.rate)
        selected = right * (self.rounds - 1) / self.rounds
        return self._over_stages(1.0 + selected, 2.0 * right)

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """Two networks, the weights that every round starts from, and what is known of each example."""
        self.nets = nn.ModuleList([make_net(k) for k in range(2)])
        self.initial = copy.deepcopy(self.nets[0]).requires_grad_(False)
        self.num_classes = num_classes
        self.status = ExampleTable(num_examples, 1, fill=CANDIDATE, dtype=torch.int8)
        self.side = ExampleTable(num_examples, 1, dtype=torch.int8)  # which network learns from a candidate
        self.held_out = ExampleTable(num_examples, 2)  # label predicted (0 or 1) and loss, by the other network
        self.register_buffer("best", torch.zeros(2))  # agreement of each network on held-out rows
        self.noise_rate = NoiseRate(self.rate)

    def plan(self, epochs: int) -> list[Stage]:
        """The rounds, each with the authors' learning-rate curve, and co-teaching for the rest with the run's."""
        each = max(epochs_of(self.round_length, epochs), 1e-6)
        lengths = shares(epochs, *[each] * self.rounds, max(epochs - self.rounds * each, each))
        rounds = [Stage(length, schedule=round_rate, fresh=s > 0) for s, length in enumerate(lengths[:-1])]
        return [*rounds, Stage(lengths[-1], fresh=True)]

    def epoch(self, data: TrainData, clock: Clock) -> Iterator[Pass]:
        """In a round, both halves with a network each; in the last stage, one pass over the selected examples."""
        if clock.stage >= self.rounds:
            yield Pass(self._selected_stream(data, clock), self.step)
            return
        if clock.epoch == 0:
            self._start_round(clock)
        elif self._chooses_epoch(clock.stage):
            self._predict_held_out(data)
        for k in range(2):
            yield Pass(Stream(self._learned_by(k)), partial(self.cross_validate, k))

    def cross_validate(self, k: int, batch: Batch, clock: Clock) -> Step:
        """Cross entropy of network k on what it may see."""
        logits = self.nets[k](batch.x)
        loss = cross_entropy(logits, batch.y).mean()
        return Step(loss, len(batch.y), (batch.index, logits.detach()), {"ce": loss.detach(), **self._known(clock)})

    def finish(self, stage: int, data: TrainData) -> None:
        """Select, estimate, remove."""
        if stage >= self.rounds:
            return
        if not self._chooses_epoch(stage):
            self.best.fill_(-1.0)
        self._predict_held_out(data)
        agrees, losses = self.held_out.values.T  # (n,)
        candidates = self._rows(CANDIDATE)
        if stage == 0 and self.rate is None and len(candidates):
            # DEVIATES from authors' code: agreement on both halves, where they take the first, because it varies less.
            agreement = float(agrees[candidates].cpu().double().mean())
            self.noise_rate.value.fill_(noise_from_agreement(agreement, self._alternatives))
        for k in range(2):
            rows = candidates[self.side.values[candidates, 0] != k]
            chosen = rows[agrees[rows] > 0]
            if self.pattern == "symmetric":
                # DEVIATES from authors' code: a count of 0 removes nothing, because their slice [-0:] removes all.
                count = min(int(self._removal * len(chosen)), len(rows))
                self.status.values[rows[smallest(-losses[rows], count)]] = REMOVED
            self.status.values[chosen] = SELECTED

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Co-teaching: each network learns from the rows of the batch that have the smallest loss under the other."""
        index, x, y = batch.index, batch.x, batch.y
        if batch.beside is not None:
            index, x, y = (
                torch.cat([index, batch.beside.index]),
                torch.cat([x, batch.beside.x]),
                torch.cat([y, batch.beside.y]),
            )
        logits = [self._evaluate(net, x) for net in self.nets]
        rate = float(self.noise_rate)
        dropped = noise_of_selected(rate, self._alternatives)
        dropped *= rise(clock.epoch, epochs_of(self.ramp_length, clock.epochs))
        # The count is that of selected rows: candidates compete with them for the same places.
        count = min(max(2, round(len(batch.y) * (1.0 - dropped))), len(y))
        picks = [smallest(cross_entropy(z, y), count) for z in reversed(logits)]  # for network 0 by network 1
        # Networks learn from a second pass over the picks alone, as the authors do: batch norm sees no other rows.
        losses = [cross_entropy(net(x[pick]), y[pick]).mean() for net, pick in zip(self.nets, picks, strict=True)]
        log = {"ce": (losses[0] + losses[1]).detach() / 2, "kept": count / len(y), **self._known(clock)}
        return Step(losses[0] + losses[1], len(batch.y), (index, log_mean_p(logits)), log)

    def _over_stages(self, in_round: float, last: float) -> float:
        share = min(1.0, self.rounds * self.round_length) if self.round_length <= 1 else 0.5
        return share * in_round + (1.0 - share) * last

    @property
    def _alternatives(self) -> int:
        """Classes that a label may flip to."""
        return self.num_classes - 1 if self.pattern == "symmetric" else 1

    @property
    def _removal(self) -> float:
        """Candidates removed for each that is selected."""
        rate = float(self.noise_rate)
        return min(MOST_REMOVED, rate / (1.0 - rate)) if rate < 1 else MOST_REMOVED

    def _known(self, clock: Clock) -> dict[str, Tensor | float]:
        """For the records, once a pass, since it costs a look at every row; the noise rate once there is one."""
        if clock.batch:
            return {}
        known: dict[str, Tensor | float] = {"selected": (self.status.values == SELECTED).float().mean()}
        if clock.stage > 0 or self.rate is not None:
            known["noise_rate"] = float(self.noise_rate)
        return known

    def _rows(self, status: int) -> Tensor:
        return (self.status.values[:, 0] == status).nonzero().squeeze(1)

    def _start_round(self, clock: Clock) -> None:
        """Both networks as every round begins, and new halves."""
        for net in self.nets:
            net.load_state_dict(self.initial.state_dict())
        candidates = self._rows(CANDIDATE)
        order = torch.from_numpy(clock.rng("halves").permutation(len(candidates))).to(candidates.device)
        self.side.values[candidates, 0] = (order >= len(candidates) // 2).to(torch.int8)
        self.best.fill_(-1.0)

    def _learned_by(self, k: int) -> Tensor | None:
        """Rows that network k sees: selected ones and its half; all if there are not two, which batch norm needs."""
        status, half = self.status.values[:, 0], self.side.values[:, 0]
        rows = ((status == SELECTED) | ((status == CANDIDATE) & (half == k))).nonzero().squeeze(1)
        return rows if len(rows) > 1 else None

    def _chooses_epoch(self, stage: int) -> bool:
        """Whether a round takes the epoch with the best agreement, not the last: the fewer, the noisier the labels."""
        rate = float(self.noise_rate)
        if stage == 0 or self.pattern == "asymmetric" or rate > 0.6:
            return stage == 0
        return stage < (2 if rate > 0.3 else 4)

    @torch.no_grad()
    def _predict_held_out(self, data: TrainData) -> None:
        """Keep what each network says of the candidates it has not seen, if it agrees with more labels than before."""
        candidates = self._rows(CANDIDATE)
        for k, net in enumerate(self.nets):
            rows = candidates[self.side.values[candidates, 0] != k]
            if len(rows) == 0:
                continue
            logits = sweep(net, data, rows)
            agrees = logits.argmax(dim=1) == data.y[rows]
            agreement = agrees.float().mean()
            if agreement > self.best[k]:
                self.best[k] = agreement
                self.held_out.write(rows, torch.stack([agrees.float(), cross_entropy(logits, data.y[rows])], dim=1))

    @torch.no_grad()
    def _evaluate(self, net: nn.Module, x: Tensor) -> Tensor:
        was_training = net.training
        logits = net.eval()(x)
        net.train(was_training)
        return logits  # type: ignore[no-any-return]

    def _selected_stream(self, data: TrainData, clock: Clock) -> Stream:
        """The selected rows, after the warm-up with a few remaining candidates beside each batch of them."""
        selected, candidates = self._rows(SELECTED), self._rows(CANDIDATE)
        if len(selected) < 2:
            return Stream()
        size = min(len(candidates) * data.batch_size // len(selected), data.batch_size // 2)
        if size < 1 or clock.epoch < epochs_of(self._warmup, clock.epochs):
            return Stream(selected)
        return Stream(selected, beside=Stream(candidates, size))

    @property
    def _warmup(self) -> float:
        if self.warmup is not None:
            return self.warmup
        return 0.4 if self.pattern == "asymmetric" or float(self.noise_rate) > 0.6 else 0.2


def round_rate(clock: Clock, lr: float) -> float:
    """A half, a quarter, a tenth of the rate when 21, 31, 41 of the authors' 50 epochs of a round are over."""
    factors = (1.0, 0.5, 0.25, 0.1)
    return lr * factors[sum(clock.progress >= epochs / 50 for epochs in (21, 31, 41))]


def noise_from_agreement(agreement: float, alternatives: int) -> float:
    """e with (1 - e)^2 + e^2 / k = agreement: how noisy labels are that agree so often with cross-validation.

    A network that has learned the noise predicts the right class with probability 1 - e and each of k others with
    e / k, and so is the label drawn. The smaller root; below the least agreement 1 / (k + 1) the rate that gives it. A
    network in the best epoch of a long round has not learned the noise yet and agrees more often, so e comes out low;
    after a very short round it knows little, and e comes out high.
    """
    # PAPER: k = C - 1 for symmetric noise, 1 for asymmetric.
    # DEVIATES from authors' code: k = 1 for asymmetric noise here too (they have C - 1), and the root in closed form,
    # because their search ends at e = 1, whose odds are infinite, if agreement is below chance.
    curvature = 1.0 + 1.0 / alternatives
    return (1.0 - math.sqrt(max(0.0, 1.0 - curvature * (1.0 - agreement)))) / curvature


def noise_of_selected(rate: float, alternatives: int) -> float:
    """e^2 / (e^2 + k (1 - e)^2): fraction of wrong labels among those that agree with cross-validation."""
    return rate**2 / (rate**2 + alternatives * (1.0 - rate) ** 2)
