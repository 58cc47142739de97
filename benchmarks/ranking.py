"""Which combination of evidence tells wrong labels from right ones: every candidate, judged on finished runs.

    python -m benchmarks.ranking RUN [RUN ...]

The runs must know the truth (noise injected by us, or a data set with true labels in --root). Candidates differ in the
odds they give the label (targets, mean margin, margin and early-learning peak, ...), in how much they sharpen, and in
where the share of wrong labels comes from (training rows, held-out rows, both). Writes results/audit/ranking.csv and
prints the means over runs of the same method and noise. For tuning: what it was run on is spent for judging.
"""

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elr.audit.evidence import Evidence, read_evidence
from elr.audit.posterior import posterior
from elr.audit.quality import combined, held_out, label_odds, moved, with_margin
from elr.audit.truth import auroc, average_precision, calibration_error
from elr.data import load
from elr.noise import NoiseManifest
from elr.report.machine import facts
from elr.report.records import write_csv, write_json
from elr.run import Run

OUT = Path("results/audit/ranking.json")
Array = npt.NDArray[Any]


def truth_of(run: Run, ids: list[str], root: str | None) -> Array:
    """True class numbers of these rows: for judging only."""
    if (run.path / "noise.npz").exists():
        manifest = NoiseManifest.load(run.path)
        known = dict(zip(map(str, manifest.ids.tolist()), manifest.old.tolist(), strict=True))
    else:
        config = run.config
        data = load(type(config.data)(**{**vars(config.data), "root": root}), config.noise, config.seed)
        known = {}
        for part in (data.train, data.val):
            if part is not None:
                true = part.y if part.y_true is None else part.y_true
                known |= dict(zip(map(str, part.ids.tolist()), true.tolist(), strict=True))
    return np.array([known[id_] for id_ in ids])


def odds_of(evidence: Evidence, y: Array) -> dict[str, Array | None]:
    """Candidates for the log odds of the label; None leaves what the targets say."""
    margin = evidence.margin.astype(np.float64)
    rows = np.arange(len(y))
    log = np.log(np.maximum(evidence.belief.astype(np.float64), 1e-12))
    own = log[rows, y].copy()
    log[rows, y] = -np.inf
    return {
        "targets": None,
        "margin": margin,
        "half the margin": margin / 2,
        "margin and targets": (margin + own - log.max(axis=1)) / 2,
        "margin and peak": label_odds(evidence),
    }


def judged(run: Run, root: str | None) -> Iterator[dict[str, Any]]:
    """Every candidate on one run."""
    rows, evidence = read_evidence(run.path, run.classes)
    y, p, held = rows.given, evidence.belief.astype(np.float64), evidence.held
    wrong = truth_of(run, list(rows.ids), root) != y
    outside = held_out(p[held], y[held])[0] if held.any() else None
    for name, odds in odds_of(evidence, y).items():
        for gamma in (1.5, 2.0, 3.0):
            found = posterior(p if odds is None else with_margin(p, y, odds), y, gamma)
            rates = {"training": found.rate, "held out": outside, "both": combined(found.rate, p, y, held)}
            for source, rate in rates.items():
                if rate is None:
                    continue
                quality = moved(found, y, rate)[np.arange(len(y)), y]
                flagged = quality < 0.5
                ranked = bool(wrong.any())
                yield {
                    "odds": name,
                    "gamma": gamma,
                    "rate from": source,
                    "average_precision": average_precision(wrong, -found.odds) if ranked else None,
                    "auroc": auroc(wrong, -found.odds) if ranked else None,
                    "f1": 2 * float((flagged & wrong).sum()) / max(float(flagged.sum() + wrong.sum()), 1.0),
                    "ece": calibration_error(quality, ~wrong),
                    "rate_error": rate - float(wrong.mean()),
                }


def main() -> None:
    """Judge all candidates on all runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--root", help="folder with CIFAR, for runs with human labels")
    args = parser.parse_args()
    table = []
    for path in args.runs:
        run = Run(path)
        noise = run.summary["noise"]
        kind = f"{noise['kind']} {noise['rate']:g}" if noise else f"labels {run.config.data.labels_column or 'clean'}"
        about = {"data": run.facts["name"], "noise": kind, "method": run.config.method.name, "seed": run.config.seed}
        table += [{**about, "epochs": run.config.epochs, **row} for row in judged(run, args.root)]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    write_csv(OUT.with_suffix(".csv"), table, digits=4)
    write_json(OUT, {"command": "python -m benchmarks.ranking RUNS", "runs": len(args.runs), "facts": facts()})
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in table:
        key = ", ".join(f"{row[name]}" for name in ("data", "noise", "method", "odds", "gamma", "rate from"))
        groups.setdefault(key, []).append(row)
    for key, rows in groups.items():
        means = {
            name: statistics.fmean([row[name] for row in rows if row[name] is not None] or [float("nan")])
            for name in ("average_precision", "auroc", "f1", "ece", "rate_error")
        }
        print(f"{key:<80}", "  ".join(f"{name} {value:+.4f}" for name, value in means.items()))


if __name__ == "__main__":
    main()
