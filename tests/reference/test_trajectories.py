"""Fifty steps of the product in its own engine against the oracles: loss, targets, weights after every step.

Networks are float64, and so is all that ELR computes from the logits, except the table of targets: float32. Its rounding,
1e-8 a step, grows to some 1e-6 in fifty steps of momentum. So ELR is compared twice: with Eq. (9) as printed, to 1e-5;
and with the rounding of a float32 table put into the oracle, to 1e-11. KL computes in float32 after the logits.
"""

import pytest
from elr.methods import METHODS
from reference import ce, elr, kl
from reference.watch import OPTIM, assert_same, watch


def test_cross_entropy_follows_its_oracle():
    run = watch(METHODS["ce"]())
    oracle = ce.train(run.start[0], run.x, run.y, run.batches, 3, **OPTIM)
    assert_same(run.trajectory, oracle, rtol=1e-12, names=("weights",))


UPDATES = [pytest.param(elr.update, 1e-5, id="as printed"), pytest.param(elr.update_float32, 1e-11, id="rounded alike")]


@pytest.mark.parametrize(("update", "rtol"), UPDATES)
@pytest.mark.parametrize("clamp_penalty", [False, True])
@pytest.mark.parametrize("floor", [0.0, 1e-4, 0.05])  # at 0.05 most rows leave the range of the clamp within 50 steps
def test_elr_follows_algorithm_1(floor, clamp_penalty, update, rtol):
    settings = {"lam": 3.0, "beta": 0.7, "floor": floor, "clamp_penalty": clamp_penalty}
    run = watch(METHODS["elr"](**settings))
    oracle = elr.train(run.start[0], run.x, run.y, run.batches, 3, update=update, **settings, **OPTIM)
    assert_same(run.trajectory, oracle, rtol=rtol, names=("targets", "weights"))


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
    run = watch(METHODS["kl"](lam=5.0, beta=0.7))
    oracle = kl.train(run.start[0], run.x, run.y, run.batches, 3, lam=5.0, beta=0.7, floor=0.0, **OPTIM)
    assert_same(run.trajectory, oracle, rtol=1e-5, names=("targets", "weights"))
