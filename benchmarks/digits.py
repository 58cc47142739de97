"""The demo over several seeds, and the two open questions about the clamps, on digits with 40 % of the labels replaced.

    python -m benchmarks.digits --seeds 5 --out results/digits.json

Every configuration runs on the same five (split, noise, initial weights) draws, so differences are paired by seed.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

from elr.config import resolve
from elr.data import load
from elr.demo import KEYS, SETTINGS
from elr.job.run import run_job
from elr.report.machine import facts
from elr.report.records import read_json, write_json

ARMS: dict[str, dict[str, Any]] = {
    "ce": {"method.name": "ce"},
    "early_stopping": {"method.name": "early_stopping"},
    "kl": {"method.name": "kl"},
    "elr": {"method.name": "elr"},
    "elr_plus": {"method.name": "elr_plus"},
    "elr, p clamped in the penalty": {"method.name": "elr", "method.clamp_penalty": True},
    "elr_plus, p clamped in the penalty": {"method.name": "elr_plus", "method.clamp_penalty": True},
    "elr, no floor": {"method.name": "elr", "method.floor": 0.0},
    "elr_plus, coefficient per example": {"method.name": "elr_plus", "method.mix_per": "example"},
    "elr_plus, running statistics": {"method.name": "elr_plus", "method.teacher_bn": "running"},
}


def run(arm: str, seed: int) -> dict[str, Any]:
    """Train one arm on one seed and return its headline numbers."""
    config = resolve({**SETTINGS, **ARMS[arm], "seed": seed, "evaluate.train_every": 0})
    data = load(config.data, config.noise, config.seed)
    with tempfile.TemporaryDirectory() as folder:
        out = run_job(config, data, config.model_maker(data.shape, data.num_classes), Path(folder) / "run")
        summary = read_json(out / "summary.json")
    return {key: summary[key] for key in (*KEYS, "wrong_other", "selected_epoch")}


def table(rows: dict[str, list[dict[str, Any]]]) -> str:
    """Mean and standard deviation over seeds, as Markdown."""
    keys = ("test_accuracy", "selected_test_accuracy", "clean_correct", "wrong_correct", "wrong_memorized")
    lines = ["| | " + " | ".join(keys) + " |", "|---" * (len(keys) + 1) + "|"]
    for arm, results in rows.items():
        cells = []
        for key in keys:
            values = [100 * result[key] for result in results]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.1f} ± {spread:.1f}")
        lines.append(f"| {arm} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run every arm on every seed; what is in the result file already is not run again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/digits.json"))
    args = parser.parse_args()
    found = json.loads(args.out.read_text()) if args.out.exists() else {"rows": {}}
    rows = found["rows"]
    for seed in range(args.seeds):
        for arm in ARMS:
            done = rows.setdefault(arm, [])
            if len(done) <= seed:
                done.append({"seed": seed, **run(arm, seed)})
                print(arm, done[-1], flush=True)
                command = f"python -m benchmarks.digits --seeds {args.seeds}"
                about = {"command": command, "settings": SETTINGS, "threads": torch.get_num_threads(), "facts": facts()}
                write_json(args.out, {**about, "rows": rows})
    print(table(rows))


if __name__ == "__main__":
    main()
