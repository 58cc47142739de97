"""Which combination of evidence tells wrong labels from right ones: every candidate, where the truth is known.

    python -m benchmarks.ranking [--root DIR] [--labels cifar10n.npz] [--jobs 2] [--out runs/ranking]

Trains on digits, with --root on CIFAR-10 too, with --labels on human labels besides, with seeds that
`python -m benchmarks.audit` does not use: what this is run on is spent for judging. Candidates differ in the odds they
give the label (targets, mean margin, ...) and in where the transition matrix comes from: fitted to all rows by EM, or
counted in the surest rows that were not trained on; last comes what `elr audit` does. Runs that are finished are used
as they are. Writes results/audit/ranking.csv.
"""

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.audit import Setting, on_cifar, on_digits
from elr.audit.evidence import Evidence, read_evidence
from elr.audit.posterior import posterior
from elr.audit.quality import GAMMA, combined, held_out, judge, learnt, moved, with_margin
from elr.audit.truth import auroc, average_precision, calibration_error
from elr.data import Data, load
from elr.demo import SETTINGS as DIGITS
from elr.job.run import run_job
from elr.report.machine import facts
from elr.report.records import write_csv, write_json
from elr.run import Run

SEEDS = (10, 11)
OUT = Path("results/audit/ranking.json")
USED = "as used"  # both, the less of targets the more labels are learnt; class by class
Array = npt.NDArray[Any]


def truth_of(data: Data, ids: Sequence[str]) -> Array:
    """True class numbers of these rows: for judging only."""
    assert data.val is not None
    known: dict[str, int] = {}
    for part in (data.train, data.val):
        true = part.y if part.y_true is None else part.y_true
        known |= dict(zip(map(str, part.ids.tolist()), true.tolist(), strict=True))
    return np.array([known[id_] for id_ in ids])


def odds_of(evidence: Evidence, y: Array) -> dict[str, Array | None]:
    """Candidates for the log odds of the label; None leaves what the targets say."""
    margin = evidence.margin.astype(np.float64)
    peak = -np.log(np.expm1(np.clip(evidence.peak_loss.astype(np.float64), 1e-4, 20.0)))  # what half precision can tell
    rows = np.arange(len(y))
    log = np.log(np.maximum(evidence.belief.astype(np.float64), 1e-12))
    own = log[rows, y].copy()
    log[rows, y] = -np.inf
    return {
        "targets": None,
        "margin": margin,
        "margin and targets": (margin + own - log.max(axis=1)) / 2,
        "margin and peak": np.where(np.isnan(peak), margin, (margin + np.nan_to_num(peak)) / 2),
    }


def judged(run: Run, data: Data) -> Iterator[dict[str, Any]]:
    """Every candidate on one run."""
    rows, evidence = read_evidence(run.path, run.classes)
    y, p, held = rows.given, evidence.belief.astype(np.float64), evidence.held
    wrong = truth_of(data, rows.ids) != y
    outside = held_out(p[held], y[held])
    for name, odds in odds_of(evidence, y).items():
        belief = p if odds is None else with_margin(p, y, odds)
        fitted, counted = posterior(belief, y, GAMMA), posterior(belief, y, outside.gamma, outside.T)
        rate = combined(counted.rate, outside, learnt(p.argmax(axis=1) == y, held))
        for source, found, share in (("fitted", fitted, fitted.rate), ("surest", counted, rate)):
            quality = moved(found, y, share)[np.arange(len(y)), y]
            yield {"odds": name, "T": source, **_measured(found.odds, quality, share, wrong)}
    used = judge(p, y, evidence)
    yield {"odds": USED, "T": "surest", **_measured(used.quality, used.quality, used.rate, wrong)}


def _measured(order: Array, quality: Array, rate: float, wrong: Array) -> dict[str, float]:
    flagged = quality < 0.5
    return {
        "average_precision": average_precision(wrong, -order),
        "auroc": auroc(wrong, -order),
        "f1": 2 * float((flagged & wrong).sum()) / max(float(flagged.sum() + wrong.sum()), 1.0),
        "ece": calibration_error(quality, ~wrong),
        "rate_error": rate - float(wrong.mean()),
    }


def settings(root: str | None, labels: str | None) -> Iterator[tuple[Setting, tuple[str, ...]]]:
    """What is trained, and with which methods."""
    for seed in SEEDS:
        for name, noise in on_digits():
            if noise["noise.kind"] == "none":
                continue  # nothing to rank
            yield Setting(f"digits, {name}, seed {seed}", {**DIGITS, **noise, "seed": seed}), ("ce", "elr", "elr_plus")
    if root is not None:
        for name, own in on_cifar(root, labels):
            yield Setting(f"cifar10, {name}, seed {SEEDS[0]}", {**own, "seed": SEEDS[0]}), ("elr",)


def _work(out: Path, order: tuple[Setting, str]) -> list[dict[str, Any]]:
    """Train one run, if it is not there, and judge every candidate on it."""
    setting, method = order
    config = setting.config(method)
    data = load(config.data, config.noise, config.seed)
    maker = config.model_maker(data.shape, data.num_classes)
    path = run_job(config, data, maker, out / f"{setting.folder}-{method}", resume=True)
    data_set, noise, _ = setting.name.split(", ")
    about = {"data": data_set, "noise": noise, "method": method, "seed": config.seed, "epochs": config.epochs}
    return [{**about, **row} for row in judged(Run(path), data)]


def main() -> None:
    """Judge all candidates on all runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="folder with CIFAR-10; without it, digits only")
    parser.add_argument("--labels", help="human labels (CIFAR-10N .npz)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/ranking"))
    args = parser.parse_args()
    orders = [(setting, method) for setting, methods in settings(args.root, args.labels) for method in methods]
    table = []
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("forkserver")) as pool:
        for rows in pool.map(partial(_work, args.out), orders):
            table += rows
            used = next(row for row in rows if row["odds"] == USED)
            print(
                {key: round(value, 4) if isinstance(value, float) else value for key, value in used.items()}, flush=True
            )
    OUT.parent.mkdir(parents=True, exist_ok=True)
    write_csv(OUT.with_suffix(".csv"), table, digits=4)
    command = "python -m benchmarks.ranking --root DIR --labels FILE"
    write_json(OUT, {"command": command, "runs": len(orders), "facts": facts()})


if __name__ == "__main__":
    main()
