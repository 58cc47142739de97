"""Stages of a run: where the epoch is selected from, and what a stage hands to the next."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from reference.tiny import FEATURES, tiny_job
from torch import nn

import elr.engine.train as engine
from elr.engine.evaluate import Evaluator
from elr.engine.train import Outcome, train
from elr.estimator import NoisyLabelClassifier
from elr.methods import METHODS
from elr.methods.base import Stage


class Staged(METHODS["ce"]):
    """Two epochs that end with the selected network, then two more."""

    def plan(self, epochs):
        return [Stage(2, keep="selected"), Stage(2)]

    def step(self, batch, clock):
        if clock.epoch == clock.batch == 0:
            self.starts = {**getattr(self, "starts", {}), clock.stage: _weights(self)}
        return super().step(batch, clock)


def _weights(method):
    return torch.cat([p.detach().flatten().clone() for p in method.nets.parameters()])


def run(monkeypatch: pytest.MonkeyPatch, accuracies: Mapping[int, float]) -> tuple[Staged, Outcome, int]:
    """A run whose validation accuracy is told, and how often momentum was forgotten."""
    monkeypatch.setattr(
        Evaluator, "epoch", lambda self, method, epoch, last, witness: {"val_accuracy": accuracies[epoch]}
    )
    forgotten = []
    monkeypatch.setattr(engine, "forget", forgotten.append)
    job = tiny_job(Staged(), epochs=4)
    return job.method, train(job), len(forgotten)


def test_a_stage_that_ended_with_its_selected_network_has_had_its_choice(monkeypatch):
    _, outcome, _ = run(monkeypatch, {1: 0.9, 2: 0.1, 3: 0.3, 4: 0.2})
    assert outcome.selected_epoch == 3


@pytest.mark.parametrize("best", [1, 2])
def test_momentum_does_not_outlive_a_stage_that_ends_with_its_selected_network(monkeypatch, best):
    """Whether the best epoch was the last one is chance."""
    accuracies = {1: 0.1, 2: 0.9, 3: 0.3, 4: 0.2} if best == 2 else {1: 0.9, 2: 0.1, 3: 0.3, 4: 0.2}
    assert run(monkeypatch, accuracies)[2] == 1


def test_the_next_stage_starts_from_the_selected_network(monkeypatch):
    starts = [run(monkeypatch, {1: a, 2: 1 - a, 3: 0.3, 4: 0.2})[0].starts for a in (0.9, 0.1)]
    assert torch.equal(starts[0][0], starts[1][0])
    assert not torch.equal(starts[0][1], starts[1][1])


class Listening(nn.Linear):
    """A network that notes what it computes in, and whether it is training, swept or evaluated."""

    heard: ClassVar[dict[str, set[torch.dtype]]] = {}

    def forward(self, x):
        out = super().forward(x)
        part = "evaluated" if torch.is_inference_mode_enabled() else "trained" if self.training else "swept"
        self.heard.setdefault(part, set()).add(out.dtype)
        return out


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_sweeps_and_evaluation_are_in_the_precision_of_the_run(precision):
    Listening.heard.clear()
    job = tiny_job(METHODS["mixmatch"](warmup=0.3), make_model=lambda: Listening(FEATURES, 3), epochs=3)
    train(replace(job, runtime=replace(job.runtime, precision=precision)))
    own = {getattr(torch, precision)}
    assert Listening.heard == {"trained": own, "swept": own, "evaluated": own}


@pytest.mark.parametrize(("method", "selects"), [("ce", False), ("early_stopping", True), ("dmi", True)])
def test_the_estimator_holds_rows_out_for_every_method_that_selects_somewhere(method, selects):
    X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)).numpy()
    y = (X[:, 0] > 0).astype(int)
    fitted = NoisyLabelClassifier(method, epochs=2, random_state=0).fit(X, y)
    assert (fitted.selected_epoch_ is not None) == selects
