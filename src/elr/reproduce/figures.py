"""The paper's figures: which runs they are made of, and what is drawn from the records."""

from collections.abc import Sequence
from typing import Any

from elr.report.curves import Band, draw_bands, draw_points
from elr.report.figure1 import draw_figure1
from elr.report.records import Record
from elr.reproduce.experiment import Finished, Results, Shown, Spec, View, spread
from elr.reproduce.scale import WATCHED, Scale, Settings, elr_values, single

NOISE: Settings = {"data.source": "cifar10", "noise.kind": "symmetric", "noise.rate": 0.4}
SYM40 = "cifar10 symmetric 0.4"
SYM60 = "cifar10 symmetric 0.6"
BLUE, RED, LIGHT_BLUE, LIGHT_RED = "#1f4e9c", "#b3201b", "#7fb2e5", "#f0908a"
FRACTIONS = ("clean_correct", "wrong_correct", "wrong_memorized", "wrong_other")
# Augmentation off: with crops and flips a ResNet-34 memorises 17 % of the wrong labels in 120 epochs, and Figure 1
# cannot be seen (the authors' issue 23).
PLAIN: Settings = {"data.augment": False, **NOISE, **WATCHED}


def _run(scale: Scale, row: str, method: str, **arguments: float) -> Spec:
    own = {f"method.{name}": value for name, value in arguments.items()}
    return Spec(row, SYM40, {**single(scale, "cifar10"), **PLAIN, "method.name": method, **own})


def cross_entropy(scale: Scale) -> Spec:
    """Cross entropy, as ELR with lambda 0: the same bits, and targets are kept, which Figure D.1 needs."""
    return _run(scale, "CE", "elr", lam=0.0, beta=0.7)


def regularized(scale: Scale) -> Spec:
    """ELR with the paper's values."""
    return _run(scale, "ELR", "elr", lam=3.0, beta=0.7)


def kl(scale: Scale) -> list[Spec]:
    """PAPER Figure C.1: lambda 1, 5, 10."""
    return [_run(scale, f"KL, lambda {lam:g}", "kl", lam=lam, beta=0.7) for lam in (1.0, 5.0, 10.0)]


def sensitivity(scale: Scale) -> list[Spec]:
    """PAPER Figure H.1: beta, lambda, and alpha of mixup with one network, one at a time."""
    base = {**single(scale, "cifar10"), **NOISE, "noise.rate": 0.6}
    elr: Settings = {**base, "method.name": "elr", **elr_values("cifar10", "symmetric")}
    mixed: Settings = {**elr, "method.name": "elr_plus", "method.networks": 1, "method.averaging": "none"}
    return [
        *(Spec(f"beta {v:g}", SYM60, {**elr, "method.beta": v}) for v in (0.0, 0.5, 0.7, 0.9, 0.99)),
        *(Spec(f"lambda {v:g}", SYM60, {**elr, "method.lam": v}) for v in (1.0, 3.0, 5.0, 7.0, 10.0)),
        *(Spec(f"alpha {v:g}", SYM60, {**mixed, "method.alpha": v}) for v in (0.1, 1.0, 2.0, 5.0, 20.0)),
    ]


def _first(results: Results, row: str, column: str = SYM40) -> Finished | None:
    return next(iter(results[row, column]), None)


def _swept(run: Finished) -> list[Record]:
    return [record for record in run.records if "clean_correct" in record]


def _tidy(results: Results, keys: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"run": row, "seed": run.trial.seed, "epoch": record["epoch"], **{key: record.get(key) for key in keys}}
        for (row, _), runs in results.items()
        for run in runs
        for record in _swept(run)
    ]


def show_fractions(view: View) -> Shown:
    """Figures 1 and C.1."""
    results = view.results
    runs = {row: run for row, column in results if (run := _first(results, row, column)) is not None}
    if runs:
        draw_figure1({row: run.records for row, run in runs.items()}, view.stem)
    lines = [_fate(row, runs.get(row)) for row, _ in results]
    head = "| | clean labels right | wrong labels: true class | memorised | neither | test, last epoch |\n"
    text = head + "|---|---|---|---|---|---|\n" + "".join(lines)
    if "CE" in runs:
        memorized = runs["CE"].summary["wrong_memorized"]
        verdict = "counts" if memorized > 0.5 else "does not count"
        text += (
            f"\nCross entropy memorised {memorized:.1%} of the wrong labels by the last epoch: the figure {verdict} "
            "(it shows the phenomenon only if that is more than half).\n"
        )
    return Shown(_tidy(results, FRACTIONS), text)


def _fate(row: str, run: Finished | None) -> str:
    if run is None:
        return f"| {row} | not run | | | | |\n"
    values = [run.summary[key] for key in (*FRACTIONS, "test_accuracy")]
    return f"| {row} | " + " | ".join(f"{100 * value:.1f}" for value in values) + " |\n"


def band(run: Finished, term: str, label: str, colour: str) -> Band:
    """A term over the epochs, with its deviation over examples."""
    records = [record for record in _swept(run) if term in record]
    return Band(
        label,
        colour,
        [r["epoch"] for r in records],
        [r[term] for r in records],
        [r[f"{term}_sd"] for r in records],
    )


def _curve(run: Finished, key: str, label: str, colour: str) -> Band:
    records = [record for record in _swept(run) if key in record]
    return Band(label, colour, [r["epoch"] for r in records], [r[key] for r in records], None)


TERMS = ("ce", "pull", "total")


def show_gradient(view: View) -> Shown:
    """Figure 2: the entry of the gradient at the true class, for clean and for wrong labels."""
    keys = [f"{group}_{term}{sd}" for group in ("clean", "wrong") for term in TERMS for sd in ("", "_sd")]
    run = _first(view.results, "ELR")
    if run is None:
        return Shown([], "not run\n")
    panels = {
        "p - y + lambda g at the true class": [
            band(run, "clean_total", "clean labels", BLUE),
            band(run, "wrong_total", "wrong labels", RED),
        ],
        "clean labels": [
            band(run, "clean_ce", "cross entropy, p - y", BLUE),
            band(run, "clean_pull", "regularizer, lambda g", LIGHT_BLUE),
        ],
        "wrong labels": [
            band(run, "wrong_ce", "cross entropy, p - y", RED),
            band(run, "wrong_pull", "regularizer, lambda g", LIGHT_RED),
        ],
    }
    draw_bands(panels, view.stem, "epoch")
    last = _swept(run)[-1]
    text = "| last epoch | p - y | lambda g | sum |\n|---|---|---|---|\n" + "".join(
        f"| {group} labels | " + " | ".join(f"{last[f'{group}_{term}']:+.3f}" for term in TERMS) + " |\n"
        for group in ("clean", "wrong")
    )
    return Shown(_tidy(view.results, keys), text)


def show_targets(view: View) -> Shown:
    """Figure D.1: accuracy of the running averages, with and without the regularizer."""
    kinds = {"target_accuracy": "training rows", "held_accuracy": "held-out rows"}
    runs = {row: run for row in ("CE", "ELR") if (run := _first(view.results, row)) is not None}
    panels = {
        title: [_curve(run, key, f"targets, {row}", {"CE": RED, "ELR": BLUE}[row]) for row, run in runs.items()]
        for key, title in kinds.items()
    }
    if runs:
        draw_bands(panels, view.stem, "epoch", ylabel="true classes right", ylim=(0.0, 1.0))
    text = "| | best epoch, training rows | last | best, held-out rows | last |\n|---|---|---|---|---|\n"
    for row in ("CE", "ELR"):
        if row not in runs:
            text += f"| {row} | not run | | | |\n"
            continue
        cells = []
        for key in kinds:
            values = [record[key] for record in _swept(runs[row]) if key in record]
            cells += [f"{100 * max(values):.1f}", f"{100 * values[-1]:.1f}"]
        text += f"| {row} | " + " | ".join(cells) + " |\n"
    return Shown(_tidy(view.results, tuple(kinds)), text)


def show_sensitivity(view: View) -> Shown:
    """Figure H.1: test accuracy at the last epoch against beta, lambda and alpha."""
    rows: list[dict[str, Any]] = []
    panels: dict[str, list[tuple[float, list[float]]]] = {}
    text = "| | test, last epoch | runs |\n|---|---|---|\n"
    for (row, _), runs in view.results.items():
        name, value = row.split()
        accuracies = [100 * run.summary["test_accuracy"] for run in runs]
        rows += [
            {"parameter": name, "value": float(value), "seed": run.trial.seed, "test_accuracy": accuracy}
            for run, accuracy in zip(runs, accuracies, strict=True)
        ]
        if accuracies:
            panels.setdefault(name, []).append((float(value), accuracies))
        text += f"| {row} | {spread(accuracies) if runs else 'not run'} | {len(runs)} |\n"
    if panels:
        draw_points(panels, view.stem, "test accuracy, last epoch, %")
    return Shown(rows, text)
