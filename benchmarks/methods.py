"""An epoch of every method relative to one of cross entropy, beside the arithmetic of forwards and backwards.

Short runs of the real engine, sweeps and mixture fits included, evaluation left out. The network is chosen so that a
step of cross entropy takes tens of milliseconds: on the digits' 8x8 inputs the few hundred microseconds of Python and
of loss arithmetic that every method adds would be a tenth of a step, and on a large network nothing at all.
"""

from typing import Any

import numpy as np

from benchmarks.pairs import interval
from elr.bench.timing import epoch_seconds
from elr.config import Config, resolve
from elr.data import Data, DataConfig, from_arrays
from elr.methods import METHODS

EXAMPLES = 640
SIDE = 16
CLASSES = 10
SETTINGS: dict[str, Any] = {"model.name": "small_cnn", "model.width": 32, "optim.batch_size": 128, "optim.lr": 0.02}
EPOCHS = 6
LIMIT = 1.15  # above its arithmetic by more than this, a method is made faster or has a reason here
REASONS = {
    "gce_truncated": "a run of 6 epochs prunes in every epoch from the third on, the authors' 120 in every tenth",
    "d2l": "it looks at ten batches after each epoch: little of CIFAR-10's 352, but all of the five here",
}


def pictures() -> Data:
    """Random images with a pattern for each class, 40 % of the labels replaced: selections have something to select."""
    rng = np.random.default_rng(0)
    true = rng.integers(CLASSES, size=EXAMPLES)
    patterns = rng.normal(size=(CLASSES, 3, SIDE, SIDE))
    x = 128 + 40 * patterns[true] + 30 * rng.normal(size=(EXAMPLES, 3, SIDE, SIDE))
    y = np.where(rng.random(EXAMPLES) < 0.4, rng.integers(CLASSES, size=EXAMPLES), true)
    return from_arrays(x.clip(0, 255).astype(np.uint8), y, config=DataConfig(val_fraction=0.0, pad=2))


def config(method: str) -> Config:
    """The same settings for all."""
    return resolve({**SETTINGS, "method.name": method})


def run(rounds: int = 5) -> dict[str, Any]:
    """Measure every method, each in turns with cross entropy."""
    data = pictures()
    rows: list[dict[str, Any]] = []
    for name in METHODS:
        sides = {"ce": config("ce"), "method": config(name)}
        taken: dict[str, list[float]] = {side: [] for side in sides}
        for turn in range(rounds + 1):  # the first round warms up
            for side in list(sides)[:: 1 if turn % 2 else -1]:
                seconds = epoch_seconds(sides[side], data, epochs=EPOCHS)
                if turn:
                    taken[side].append(seconds)
        ce, own = np.array(taken["ce"]), np.array(taken["method"])
        method = METHODS[name]()
        rows.append(
            {
                "method": name,
                "arithmetic": method.cost,
                "backwards": method.backwards,
                "ce milliseconds a step": interval(1e3 * ce / (EXAMPLES / SETTINGS["optim.batch_size"])),
                "cost / ce": interval(own / ce),
            }
        )
        print(f"methods: {name} {rows[-1]['cost / ce']['median']:.2f} (arithmetic {method.cost:.2f})", flush=True)
    about = {"examples": EXAMPLES, "side": SIDE, "settings": SETTINGS, "epochs": EPOCHS, "rounds": rounds}
    return {"benchmark": "methods", **about, "rows": rows}


def remark(row: dict[str, Any]) -> str:
    """Why a method costs more than its arithmetic, where it does."""
    if row["cost / ce"]["median"] <= LIMIT * row["arithmetic"]:
        return ""
    return REASONS.get(row["method"], "no reason known yet")
