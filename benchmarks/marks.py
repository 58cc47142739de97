"""The marks: CIFAR-10 with 40 % symmetric noise, the paper's accuracies on two CPU cores, accuracy against minutes.

    python -m benchmarks.marks --root DIR                  every mark that has a recipe and no result yet
    python -m benchmarks.marks --root DIR --only 45min     one of them
    python -m benchmarks.marks --draw                      the curve again, from the results

The last epoch counts, on the test set, which chose nothing. Training minutes and evaluation minutes are apart. A run
that was stopped goes on from its last epoch. Nothing else should run on the machine meanwhile.
"""

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from elr.config import Config, read_toml, resolve
from elr.data import load
from elr.job.run import run_job
from elr.report.drawing import new_figure, plain, write_figure
from elr.report.records import read_json, read_lines, write_json

# Recipe: the paper's accuracy, where it is from (LaTeX source of Liu et al., NeurIPS 2020), minutes allowed here.
MARKS = {
    "45min": (89.15, "Table 1, ELR, ResNet-34", 45),
    "66min": (91.43, "Table 1, ELR with cosine annealing, ResNet-34", 66),
    "138min": (93.68, "Table 5, ELR+ with all elements", 138),
}
COLOURS = dict(zip(MARKS, ("#1f4e9c", "#2a7f3f", "#b3201b"), strict=True))
RESULTS = Path("results/marks")


def recipe(name: str) -> Path:
    """File of a mark's recipe."""
    return Path(f"recipes/cifar10_sym40_{name}.toml")


def run(name: str, root: str, runs: Path) -> dict[str, Any]:
    """Train by the recipe, or go on with it, and read what it recorded."""
    started = time.perf_counter()
    config = resolve({**read_toml(recipe(name)), "data.root": root})
    data = load(config.data, config.noise, config.seed)
    loading = time.perf_counter() - started
    out = run_job(config, data, config.model_maker(data.shape, data.num_classes), runs / name, resume=True)
    summary = read_json(out / "summary.json")
    records, timing = read_lines(out / "records.jsonl"), read_lines(out / "timing.jsonl")
    curve, train, evaluate = [], loading, 0.0
    for record, took in zip(records, timing, strict=True):
        train += took["train_seconds"]
        evaluate += took["evaluate_seconds"]
        keys = ("epoch", "stage", "test_accuracy", "val_accuracy", "relabelled")
        told = {key: record[key] for key in keys if key in record}
        curve.append({"minutes": train / 60, "evaluate_minutes": evaluate / 60, **told})
    mark, source, allowed = MARKS[name]
    return {
        "command": f"python -m benchmarks.marks --root DIR --only {name}",
        "recipe": recipe(name).name,
        "mark": mark,
        "mark_source": source,
        "minutes_allowed": allowed,
        "test_accuracy": summary["test_accuracy"],
        "minutes": train / 60,
        "loading_seconds": loading,
        "evaluate_minutes": evaluate / 60,
        "train_images": len(data.train.y),
        "seed": config.seed,
        **{key: summary[key] for key in ("clean_correct", "wrong_correct", "wrong_memorized", "threads", "facts")},
        "settings": _settings(config),
        "curve": curve,
    }


def _settings(config: Config) -> dict[str, Any]:
    return {
        "method": {"name": config.method.name, **config.method.arguments},
        "model": {"name": config.model.name, **config.model.arguments},
        "optim": asdict(config.optim),
        "schedule": {"name": config.schedule.name, **config.schedule.arguments},
        "epochs": config.epochs,
    }


def draw() -> None:
    """Every result there is; each mark as a level line that ends where its time does."""
    figure = new_figure(7.0, 4.2)
    axis = figure.subplots()
    for name, (mark, _, allowed) in MARKS.items():
        axis.hlines(mark, 0, allowed, color=COLOURS[name], linestyle="--", label=f"{mark:g} in {allowed} minutes")
        if (path := RESULTS / f"{name}.json").exists():
            found = read_json(path)
            tested = [point for point in found["curve"] if "test_accuracy" in point]
            minutes = [point["minutes"] for point in tested]
            accuracies = [100 * point["test_accuracy"] for point in tested]
            axis.plot(minutes, accuracies, color=COLOURS[name], label=found["recipe"])
            axis.plot(minutes[-1:], accuracies[-1:], "o", color=COLOURS[name])
    axis.set_ylim(70, 95)
    axis.set_xlabel("minutes of training on two CPU cores")
    axis.set_ylabel("test accuracy, %")
    axis.legend(loc="lower right", fontsize=8, frameon=False)
    plain(axis)
    write_figure(figure, RESULTS / "curve")


def main() -> None:
    """Run what has no result yet, then draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="folder with CIFAR-10")
    parser.add_argument("--only", choices=MARKS, help="one mark")
    parser.add_argument("--runs", type=Path, default=Path("runs/marks"), help="folder of the runs")
    parser.add_argument("--draw", action="store_true", help="draw only")
    args = parser.parse_args()
    if not args.draw:
        if args.root is None:
            parser.error("--root is needed: the folder with CIFAR-10")
        RESULTS.mkdir(parents=True, exist_ok=True)
        for name in [args.only] if args.only else MARKS:
            if not recipe(name).exists():
                print(f"{name}: no recipe yet")
            elif not (path := RESULTS / f"{name}.json").exists():
                write_json(path, run(name, args.root, args.runs))
    draw()


if __name__ == "__main__":
    main()
