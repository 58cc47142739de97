"""ELR+ against Algorithm 2, step by step in the product's engine; and what each of its switches means."""

import itertools

import numpy as np
import pytest
import torch
from elr.data.stream import Batch
from elr.methods.elr_plus import ELRPlus, updated_labels
from elr.parts.clock import Clock
from elr.parts.mixup import draw_mix
from reference import elr_plus
from reference.elr_plus import Draws, Switches
from reference.tiny import TinyNet
from reference.watch import OPTIM, Watched, assert_same, watch
from torch import nn

# The networks are float64; what ELR+ computes from the logits is float32, hence not tighter.
RTOL = 1e-5


def follow(**settings):
    """The product's run and the oracle's with the same draws."""
    epochs = 9 * (3 - settings.get("networks", 2))  # 27 steps of each of two networks, or 54 of one
    run = watch(ELRPlus(**settings), step="step_of", n=24, batch=9, epochs=epochs)
    return run, elr_plus.train(run.start, run.x, run.y, draws(run, **settings), 3, switches(run, **settings), **OPTIM)


def draws(run: Watched, *, networks: int = 2, alpha: float = 1.0, mix_per: str = "batch", **_):
    """Rows of the batches as they came; mixup's draws from the same counted generators, made here once more."""
    passes = []
    for batches in run.passes:
        passes.append([])
        for rows, clock in batches:
            size = len(rows)
            weight, partner = [1.0] * size, list(range(size))
            if alpha > 0:
                rng = clock.rng("mixup")
                ell = np.broadcast_to(rng.beta(alpha, alpha, size=size if mix_per == "example" else None), size)
                weight = [float(np.float32(max(value, 1.0 - value))) for value in ell]
                partner = rng.permutation(size).tolist()
            passes[-1].append(Draws(rows.tolist(), weight, partner))
    return [passes[k : k + networks] for k in range(0, len(passes), networks)]


def switches(run: Watched, **settings):
    steps = sum(map(len, run.passes)) / settings.get("networks", 2)
    return Switches(
        lam=settings.get("lam", 3.0),
        beta=settings.get("beta", 0.7),
        gamma=settings.get("gamma", 0.997),
        averaging=settings.get("averaging", "ramp"),
        ramp_steps=settings.get("ramp_length", 0.57) * steps,
        lam_ramp=settings.get("ramp_lam", False),
        label_update=settings.get("update_labels", False),
        floor=1e-4 if settings.get("floor") is None else settings["floor"],
        clamp_penalty=settings.get("clamp_penalty", False),
        teacher_bn=settings.get("teacher_bn", "batch"),
    )


def assert_follows(**settings):
    run, oracle = follow(**settings)
    averages = () if settings.get("averaging") == "none" else ("averages",)
    if not averages:  # the oracle keeps unused copies
        oracle.statistics = [buffers[: len(buffers) // 2] for buffers in oracle.statistics]
    assert_same(run.trajectory, oracle, rtol=RTOL, names=("targets", "weights", *averages))
    for ours, theirs in zip(run.trajectory.statistics, oracle.statistics, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            if a.is_floating_point():  # not the count of batches
                torch.testing.assert_close(a, b, rtol=RTOL, atol=RTOL)


@pytest.mark.parametrize(
    ("networks", "averaging", "alpha"), list(itertools.product([1, 2], ["none", "ramp"], [0.0, 1.0]))
)
def test_each_configuration_of_the_ablation_follows_algorithm_2(networks, averaging, alpha):
    assert_follows(networks=networks, averaging=averaging, alpha=alpha)


@pytest.mark.parametrize(
    "settings",
    [
        {"averaging": "fixed", "gamma": 0.9},
        {"averaging": "warmup", "gamma": 0.9},
        {"mix_per": "example"},
        {"ramp_lam": True, "update_labels": True, "lam": 7.0, "beta": 0.9, "ramp_length": 0.45},
        {"ramp_lam": True, "ramp_length": 1.0, "mix_per": "example", "update_labels": True},
        {"teacher_bn": "running"},
        {"teacher_bn": "running", "averaging": "none"},
        {"floor": 0.05, "clamp_penalty": True},
        {"floor": 0.0},
    ],
    ids=lambda settings: ",".join(f"{name}={value}" for name, value in settings.items()),
)
def test_each_switch_follows_algorithm_2(settings):
    assert_follows(**settings)
