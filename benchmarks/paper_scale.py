"""Every cell of every figure and table at the paper's scale: its real network is built and trained for two steps.

    python -m benchmarks.paper_scale

Pictures are random and batches small: this shows that nobody with a GPU and the data will meet an error of ours after
hours of queueing, and nothing else. Writes results/paper_scale.json.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elr.config import Config
from elr.data import Data, Examples
from elr.data.augment import CIFAR10, IMAGENET, CropTransform, ImageTransform
from elr.data.inputs import TensorInputs
from elr.engine.evaluate import EvaluateConfig
from elr.engine.train import Job, train
from elr.report.machine import facts
from elr.report.records import write_json
from elr.reproduce.catalogue import EXPERIMENTS

CLASSES = {"cifar10": 10, "cifar100": 100, "clothing1m": 14, "mini_webvision": 50}
BATCH = 8
CROPS = {"clothing1m": 224, "mini_webvision": 227}


def pictures(source: str, count: int) -> Data:
    """Random pictures of the size and with the classes of a data set."""
    classes, crop = CLASSES[source], CROPS.get(source)
    rng = np.random.default_rng(0)
    side = 256 if crop else 32
    x = torch.from_numpy(rng.integers(0, 256, (count, 3, side, side), dtype=np.uint8))
    y = rng.integers(0, classes, count)
    transform = CropTransform(*IMAGENET, flip=True, size=crop) if crop else ImageTransform(*CIFAR10, pad=4, flip=True)
    names = tuple(map(str, range(classes)))
    return Data(source, Examples(TensorInputs(x), y, np.arange(count)), None, None, names, transform)


def kind(config: Config) -> str:
    """What makes two cells the same program: not the noise, not numbers."""
    switches = {k: v for k, v in config.method.arguments.items() if isinstance(v, bool | str) or k == "networks"}
    told = ", ".join(f"{k}={v}" for k, v in switches.items() if v != _default(config, k))
    return f"{config.data.source} {config.model.name} {config.method.name}{f' ({told})' if told else ''}"


def _default(config: Config, name: str) -> Any:
    return getattr(type(config.make_method())(), name, None)


def two_steps(config: Config) -> dict[str, Any]:
    """Train for as many epochs as the method has stages, two batches each."""
    data = pictures(config.data.source, 2 * BATCH)
    initial = {key: value for key, value in config.model.arguments.items() if key not in ("weights", "pretrained")}
    config = replace(config, model=replace(config.model, arguments=initial))
    method = config.make_method()
    stages = len(method.plan(1))
    started = time.perf_counter()
    optim = replace(config.optim, batch_size=BATCH)
    make = config.model_maker(data.shape, data.num_classes)
    job = Job(method, make, data, stages, optim, config.make_schedule(), EvaluateConfig(test_every=0), seed=0)
    records = train(job).records
    weights = sum(p.numel() for net in method.nets for p in net.parameters())
    return {
        "parameters": weights,
        "stages": stages,
        "loss": records[-1]["loss"],
        "seconds": round(time.perf_counter() - started, 1),
    }


def main() -> None:
    """Run what is distinct among all cells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/paper_scale.json"))
    args = parser.parse_args()
    cells: dict[str, tuple[str, Config]] = {}
    for experiment in EXPERIMENTS.values():
        for trial in experiment.trials("paper", {}, 1):
            cells.setdefault(kind(trial.config), (f"{experiment.name} {trial.spec.label}", trial.config))
    rows = []
    for number, (what, (first, config)) in enumerate(cells.items(), start=1):
        rows.append({"cell": what, "first": first, **two_steps(config)})
        print(f"{number}/{len(cells)} {what}: {rows[-1]['seconds']} s", flush=True)
        write_json(args.out, {"command": "python -m benchmarks.paper_scale", "facts": facts(), "rows": rows})


if __name__ == "__main__":
    main()
