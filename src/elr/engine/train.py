"""Stages, epochs, passes, batches: the four loops around the only ``backward()``."""

import copy
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from elr.data import Data
from elr.data.stream import TrainData
from elr.engine import checkpoint
from elr.engine.device import RuntimeConfig, private_randomness, seed_torch, thread_count
from elr.engine.evaluate import EvaluateConfig, Evaluator
from elr.engine.memory import freed_blocks_kept
from elr.engine.optim import OptimConfig, build_optimizer, forget, set_lr
from elr.engine.schedule import Schedule
from elr.engine.witness import Witness
from elr.methods.base import MakeNet, Method, Stage, Step
from elr.parts.clock import Clock
from elr.parts.draw import fold
from elr.report.metrics import selected, smoothed
from elr.report.records import Record, append_line, keep_lines, read_lines


class Progress(Protocol):
    """Somebody who watches."""

    def batch(self, epoch: int, done: int, total: int) -> None:
        """Called after each batch with the batches done, and expected, in this epoch."""
        ...

    def epoch(self, record: Record, seconds: float) -> None:
        """Called after each epoch."""
        ...


class Silent:
    """Nobody watches."""

    def batch(self, epoch: int, done: int, total: int) -> None:
        """Ignore."""

    def epoch(self, record: Record, seconds: float) -> None:
        """Ignore."""


@dataclass
class Job:
    """All that a training run is made of."""

    method: Method
    make_model: Callable[[], nn.Module]
    data: Data
    epochs: int
    optim: OptimConfig
    schedule: Schedule
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    seed: int = 0
    out: Path | None = None  # None: keep nothing on disk
    identity: dict[str, Any] = field(default_factory=dict)  # must match on resume
    progress: Progress = field(default_factory=Silent)


@dataclass
class Outcome:
    """What training leaves in memory. The method holds the weights of the last epoch."""

    records: list[Record]
    timing: list[Record]
    selected_epoch: int | None  # counted from 1; None without validation
    selected_state: dict[str, Tensor] | None  # weights of that epoch, when nothing is kept on disk
    witness: Witness | None = None  # what was seen of every example; None if nothing was to be kept


def train(job: Job) -> Outcome:
    """Run the job from its newest checkpoint, or the start, to the end. ``job.method`` ends with the last weights.

    Another thread's training is waited for.
    """
    with private_randomness(job.runtime.resolved_device()), thread_count(job.runtime.threads), freed_blocks_kept():
        return _Training(job).run()


class _Training:
    """The state of ``train`` while it runs."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.device = job.runtime.resolved_device()
        self.data = _train_data(job, self.device)
        layout, self.precision = job.runtime.layout(self.device), job.runtime.autocast(self.device)
        self.evaluator = Evaluator(job.data, job.evaluate, self.device, channels_last=layout, precision=self.precision)
        self.method = job.method
        self.method.build(self._make_net(0), len(self.data), self.data.num_classes)
        self.method.to(self.device)
        if layout:
            self.method.to(memory_format=torch.channels_last)
        self.stages = self.method.plan(job.epochs)
        self.total = sum(stage.epochs for stage in self.stages)
        self.optimizer = build_optimizer(self.method, job.optim)
        self.outcome = Outcome([], [], None, None, self._witness() if job.evaluate.evidence else None)
        self.told_apart = False  # whether networks were seen to differ after a step
        self.batches = 0  # in an epoch, all passes together; known after the first
        self.gradients = 0  # examples that went forward with a gradient in this epoch

    def run(self) -> Outcome:
        """Every epoch that is not behind us already."""
        done = self._restore()
        if self.job.runtime.compile:
            for net in self.method.nets:
                net.compile()
            return self._run(done)
        # Not in a compiled network: what counts would be compiled with it, and again for every count.
        counts = [net.register_forward_pre_hook(self._count) for net in self.method.nets]
        try:
            return self._run(done)
        finally:
            for count in counts:
                count.remove()

    def _witness(self) -> Witness:
        val = self.job.data.val
        labels = None if val is None else torch.from_numpy(val.y)
        averages, every = self.method.belief() is None, self.job.evaluate.evidence_every
        return Witness(self.data.y, labels, self.data.num_classes, averages=averages, every=every)

    def _count(self, net: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if torch.is_grad_enabled():
            self.gradients += len(inputs[0])

    def _run(self, done: int) -> Outcome:
        number = 0
        for s, stage in enumerate(self.stages):
            for e in range(stage.epochs):
                number += 1
                if number <= done:
                    continue
                started = time.perf_counter()
                if e == 0:
                    self.batches = 0  # another stage may have other passes
                    if stage.fresh:
                        self._refresh(s)
                        if self.outcome.witness is not None:
                            self.outcome.witness.begin_anew()
                record = {"epoch": number, "stage": s, **self._epoch(s, stage, e, number)}
                self._close(record, time.perf_counter() - started, ends=e == stage.epochs - 1)
        return self.outcome

    def _epoch(self, s: int, stage: Stage, e: int, number: int) -> Record:
        """Train one epoch; the record has the means of what the method logs."""
        self.method.train()
        start = Clock(self.job.seed, s, e, stage.epochs)
        schedule = stage.schedule or self.job.schedule
        means = _Means(self.data.y)
        lr = 0.0
        done = self.gradients = 0
        self.told_apart = self.told_apart and e > 0  # a stage may begin with other networks
        for turn, (stream, step) in enumerate(self.method.epoch(self.data, start)):
            batches = self.data.num_batches(stream)
            for b, batch in enumerate(self.data.batches(stream, start._replace(turn=turn))):
                clock = start._replace(turn=turn, batch=b, batches=batches)
                lr = stage.lr_scale * schedule(clock, self.job.optim.lr)
                set_lr(self.optimizer, lr)
                seed_torch(clock.key("network"), self.device)
                with self.precision:
                    result = step(batch, clock)
                result.loss.backward()  # type: ignore[no-untyped-call]
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
                if lr > 0.0 and not self.told_apart:  # at a rate of 0 all stay as they began
                    _refuse_twins(self.method)
                    self.told_apart = True
                if result.then is not None:
                    result.then()
                if self.outcome.witness is not None and result.seen is not None:
                    self.outcome.witness.step(*result.seen, number)
                means.add(result)
                done += 1
                self.job.progress.batch(number, done, max(self.batches, done - b - 1 + batches))
            if self.outcome.witness is not None:
                self.outcome.witness.take_in(number)
        self.batches = done
        counted = {} if self.job.runtime.compile else {"gradients": self.gradients / len(self.data)}
        return {"lr": lr, **counted, **means.values(number)}

    def _close(self, record: Record, seconds: float, *, ends: bool) -> None:
        """Evaluate, select, record, save: in the order that makes a crash at any point harmless."""
        started = time.perf_counter()
        number = record["epoch"]
        outcome = self.outcome
        record |= self.evaluator.epoch(self.method, number, last=number == self.total, witness=outcome.witness)
        outcome.records.append(record)
        if "val_accuracy" in record:
            curve = smoothed([r["val_accuracy"] for r in self._candidates(record["stage"])])
            record["val_smoothed"] = curve[-1]
            if len(curve) == 1 or curve[-1] > max(curve[:-1]):
                outcome.selected_epoch = number
                self._keep_selected()
        if ends:
            if self.stages[record["stage"]].keep == "selected":
                if outcome.selected_epoch not in (None, number):
                    self._go_back()
                forget(self.optimizer)  # momentum of other weights, or of another loss
            finishing = time.perf_counter()
            self.method.finish(record["stage"], self.data)
            extra = time.perf_counter() - finishing  # it may look at every row again: that is training
            seconds, started = seconds + extra, started + extra
        timing = {"epoch": number, "train_seconds": seconds, "evaluate_seconds": time.perf_counter() - started}
        if outcome.witness is not None:
            timing["evidence_seconds"] = outcome.witness.close(
                peak=outcome.selected_epoch == number, accuracy=record.get("val_smoothed")
            )
        outcome.timing.append(timing)
        if self.job.out is not None:
            append_line(self.job.out / "records.jsonl", record)
            append_line(self.job.out / "timing.jsonl", timing)
            place, watched = self.job.out / "checkpoint", dict(self.evaluator.state)
            watched |= {} if outcome.witness is None else outcome.witness.state
            checkpoint.save(place, number, self.method, self.optimizer, self.job.identity, watched)
        self.job.progress.epoch(record, seconds)

    def _candidates(self, stage: int) -> list[Record]:
        """Epochs to select from: those before a fresh start belong to other networks, and a stage that ended with its
        selected network has had its choice.
        """
        begins = [s for s in range(1, stage + 1) if self.stages[s].fresh or self.stages[s - 1].keep == "selected"]
        start = max(begins, default=0)
        return [record for record in self.outcome.records if record["stage"] >= start]

    def _go_back(self) -> None:
        """Networks of the selected epoch; tables and averages stay, since the method knows what they mean."""
        if self.job.out is None:
            state = self.outcome.selected_state or {}
        else:
            path = self.job.out / "selected.safetensors"
            state, about = checkpoint.read_tensors(path)
            if about.get("epoch") != self.outcome.selected_epoch:  # a later stage wrote it, and its checkpoint is lost
                raise ValueError(
                    f"{path} is of epoch {about.get('epoch')}, not {self.outcome.selected_epoch}: start this run again"
                )
        nets = {name.removeprefix("nets."): value for name, value in state.items() if name.startswith("nets.")}
        self.method.nets.load_state_dict(nets)

    def _keep_selected(self) -> None:
        state = self.method.state_dict()
        if self.job.out is None:
            self.outcome.selected_state = copy.deepcopy(state)
        else:
            metadata = {**self.job.identity, "epoch": self.outcome.selected_epoch}
            checkpoint.write_tensors(self.job.out / "selected.safetensors", state, metadata)

    def _restore(self) -> int:
        """Go back to the newest checkpoint, if there is one; returns its epoch."""
        if self.job.out is None:
            return 0
        watched: dict[str, Tensor] = {}
        place = self.job.out / "checkpoint"
        done = checkpoint.restore(place, self.method, self.optimizer, self.job.identity, watched)
        if done:
            self._remember(watched)
        for name in ("records", "timing"):
            path = self.job.out / f"{name}.jsonl"
            kept = [record for record in read_lines(path) if record["epoch"] <= done]
            if [record["epoch"] for record in kept] != list(range(1, done + 1)):
                raise ValueError(f"{path} does not have the {done} epochs of the checkpoint: start this run again")
            if path.exists():
                keep_lines(path, kept)
            setattr(self.outcome, name, kept)
        if self.outcome.records:
            recent = self._candidates(self.outcome.records[-1]["stage"])
            if values := [r["val_accuracy"] for r in recent if "val_accuracy" in r]:
                self.outcome.selected_epoch = recent[0]["epoch"] + selected(values)
        return done

    def _remember(self, watched: dict[str, Tensor]) -> None:
        """What was seen before the interruption: by the evaluator, and of every example."""
        self.evaluator.state |= {name: t for name, t in watched.items() if not name.startswith("evidence.")}
        if self.outcome.witness is not None and not self.outcome.witness.restore(watched):
            warnings.warn("this run was begun without evidence, so none is kept for an audit", stacklevel=2)
            self.outcome.witness = None

    def _make_net(self, stage: int) -> MakeNet:
        def make_net(k: int = 0) -> nn.Module:
            seed_torch(fold(self.job.seed, "init", stage, k), self.device)
            net = self.job.make_model()
            prepare = getattr(net, "prepare", None)
            if callable(prepare):
                prepare(self._sample())
            return net

        return make_net

    def _sample(self, most: int = 5000) -> Tensor:
        """Some training inputs as the network sees them without augmentation, for data-dependent initialisation."""
        rows = torch.linspace(0, len(self.data) - 1, min(most, len(self.data))).long()
        return self.data.transform(self.data.inputs.fetch(rows), self.data.ids[rows], None)

    def _refresh(self, stage: int) -> None:
        """New initial weights in place, so that optimizer and averages keep their references; momentum starts anew."""
        make_net = self._make_net(stage)
        for k, net in enumerate(self.method.nets):
            net.load_state_dict(make_net(k).state_dict())
        forget(self.optimizer)


def _refuse_twins(method: Method) -> None:
    """Networks that are alike after a step stay so: co-teaching would choose for itself, decoupling learn nothing.

    Where each has a pass of its own, as in ELR+, two copies of a module are different by now.
    """
    first, *others = (list(net.parameters()) for net in method.nets)
    if any(all(map(torch.equal, first, other)) for other in others):
        raise ValueError(
            f"the {len(method.nets)} networks of {type(method).__name__} begin alike and learn alike: give a function"
            " that builds a new network each time it is called, not a module"
        )


class _Means:
    """Means over an epoch of what steps log, summed on the device: one synchronisation an epoch."""

    def __init__(self, labels: Tensor) -> None:
        self.labels = labels
        self.sums: dict[str, Tensor | float] = {}
        self.counts: dict[str, int] = {}

    def add(self, step: Step) -> None:
        """Take in one step, weighted by its number of examples."""
        values = {"loss": step.loss.detach(), **step.log}
        if step.seen is not None:
            index, logits = step.seen
            values["train_agreement"] = (logits.argmax(dim=1) == self.labels[index]).float().mean()
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value * step.count
            self.counts[name] = self.counts.get(name, 0) + step.count

    def values(self, epoch: int) -> dict[str, float]:
        """The means; a loss that is not finite stops the run."""
        means = {name: float(total) / self.counts[name] for name, total in self.sums.items()}
        if not math.isfinite(means.get("loss", 0.0)):
            raise FloatingPointError(
                f"the loss became {means['loss']} in epoch {epoch}: lower optim.lr, or check the data"
            )
        return means


def _train_data(job: Job, device: torch.device) -> TrainData:
    train = job.data.train
    return TrainData(
        train.inputs,
        torch.from_numpy(train.y),
        job.data.num_classes,
        job.data.transform,
        ids=train.keys,
        batch_size=job.optim.batch_size,
        device=device,
        channels_last=job.runtime.layout(device),
        bfloat16=job.runtime.precision == "bfloat16",
        balanced_batches=job.data.balanced_batches,
        alternate=job.data.alternate,
        sizes=job.data.sizes,
    )
