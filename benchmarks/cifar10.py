"""Full CIFAR-10 with 40 % symmetric noise, fastnet by recipe: cross entropy memorises, ELR and ELR+ do not.

    python -m benchmarks.cifar10 --root DIR [--methods ce elr elr_plus]

Runs go on where they stopped. The small files of each finished run are copied to results/cifar10_sym40/METHOD, and
docs/cifar10.md, with the paper's Figure 1 for these runs, is rendered from them.
"""

import argparse
import shutil
from pathlib import Path
from typing import Any

from elr.config import read_toml, resolve
from elr.data import load
from elr.engine.lines import Lines
from elr.job.run import run_job
from elr.report.figure1 import draw_figure1
from elr.report.records import read_json, read_lines, write_json, write_text

METHODS = {"ce": "cross entropy", "elr": "ELR", "elr_plus": "ELR+"}
KEPT = ("config.toml", "summary.json", "records.jsonl", "timing.jsonl", "noise.json", "data.json", "classes.json")
RESULTS = Path("results/cifar10_sym40")
PAGE = Path("docs/cifar10.md")
COLUMNS = {
    "best": "test, best epoch",
    "test_accuracy": "test, last epoch",
    "selected_test_accuracy": "test, chosen on noisy validation",
    "clean_correct": "clean labels right",
    "wrong_correct": "wrong labels right",
    "wrong_memorized": "wrong labels memorised",
}


def train(method: str, root: str, out: Path) -> None:
    """Run one recipe to its end and keep its small files."""
    config = resolve({**read_toml(Path(f"recipes/cifar10_sym40_fastnet_{method}.toml")), "data.root": root})
    data = load(config.data, config.noise, config.seed)
    maker = config.model_maker(data.shape, data.num_classes)
    run_job(config, data, maker, out / method, resume=True, progress=Lines(method, config.epochs))
    kept = RESULTS / method
    kept.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        shutil.copyfile(out / method / name, kept / name)
    # Where the data lay on one machine is nobody's business.
    lines = (kept / "config.toml").read_text().splitlines(keepends=True)
    write_text(kept / "config.toml", "".join(line for line in lines if not line.startswith("root = ")))
    command = f"python -m benchmarks.cifar10 --root DIR --methods {method}"
    write_json(kept / "summary.json", {**read_json(kept / "summary.json"), "command": command})


def render() -> str:
    """The page, from the result files."""
    found = {
        m: (read_json(RESULTS / m / "summary.json"), read_lines(RESULTS / m / "records.jsonl")) for m in finished()
    }
    head = "| | " + " | ".join(COLUMNS.values()) + " | training minutes |\n" + "|---" * (len(COLUMNS) + 2) + "|\n"
    rows = "".join(_row(METHODS[m], *found[m]) if m in found else f"| {METHODS[m]} | not run |\n" for m in METHODS)
    facts = next(iter(found.values()))[0]["facts"] if found else {}
    commits = ", ".join(f"{METHODS[m]} {summary['facts']['commit']}" for m, (summary, _) in found.items())
    return (
        "# CIFAR-10, 40 % symmetric noise, fastnet\n\nRendered from `results/cifar10_sym40` by "
        "`python -m benchmarks.cifar10`; do not edit. All 50,000 training images\n(45,000 train, 5,000 noisy "
        "validation), 36 % of the labels wrong, no augmentation (as in the paper's Figure 1), one seed.\n"
        "The best epoch is chosen on the test set and is there only to show how far the last one falls below it.\n\n"
        + head
        + rows
        + f"\nIn percent. {facts.get('cpu')}, {facts.get('cores')} cores, torch {facts.get('torch')}, "
        f"commits: {commits}.\n\n"
        "![what is predicted for clean and for wrong labels](figures/cifar10_sym40.svg)\n"
    )


def _row(title: str, summary: dict[str, Any], records: list[dict[str, Any]]) -> str:
    values = {**summary, "best": max(r["test_accuracy"] for r in records)}
    cells = " | ".join(f"{100 * values[key]:.1f}" for key in COLUMNS)
    return f"| {title} | {cells} | {summary['seconds'] / 60:.1f} |\n"


def finished() -> list[str]:
    """Methods with results."""
    return [method for method in METHODS if (RESULTS / method / "summary.json").exists()]


def main() -> None:
    """Train what is asked for, then render."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="folder with CIFAR-10; without it, only render")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--out", type=Path, default=Path("runs/cifar10_sym40"))
    args = parser.parse_args()
    for method in args.methods if args.root else []:
        train(method, args.root, args.out)
    curves = {METHODS[m]: read_lines(RESULTS / m / "records.jsonl") for m in finished()}
    figures = PAGE.parent / "figures"
    figures.mkdir(exist_ok=True)
    draw_figure1(curves, figures / "cifar10_sym40")
    write_text(PAGE, render())


if __name__ == "__main__":
    main()
