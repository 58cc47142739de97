"""The demo over seeds, the curve of fastnet and the marks."""

import statistics
from typing import Any

from docs.render.markdown import ROOT, table
from elr.report.records import read_json

TITLES = {"ce": "cross entropy", "elr": "ELR", "elr_plus": "ELR+"}
COLUMNS = {
    "test_accuracy": "test, last epoch",
    "selected_test_accuracy": "test, chosen on noisy validation",
    "clean_correct": "clean labels right",
    "wrong_correct": "wrong labels right",
    "wrong_memorized": "wrong labels memorised",
    "seconds": "seconds",
}


def digits() -> str:
    """The demo over seeds, from results/digits.json."""
    path = ROOT / "results" / "digits.json"
    if not path.exists():
        return "not run\n"
    found = read_json(path)
    head = "| | " + " | ".join(COLUMNS.values()) + " |\n|---" + "|---" * len(COLUMNS) + "|\n"
    rows = "".join(
        f"| {title} | " + " | ".join(_cell(found["rows"][arm], key) for key in COLUMNS) + " |\n"
        for arm, title in TITLES.items()
        if arm in found["rows"]
    )
    facts = found["facts"]
    source = f"Mean ± standard deviation in %; `results/digits.json` (`{found['command']}`; {facts['cpu']}, "
    return head + rows + f"\n{source}{found['threads']} thread(s), torch {facts['torch']}).\n"


def _cell(results: list[dict[str, Any]], key: str) -> str:
    scale = 1.0 if key == "seconds" else 100.0
    values = [scale * result[key] for result in results]
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def curve() -> str:
    """Accuracy against minutes, from results/fastnet_curve.json."""
    path = ROOT / "results" / "fastnet_curve.json"
    if not path.exists():
        return "not run\n"
    found = read_json(path)
    rows = "".join(
        f"| {'/'.join(map(str, row['widths']))} | {row['epochs']} | {row['seed']} | {100 * row['test_accuracy']:.2f} "
        f"| {row['minutes']:.1f} | {row['facts']['commit']} |\n"
        for row in sorted(found["rows"], key=lambda row: row["minutes"])
    )
    facts = found["facts"]
    source = f"`results/fastnet_curve.json` (`{found['command']}`; {facts['cpu']}, {found['threads']} threads, "
    head = "| channels | epochs | seed | test accuracy at the last epoch, % | training minutes | commit |\n"
    head += "|---|---|---|---|---|---|\n"
    return head + rows + f"\n45,000 training images; {source}torch {facts['torch']}).\n"


def marks() -> str:
    """Runs against the marks, from results/marks."""
    rows = []
    for path in sorted(
        (ROOT / "results" / "marks").glob("*.json"), key=lambda path: int(path.stem.removesuffix("min"))
    ):
        found = read_json(path)
        ours = 100 * found["test_accuracy"]
        missed = [f"{found['mark'] - ours:.2f} points"] if ours < found["mark"] else []
        if found["minutes"] > found["minutes_allowed"]:
            missed.append(f"{found['minutes'] - found['minutes_allowed']:.1f} minutes")
        settings, facts = found["settings"], found["facts"]
        rows.append(
            (
                f"{found['mark']:g} ({found['mark_source']}) in {found['minutes_allowed']}",
                f"`recipes/{found['recipe']}`: {settings['method']['name']}, "
                f"{'/'.join(map(str, settings['model']['widths']))} channels, {settings['epochs']} epochs",
                f"{ours:.2f}",
                f"{found['minutes']:.1f} + {found['evaluate_minutes']:.1f}",
                f"missed by {' and '.join(missed)}" if missed else "reached",
                f"{facts['cpu']}, {found['threads']} threads, torch {facts['torch']}, seed {found['seed']}",
            )
        )
    head = ("mark, minutes", "run", "test accuracy, last epoch, %", "minutes of training + evaluation", "", "machine")
    return table(head, rows) if rows else "not run\n"
