"""What training sees of every example anyway, kept for the audit (docs/decisions/011-evidence.md).

A trace is 16 bytes a row beyond the method's own targets, and needs no forward pass that training would not have made.
A method without targets gets a table of averaged predictions, as wide as the classes, in their place; one that shows
mixed inputs only is swept every few epochs.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elr.parts.table import ExampleTable, normalised

BYTES = 16
MOST = 20.0  # logits grow without bound; one epoch must not outweigh all others
BETA = 0.7  # memory of averaged predictions, as ELR's default
FALL = 0.02  # of validation accuracy: an epoch behind the best by so much counts e times less
MET, UNMET = -(2**15), 2**15 - 1  # the sign of sixteen bits, and all others
WAITING = 2**17  # logits that wait to be taken in together: a trace costs 25 small kernels, whatever their length


class Seen(NamedTuple):
    """How every row of a split fared, (n,) each. Epochs count from 1, 0 is never."""

    margin: npt.NDArray[np.float32]  # weighted mean over visits of z[given] - max of the others
    visits: npt.NDArray[np.int16]
    first: npt.NDArray[np.int16]  # epoch in which the label was first predicted
    last: npt.NDArray[np.int16]
    learnt: npt.NDArray[np.uint8]  # times the prediction came to be the label, of one network where there are two
    forgotten: npt.NDArray[np.uint8]  # and ceased to be
    peak_loss: npt.NDArray[np.float16]  # cross entropy in the epoch chosen on validation; NaN where there is none


class Trace:
    """The rows of one split, updated in place.

    Bytes of a row: 0-3 weighted sum of margins; 4-5 visits; 6-7 first and 8-9 last epoch of agreement; 10 times learnt;
    11 times forgotten; 12-13 loss at the last visit; 14-15 loss at the early-learning peak. An example is held by the
    network exactly when it has been learnt once more often than forgotten, so that needs no byte of its own. The weight
    of margins is the same for all rows at a time, so that it needs none either. The sign of the visits tells whether
    there was one in this epoch: the margin is a mean over all visits, but what is learnt and forgotten is told by the
    first visit of an epoch. Of two networks that would be the disagreement between them, not a change of mind.
    """

    def __init__(self, labels: Tensor) -> None:
        self.labels = labels
        # Weight of what is seen now; weight given so far; visits.
        self.weights = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
        self.bytes = torch.zeros(len(labels), BYTES, dtype=torch.uint8, device=labels.device)
        self.bytes.view(torch.float16)[:, 6:] = torch.nan

    def see(self, index: Tensor, logits: Tensor, epoch: int) -> None:
        """Take in what a network says, (B, C), of the rows ``index``. Of a row that stands twice, one counts."""
        y = self.labels.index_select(0, index).unsqueeze(1)  # (B, 1)
        own = logits.gather(1, y)
        margin = (own - logits.scatter(1, y, -torch.inf).amax(dim=1, keepdim=True)).squeeze(1)  # (B,)
        loss = logits.logsumexp(dim=1) - own.squeeze(1)
        rows = self.bytes.index_select(0, index)  # (B, 16)
        short = rows.view(torch.int16)
        new = short[:, 2] >= 0
        agrees = (margin > 0) & new
        held = rows[:, 10] > rows[:, 11]
        rows.view(torch.float32)[:, 0] += margin.clamp_(-MOST, MOST).nan_to_num_(nan=0.0) * float(self.weights[0])
        short[:, 2] = (short[:, 2] & UNMET) + 1 | MET
        short[:, 3] += (agrees & (short[:, 3] == 0)) * epoch
        short[:, 4].masked_fill_(agrees, epoch)
        rows[:, 10] += agrees & ~held & (rows[:, 10] < 255)
        rows[:, 11] += held & ~agrees & new
        halves = rows.view(torch.float16)
        halves[:, 6] = torch.where(new, loss.half(), halves[:, 6])
        self.bytes.index_copy_(0, index, rows)
        self.weights[1] += len(index) * self.weights[0]
        self.weights[2] += len(index)

    def end_epoch(self) -> None:
        """The next visit of a row is the first one of an epoch."""
        self.bytes.view(torch.int16)[:, 2] &= UNMET

    def weigh(self, before: float, now: float) -> None:
        """What was seen so far counts by a factor less, and what will be seen has this weight."""
        self.bytes.view(torch.float32)[:, 0] *= before
        self.weights[1] *= before
        self.weights[0] = now

    def mark_peak(self) -> None:
        """The losses of this epoch are those of the best epoch so far."""
        halves = self.bytes.view(torch.float16)
        halves[:, 7] = halves[:, 6]

    def seen(self) -> Seen:
        """The fields, in memory of their own."""
        rows = self.bytes.cpu()
        short, halves = rows.view(torch.int16).numpy(), rows.view(torch.float16).numpy()
        visits, first, last = (short[:, k] & UNMET for k in (2, 3, 4))
        learnt, forgotten = (rows.numpy()[:, k].copy() for k in (10, 11))
        each = float(self.weights[1] / self.weights[2]) if self.weights[2] else 1.0  # weight of a visit
        margin = rows.view(torch.float32).numpy()[:, 0] / (np.maximum(visits, 1) * each).astype(np.float32)
        return Seen(margin, visits, first, last, learnt, forgotten, halves[:, 7].copy())


class Witness:
    """Traces of the training and validation rows, and averaged predictions where nobody else keeps any.

    Args:
        labels: given labels of the training rows, (n,), on the device of the run.
        held_labels: those of the validation rows, (m,); None without.
        num_classes: C.
        averages: whether to average predictions of training rows, because the method has no targets.
        every: epochs between sweeps for a method that does not show what it predicts for unmixed inputs.
    """

    def __init__(
        self, labels: Tensor, held_labels: Tensor | None, num_classes: int, *, averages: bool, every: int
    ) -> None:
        self.every = every
        self.chance = 1.0 / num_classes
        self.best = torch.tensor(self.chance, dtype=torch.float64)  # validation accuracy so far
        self.train = Trace(labels)
        self.held = None if held_labels is None else Trace(held_labels)
        self.held_average = None if held_labels is None else torch.zeros(len(held_labels), num_classes)
        self.average = ExampleTable(len(labels), num_classes).to(labels.device) if averages else None
        self.waiting: list[tuple[Tensor, Tensor]] = []
        self.wait = 0  # logits that are waiting
        self.shown = 0  # rows that steps have shown in this epoch
        self.seconds = 0.0  # of this epoch, for a sweep that was made for the audit alone

    def step(self, index: Tensor, logits: Tensor, epoch: int) -> None:
        """A training step showed these rows."""
        self.shown += len(index)
        self.waiting.append((index, logits))
        self.wait += logits.numel()
        if self.wait >= WAITING:
            self.take_in(epoch)

    def take_in(self, epoch: int) -> None:
        """Take in what is waiting; at the end of a pass at the latest, since the next shows the same rows again."""
        if not self.waiting:
            return
        index = torch.cat([index for index, _ in self.waiting])
        logits = torch.cat([logits for _, logits in self.waiting]).float()
        self.waiting.clear()
        self.wait = 0
        self.train.see(index, logits, epoch)
        if self.average is not None:
            self.average.average_in(index, logits.softmax(dim=1), BETA)

    def lacks(self, epoch: int, *, last: bool) -> bool:
        """Whether the rows should be swept now: this epoch showed too few of them, and it is time."""
        return self.shown < len(self.train.labels) and (last or epoch % self.every == 0)

    def swept(self, p: npt.NDArray[np.float32], epoch: int) -> None:
        """Somebody predicted every training row, (n, C)."""
        labels = self.train.labels
        logits = torch.from_numpy(p).clamp_min(1e-30).log().to(labels.device)
        self.step(torch.arange(len(labels), device=labels.device), logits, epoch)
        self.take_in(epoch)

    def held_out(self, p: npt.NDArray[np.float32], epoch: int) -> None:
        """Predictions of the validation rows, (m, C)."""
        assert self.held is not None
        assert self.held_average is not None
        prediction = torch.from_numpy(p)
        self.held.see(torch.arange(len(p)), prediction.clamp_min(1e-30).log(), epoch)
        self.held_average.lerp_(prediction, 1.0 - BETA)

    def begin_anew(self) -> None:
        """A network that has learnt nothing yet takes the place of the one that was seen."""
        self._weigh(self.chance)

    def close(self, *, peak: bool, accuracy: float | None = None) -> float:
        """End an epoch. Returns the seconds that evidence alone took.

        Args:
            peak: whether the epoch is the best so far on validation.
            accuracy: on validation, smoothed. The better the network was, the more its next epoch counts: early ones
                say little where it learns slowly, and late ones where it has begun to memorise.
        """
        seconds, self.seconds, self.shown = self.seconds, 0.0, 0
        if accuracy is not None:
            self._weigh(accuracy)
        for trace in (self.train, self.held):
            if trace is not None:
                trace.end_epoch()
                if peak:
                    trace.mark_peak()
        return seconds

    def _weigh(self, accuracy: float) -> None:
        """Weights are relative to the best epoch: what was seen before fades when there is a better one."""
        best = max(float(self.best), accuracy)
        for trace in (self.train, self.held):
            if trace is not None:
                trace.weigh(math.exp((float(self.best) - best) / FALL), math.exp((accuracy - best) / FALL))
        self.best.fill_(best)

    def gather(self, belief: Tensor | None) -> dict[str, npt.NDArray[Any]]:
        """All that was seen, by name: rows of training first, then those held out.

        Args:
            belief: targets of the method, (K, n, C); None if it has none.
        """
        tables = belief if belief is not None else self._average()
        own = [normalised(table.float().cpu()) for table in tables]
        parts = [(torch.stack(own).mean(dim=0), self.train.seen())]
        if self.held is not None and self.held_average is not None:
            parts.append((normalised(self.held_average), self.held.seen()))
        sizes = [len(seen.margin) for _, seen in parts]
        found: dict[str, npt.NDArray[Any]] = {
            name: np.concatenate([getattr(seen, name) for _, seen in parts]) for name in Seen._fields
        }
        found["belief"] = torch.cat([table for table, _ in parts]).numpy()
        found["held"] = np.repeat([False, True][: len(sizes)], sizes)
        if len(own) > 1:
            choices = torch.stack(own).argmax(dim=2)  # (K, n)
            agree = (choices == choices[0]).all(dim=0).numpy()
            # Of rows held out only the mean of the networks was seen.
            found["agree"] = np.concatenate([agree, np.ones(sum(sizes[1:]), dtype=bool)])
        return found

    def _average(self) -> Tensor:
        assert self.average is not None
        return self.average.values.unsqueeze(0)

    @property
    def state(self) -> dict[str, Tensor]:
        """What must survive a restart, by name."""
        kept = {"evidence.train": self.train.bytes, "evidence.train_weights": self.train.weights}
        kept["evidence.best"] = self.best
        if self.held is not None and self.held_average is not None:
            kept |= {"evidence.held": self.held.bytes, "evidence.held_weights": self.held.weights}
            kept["evidence.held_average"] = self.held_average
        if self.average is not None:
            kept["evidence.average"] = self.average.values
        return kept

    def restore(self, state: Mapping[str, Tensor]) -> bool:
        """Go on from a saved state; False if there is none, or not all of it: a half-seen run is no evidence."""
        mine = self.state
        if any(name not in state or state[name].shape != value.shape for name, value in mine.items()):
            return False
        for name, value in mine.items():
            value.copy_(state[name])
        return True
