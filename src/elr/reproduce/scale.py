"""The two scales of an experiment: the paper's own settings, and one fixed schedule for a CPU with two cores."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from elr.engine.device import quick_precision
from elr.methods import METHODS

Scale = Literal["laptop", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
Settings = dict[str, Any]

# One schedule for everything at this scale: for a run of cross entropy on 45,000 images 7 to 13 CPU-minutes where
# bfloat16 is quick, 30 and more where it is not. In steps, as the paper's: with a rate that falls all the time, as in
# one cycle, the targets of ELR have no time to become sure before it is low enough to memorise, and without
# augmentation half of the wrong labels were memorised (docs/LOG.md).
LAPTOP: Mapping[str, Any] = {
    "model.name": "fastnet",
    "epochs": 16,
    "optim.lr": 0.1,
    "optim.momentum": 0.9,
    "optim.nesterov": True,
    "optim.weight_decay": 5e-4,
    "optim.batch_size": 256,
    "schedule.name": "multistep",
    "schedule.milestones": (8, 13),
    "schedule.factor": 0.1,
}
# Restarts belong to the cosine rows of Table 1: two cycles, each long enough for a small network to settle.
LAPTOP_COSINE: Mapping[str, Any] = {
    **{key: value for key, value in LAPTOP.items() if not key.startswith("schedule.")},
    "schedule.name": "cosine",
    "schedule.period": 8,
    "schedule.min_lr": 0.005,  # of the first, as in the paper, a twentieth
}
# PAPER Section G.3, line 1147: ResNet-34, CIFAR-10 and CIFAR-100, and the same with cosine annealing.
PAPER_COSINE: Mapping[str, Any] = {
    "epochs": 150,
    "schedule.name": "cosine",
    "schedule.period": 10,
    "schedule.min_lr": 0.001,
}
PAPER_CIFAR100: Mapping[str, Any] = {"epochs": 150, "schedule.milestones": (80, 120)}
# PAPER Table G.2 and line 1100: what ELR+ has on CIFAR-100 and not on CIFAR-10.
PLUS_CIFAR100: Mapping[str, Any] = {"epochs": 250, "schedule.milestones": (200,)}
PLUS_CIFAR100_METHOD: Mapping[str, Any] = {"method.ramp_lam": True, "method.update_labels": True}
# Tables look at test and training set when training ends: a look at either costs a tenth of an epoch and more. Figures
# over epochs do so every time: entries of the gradient and the accuracy of targets are recorded with the sweep.
UNWATCHED: Mapping[str, Any] = {"evaluate.test_every": 0, "evaluate.train_every": 0}
WATCHED: Mapping[str, Any] = {
    "evaluate.test_every": 1,
    "evaluate.train_every": 1,
    "evaluate.terms": True,
    "evaluate.memory": 0.7,
}


def single(scale: Scale, data: str, *, cosine: bool = False) -> Settings:
    """Network and schedule of Table 1 and of the figures."""
    if scale == "laptop":
        # Not part of a run's identity; config.toml of the run records it.
        return {**(LAPTOP_COSINE if cosine else LAPTOP), "runtime.precision": quick_precision()}
    settings: Settings = {"model.name": "resnet34", **METHODS["ce"].authors}
    if cosine:
        settings = {key: value for key, value in settings.items() if not key.startswith("schedule.")}
        return {**settings, **PAPER_COSINE}
    return {**settings, **(PAPER_CIFAR100 if data == "cifar100" else {})}


def double(scale: Scale, data: str, method: str) -> Settings:
    """Network and schedule of Tables 2 and 5; at the paper's scale each method has its authors' schedule."""
    if scale == "laptop":
        return single(scale, data)
    authors = METHODS["elr_plus" if method == "ce" else method].authors
    settings: Settings = {"model.name": "preact_resnet18", **authors}
    if method in ("ce", "elr_plus") and data == "cifar100":
        settings |= PLUS_CIFAR100
    return settings


def elr_values(data: str, noise: str) -> Settings:
    """PAPER Section G.4, line 1154: lambda and beta."""
    lam, beta = (7.0, 0.9) if data == "cifar100" else (1.0, 0.9) if noise == "asymmetric" else (3.0, 0.7)
    return {"method.lam": lam, "method.beta": beta}


def plus_values(scale: Scale, data: str, noise: str) -> Settings:
    """The same for ELR+, with what it does on CIFAR-100 only. The ramp's 40,000 steps are those of the paper's runs."""
    values = elr_values(data, noise)
    if scale == "paper":
        values["method.ramp_length"] = 40000
    return {**values, **(PLUS_CIFAR100_METHOD if data == "cifar100" else {})}
