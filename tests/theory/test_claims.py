"""Every claim of the theory holds in the lab, and stops holding when labels, sign or sigma are broken on purpose."""

import functools
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from elr.theory.check import CLAIMS
from elr.theory.claim import CORRECTED, FAILS, HOLDS, OPEN, judge
from elr.theory.claims_proof import correlation_floor
from elr.theory.lab import Lab, World
from elr.theory.mixture import Mixture, draw_mixture, draw_start
from elr.theory.plan import QUICK

TINY = replace(
    QUICK,
    sizes=((1000, 900), (111, 100)),
    sigma=(0.01, 0.5),
    eta=(0.2, 0.1),
    seeds=3,
    largest_norm=100,
    programme_sizes=(60,),
    programme_ratios=(0.2, 0.3, 0.4, 0.5, 0.9, 0.95),
    programme_draws=12,
    fit_steps=2_000,
    fit_draws=4,
    figure_draws=12,
    figure_steps=500,
    levels=(0.0, 1.0),
)


def turned(*args, **more) -> Mixture:
    data = draw_mixture(*args, **more)
    return replace(data, labels=-data.labels)


def without_noise(*args, **more) -> Mixture:
    data = draw_mixture(*args, **more)
    return replace(data, labels=data.truth)


def wider(n, p, sigma, *args, **more) -> Mixture:
    return replace(draw_mixture(n, p, 1000 * sigma, *args, **more), sigma=sigma)


def collapsed(n, p, sigma, *args, **more) -> Mixture:
    return replace(draw_mixture(n, p, 0.0, *args, **more), sigma=sigma)


def nearer(p, seeds, **more) -> torch.Tensor:
    return draw_start(p, seeds, radius=1.0, **more)


WORLDS = {
    "whole": World(),
    "labels turned": World(draw=turned),
    "labels all true": World(draw=without_noise),
    "sign": World(sign=-1.0),
    "sigma too large": World(draw=wider),
    "sigma 0": World(draw=collapsed),
    "start": World(start=nearer),
    "no penalty": World(lam=0.0),
    "sign of the penalty": World(lam=-3.0),
}
BREAKS = {
    "noise_share": ["labels turned", "labels all true"],
    "wrong_count": ["labels all true"],
    "time": ["sign", "labels turned"],
    "time_growth": ["sign", "labels turned"],
    "correlation": ["sign", "labels turned", "sigma too large"],
    "recursion": ["sign", "labels turned"],
    "moved": ["sigma too large"],
    "moved_T": ["sign", "labels turned"],
    "norm_T": ["sign", "labels turned"],
    "cosine_T": ["sign", "labels turned"],
    "start_accuracy": ["sigma too large"],
    "end_accuracy": ["sign", "sigma too large"],
    "end_exact": ["sign", "sigma too large"],
    "improves": ["sign", "labels turned"],
    "clean_shrinks": ["sign", "labels turned"],
    "wrong_grows": ["sign", "labels turned"],
    "each_example": ["sign", "labels turned"],
    "gradient": ["sign"],
    "speed": ["sign"],
    "repair": ["sign"],
    "start": ["start"],
    "gradient_norm": ["sigma too large"],
    "supremum": ["sigma too large"],
    "supremum_proof": ["sigma too large"],
    "mean_square": ["sigma too large"],
    "noise_norm": ["sigma too large"],
    "data_norm": ["sigma too large"],
    "separable": ["sigma 0"],
    "tail": ["sigma 0"],
    "threshold": ["sigma 0", "labels all true"],
    "memorised": ["sign", "labels all true"],
    "not_separable": ["sign"],
    "figure_ce": ["sign", "labels all true"],
    "figure_elr": ["sign", "no penalty", "sign of the penalty"],
    "strength": ["sign"],
    "caption": ["labels all true"],
    "nothing": ["labels all true"],
}
ELSEWHERE = {"start_limit", "threshold_start", "threshold_later", "small_ball"}  # no data set in them: tests below


@functools.cache
def lab(world: str) -> Lab:
    return Lab(TINY, WORLDS[world])


@pytest.mark.parametrize("name", CLAIMS)
def test_every_claim_holds_at_least_when_corrected(name):
    assert judge(CLAIMS[name], lab("whole"))["verdict"] != FAILS


@pytest.mark.parametrize(("name", "world"), [(name, world) for name, worlds in BREAKS.items() for world in worlds])
def test_a_broken_world_is_noticed(name, world):
    assert judge(CLAIMS[name], lab(world))["verdict"] == FAILS


def test_a_claim_that_no_draw_decides_is_left_open():
    assert judge(CLAIMS["not_separable"], lab("labels all true"))["verdict"] == OPEN
    assert judge(CLAIMS["memorised"], lab("sigma 0"))["verdict"] == OPEN


def fake_lab(**tables):
    """A lab whose tables are given."""
    return SimpleNamespace(plan=TINY, world=World(), **tables)


def test_memorising_what_is_not_separable_is_not_excused_by_a_clean_label():
    rows = [{"ratio": 0.2, "separable": False, "wrong_right": 0.0, "clean_right": 0.99} for _ in range(4)]
    assert judge(CLAIMS["not_separable"], fake_lab(fits=rows))["verdict"] == FAILS


def test_bounds_that_cannot_be_broken_do_not_outvote_one_that_is():
    free = {"n": 60, "p": 12, "delta": TINY.base.delta, "ratio": 0.2, "draws": 12, "sharp_bound": 1.0}
    rows = [{**free, "tail_bound": 1.0, "separable": 0.0} for _ in range(30)]
    rows += [{**free, "p": 57, "ratio": 0.95, "tail_bound": 1e-4, "separable": 0.0}]
    assert judge(CLAIMS["tail"], fake_lab(separability=rows))["verdict"] == FAILS


def test_a_draw_meets_a_lemma_only_if_all_its_sets_do():
    row = {"p": 100, "n": 111, "sigma": 0.1, "c": 2.0, "x_norm": 1.0, "z_norm": 1.0}
    sets = [{**row, "seed": seed, "set": name} for seed in range(10) for name in ("all", "clean", "wrong")]
    for place in (2, 8):  # W of two draws of ten
        sets[place] = {**sets[place], "z_norm": 3.0}
    found = judge(CLAIMS["noise_norm"], fake_lab(norms=sets))
    assert (found["draws"], found["share"], found["verdict"]) == (10, 0.8, FAILS)


@pytest.mark.parametrize(("power", "verdict"), [(0.8, FAILS), (1.0, HOLDS), (1.2, HOLDS)])
def test_omega_is_a_bound_from_below(power, verdict):
    plan = replace(TINY, eta=(0.2, 0.1, 0.05))

    def early_at(setting):
        return [{"crossing": setting.eta**-power}] * 3

    found = judge(CLAIMS["time_growth"], SimpleNamespace(plan=plan, early_at=early_at))
    assert found["verdict"] == verdict
    assert ("no faster" in found["note"]) == (power == 1.0)


def test_no_claim_is_without_a_break():
    assert set(BREAKS) | ELSEWHERE == set(CLAIMS)


def test_one_half_at_the_start_needs_a_sigma_that_is_not_too_small():
    assert judge(CLAIMS["start_limit"], Lab(replace(TINY, sigma=(1e-6,))))["verdict"] == FAILS


@pytest.mark.parametrize("delta", [0.1, 0.4, 0.5])
def test_the_printed_limits_on_sigma_are_too_large_and_the_corrected_ones_are_sharp(delta):
    for printed, right, pull in ((2 / 3, 1 / 3, 0.0), (2 / 3 - 0.1, 1 / 3 - 0.05, 0.1)):
        assert correlation_floor(delta, printed - delta / 2, pull) < 1 / 6
        assert correlation_floor(delta, right - delta / 2, pull) == pytest.approx(1 / 6)
        assert correlation_floor(delta, 1.01 * (right - delta / 2), pull) < 1 / 6
    assert judge(CLAIMS["threshold_start"], Lab(TINY))["verdict"] == CORRECTED


def test_the_printed_width_of_the_small_ball_bounds_nothing():
    row = judge(CLAIMS["small_ball"], Lab(TINY))
    assert row["mean"] < -1e5
    assert row["verdict"] == CORRECTED
