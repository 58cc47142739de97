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
    "asymmetric": {"optim.lr": 0.06, "method.beta": 0.1, "method.lam": 600.0},
    "cifar100": {"optim.lr": 0.35, "method.beta": 0.4, "method.lam": 1000.0},  # 10,000 is also quoted
}


def of_arazo(data: str, noise: str, rate: float) -> str:
    """The method whose number Table 2 has in this cell of the column MD-DYR-SH."""
    return "m_dyr_h" if noise == "symmetric" and (data, rate) in HARD else "md_dyr_sh"


def values(scale: Scale, method: str, data: str, noise: str, rate: float) -> Settings:
    """Settings of a method in a cell of Tables 1 and 2, beside its defaults and its schedule."""
    if method == "sl":
        return {"method.alpha": 6.0, "method.beta": 0.1} if data == "cifar100" else {}
    if method == "co_teaching_plus":
        return {"method.warmup": 5 / 200} if data == "cifar100" else {}
    if method == "dividemix":
        return _dividemix(data, noise, rate)
    if method == "pencil":
        return _pencil(scale, data, noise)
    return {}


def _dividemix(data: str, noise: str, rate: float) -> Settings:
    found: Settings = {"method.warmup": 30 / 300} if data == "cifar100" else {}
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
