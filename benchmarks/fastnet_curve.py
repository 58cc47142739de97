"""Accuracy against minutes: fastnet on clean CIFAR-10 by recipe, for several lengths.

    python -m benchmarks.fastnet_curve --root DIR --epochs 4 16
    python -m benchmarks.fastnet_curve --root DIR --epochs 12 --widths 48 192 192

The headline is the last epoch on the test set; nothing was chosen on it. The recipe's values are from published recipes
and from runs on 5,000 held-out training images (docs/fastnet.md).
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from elr.config import read_toml, resolve
from elr.data import load
from elr.job.run import run_job
from elr.report.machine import facts
from elr.report.records import read_json, read_lines, write_json

RECIPE = Path("recipes/cifar10_clean_fastnet.toml")


def run(root: str, widths: list[int], epochs: int, seed: int) -> dict[str, Any]:
    """Train once; minutes are of training, with the evaluation of every epoch apart."""
    changes = {"data.root": root, "model.widths": widths, "epochs": epochs, "seed": seed}
    config = resolve({**read_toml(RECIPE), **changes})
    data = load(config.data, config.noise, config.seed)
    with tempfile.TemporaryDirectory() as folder:
        out = run_job(config, data, config.model_maker(data.shape, data.num_classes), Path(folder) / "run")
        summary, records = read_json(out / "summary.json"), read_lines(out / "records.jsonl")
    return {
        "widths": widths,
        "epochs": epochs,
        "seed": seed,
        "test_accuracy": summary["test_accuracy"],
        "val_accuracy": records[-1]["val_accuracy"],
        "minutes": summary["seconds"] / 60,
        "facts": facts(),
    }


def main() -> None:
    """Run what the result file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CIFAR-10")
    parser.add_argument("--epochs", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--widths", type=int, nargs=3, default=[24, 112, 128], help="channels of the three groups")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/fastnet_curve.json"))
    args = parser.parse_args()
    rows = json.loads(args.out.read_text())["rows"] if args.out.exists() else []
    for epochs in args.epochs:
        if any((row["widths"], row["epochs"], row["seed"]) == (args.widths, epochs, args.seed) for row in rows):
            continue
        rows.append(run(args.root, args.widths, epochs, args.seed))
        print(rows[-1], flush=True)
        command = "python -m benchmarks.fastnet_curve --root DIR --epochs N --widths A B C"
        about = {"command": command, "threads": torch.get_num_threads(), "facts": facts()}
        write_json(args.out, {**about, "recipe": RECIPE.name, "rows": rows})


if __name__ == "__main__":
    main()
