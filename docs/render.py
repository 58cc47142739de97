"""Write the generated parts of the pages: README's file tree and demo table, fastnet's curve. ``make docs``."""

import ast
import json
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TITLES = {"ce": "cross entropy", "elr": "ELR", "elr_plus": "ELR+"}
COLUMNS = {
    "test_accuracy": "test, last epoch",
    "selected_test_accuracy": "test, chosen on noisy validation",
    "clean_correct": "clean labels right",
    "wrong_correct": "wrong labels right",
    "wrong_memorized": "wrong labels memorised",
    "seconds": "seconds",
}


def tree() -> str:
    """A line for each source file: the first line of its docstring."""
    lines = []
    for path in sorted((ROOT / "src" / "elr").rglob("*.py")):
        doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        lines.append(f"{path.relative_to(ROOT).as_posix():<38}{doc.partition(chr(10))[0].rstrip('.')}")
    return "```\n" + "\n".join(lines) + "\n```\n"


def digits() -> str:
    """The demo over seeds, from results/digits.json."""
    path = ROOT / "results" / "digits.json"
    if not path.exists():
        return "not run\n"
    found = json.loads(path.read_text(encoding="utf-8"))
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
    found = json.loads(path.read_text(encoding="utf-8"))
    rows = "".join(
        f"| {row['epochs']} | {row['seed']} | {100 * row['test_accuracy']:.2f} | {row['minutes']:.1f} |\n"
        for row in sorted(found["rows"], key=lambda row: (row["epochs"], row["seed"]))
    )
    facts = found["facts"]
    source = f"`results/fastnet_curve.json` (`{found['command']}`; {facts['cpu']}, {found['threads']} threads, "
    head = "| epochs | seed | test accuracy at the last epoch, % | training minutes |\n|---|---|---|---|\n"
    return head + rows + f"\n45,000 training images; {source}torch {facts['torch']}, commit {facts['commit']}).\n"


def between(text: str, name: str, body: str) -> str:
    """Replace what stands between the two marks of this name."""
    before, mark, rest = text.partition(f"<!-- {name}:begin -->\n")
    _, end, after = rest.partition(f"<!-- {name}:end -->")
    if not mark or not end:
        raise ValueError(f"there are no marks for {name}")
    return before + mark + body + end + after


PARTS = {"README.md": {"digits": digits, "tree": tree}, "docs/fastnet.md": {"curve": curve}}


def render(name: str) -> str:
    """A page with its generated parts up to date."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for mark, part in PARTS[name].items():
        text = between(text, mark, part())
    return text


if __name__ == "__main__":
    for name in PARTS:
        (ROOT / name).write_text(render(name), encoding="utf-8")
