"""What the papers of the compared methods set for one data set or kind of noise and not for another.

Where a method's own paper has one value for all, it is the method's default. Sources: the notes of each method.
"""

from collections.abc import Mapping
from typing import Any

from elr.reproduce.scale import Scale, Settings

# Table 2 quotes the better of two methods of Arazo et al. in every cell, and names one of them. On CIFAR-10 with
# asymmetric noise it is not known which.
HARD = {("cifar10", 0.2), ("cifar10", 0.5), ("cifar10", 0.8), ("cifar100", 0.8)}
# PENCIL's rate falls in its last stage from .2; before, it is constant.
PENCIL_LAST = 0.2
PENCIL: Mapping[str, Mapping[str, Any]] = {
    # Alpha belongs to the authors' double softmax. That of the other settings, .1, is the method's default without it.
    "asymmetric": {
        "optim.lr": 0.06,
        "method.alpha": 0.4,
        "method.double_softmax": True,
        "method.beta": 0.1,
        "method.lam": 600.0,
    },
    "cifar100": {"optim.lr": 0.35, "method.beta": 0.4, "method.lam": 1000.0},  # 10,000 is also quoted
}
# DivideMix's weight of the unlabelled loss, by the rate of symmetric noise. With asymmetric noise it is 0, on CIFAR-100
# too, for which its authors have no value.
LAMBDA_U: Mapping[str, Mapping[float, float]] = {
    "cifar10": {0.2: 0.0, 0.5: 25.0, 0.8: 25.0, 0.9: 50.0},
    "cifar100": {0.2: 25.0, 0.5: 150.0, 0.8: 150.0, 0.9: 150.0},
}


def of_arazo(data: str, noise: str, rate: float) -> str:
    """The method whose number Table 2 has in this cell of the column MD-DYR-SH."""
    return "m_dyr_h" if noise == "symmetric" and (data, rate) in HARD else "md_dyr_sh"


def values(scale: Scale, method: str, data: str, noise: str, rate: float) -> Settings:
    """Settings of a method in a cell of Tables 1 and 2, beside its defaults and its schedule.

    mixup has its alpha, 1, everywhere: larger ones are quoted for much noise, and what the printed numbers had is not
    known.
    """
    if method == "sl":
        return {"method.alpha": 6.0, "method.beta": 0.1} if data == "cifar100" else {}
    if method == "co_teaching_plus":
        # Its authors tell it the share of wrong labels.
        told: Settings = {"method.rate": wrong_share(data, noise, rate)}
        return told | ({"method.warmup": 5 / 200} if data == "cifar100" else {})
    if method == "dividemix":
        return _dividemix(data, noise, rate)
    if method == "pencil":
        return _pencil(scale, data, noise)
    return {}


def wrong_share(data: str, noise: str, rate: float) -> float:
    """Share of labels that end up wrong in a cell: chance leaves some as they are, half of CIFAR-10's classes never."""
    num_classes = 100 if data == "cifar100" else 10
    if noise == "symmetric":
        return rate * (num_classes - 1) / num_classes
    return rate / 2 if data == "cifar10" else rate


def _dividemix(data: str, noise: str, rate: float) -> Settings:
    found: Settings = {"method.lambda_u": LAMBDA_U[data][rate] if noise == "symmetric" else 0.0}
    if data == "cifar100":
        found |= {"method.warmup": 30 / 300}
    if noise == "asymmetric":
        found |= {"method.confidence_penalty": True}
    if rate >= 0.9:
        found |= {"method.threshold": 0.6, "method.loss_memory": 5}
    return found


def _pencil(scale: Scale, data: str, noise: str) -> Settings:
    key = "cifar100" if data == "cifar100" else noise
    found = dict(PENCIL.get(key, {}))
    if scale == "laptop":  # whose rate is one for all methods
        return {name: value for name, value in found.items() if name != "optim.lr"}
    return {**found, "method.last_lr": PENCIL_LAST / found["optim.lr"]} if found else {}
