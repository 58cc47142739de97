"""Fifty steps of the product in its own engine against the oracles: loss, targets, weights after every step.

Networks are float64, and so is all that ELR and KL compute from the logits, except the table of targets: float32. Its
rounding, 1e-8 a step, grows to some 1e-6 in fifty steps of momentum. So both are compared twice: left to themselves, to
1e-5; and with each step of the oracle starting from the product's targets, to 1e-11.
"""

import copy

import pytest
import torch

from elr.methods import METHODS
from reference import ce, elr, kl
from reference.watch import OPTIM, assert_same, watch


def test_cross_entropy_follows_its_oracle():
    run = watch(METHODS["ce"]())
    oracle = ce.train(run.start[0], run.x, run.y, run.batches, 3, **OPTIM)
    assert_same(run.trajectory, oracle, rtol=1e-12, names=("weights",))


def follows(name, train, settings):
    """Targets are float32: the oracle alone drifts by their rounding, led by the recorded ones it does not."""
    run = watch(METHODS[name](**settings))
    seen = run.trajectory
    alone = train(copy.deepcopy(run.start[0]), run.x, run.y, run.batches, 3, **settings, **OPTIM)
    assert_same(seen, alone, rtol=1e-5, names=("targets", "weights"))
    led = train(run.start[0], run.x, run.y, run.batches, 3, recorded=seen.targets, **settings, **OPTIM)
    assert_same(seen, led, rtol=1e-11, names=("weights",))
    for ours, theirs in zip(seen.targets, led.targets, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1.2e-7)  # two units in the last place of 1


@pytest.mark.parametrize("clamp_penalty", [False, True])
@pytest.mark.parametrize("floor", [0.0, 1e-4, 0.05])  # at 0.05 most rows leave the range of the clamp within 50 steps
def test_elr_follows_algorithm_1(floor, clamp_penalty):
    settings = {"lam": 3.0, "beta": 0.7, "floor": floor, "clamp_penalty": clamp_penalty}
    follows("elr", elr.train, settings)


def test_the_clamp_of_the_penalty_and_the_floor_change_the_trajectory():
    """Else the comparison above would not tell the settings apart."""
    runs = [
        watch(METHODS["elr"](floor=floor, clamp_penalty=clamp)).trajectory
        for floor, clamp in [(0.0, False), (0.05, False), (0.05, True)]
    ]
    ends = [run.weights[-1][0] for run in runs]
    assert (ends[0] - ends[1]).abs().max() > 1e-3
    assert (ends[1] - ends[2]).abs().max() > 1e-3


def test_kl_follows_section_c():
    follows("kl", kl.train, {"lam": 5.0, "beta": 0.7})
