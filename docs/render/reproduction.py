"""The paper's figures and tables."""

from collections.abc import Mapping
from typing import Any

from docs.render.markdown import ROOT, plain, table
from elr.report.records import read_json
from elr.reproduce.catalogue import EXPERIMENTS


def experiments() -> str:
    """Every figure and table of the paper, from results/reproduce."""
    return "\n".join(_experiment(name) for name in EXPERIMENTS)


def _experiment(name: str) -> str:
    experiment = EXPERIMENTS[name]
    head = f"## {name}: {experiment.title}\n\n{experiment.place[0].upper()}{experiment.place[1:]}.\n\n"
    folder = ROOT / "results" / "reproduce" / name
    if not (folder / f"{name}.json").exists():
        return head + "Not run.\n"
    about = read_json(folder / f"{name}.json")
    _, _, text = (folder / f"{name}.md").read_text(encoding="utf-8").partition("\n\n")
    picture = f"![{experiment.title}](../results/reproduce/{name}/{name}.png)\n\n"
    picture = picture if (folder / f"{name}.png").exists() else ""
    source = f"`results/reproduce/{name}` (`{about['command']}`, {about['scale']} scale; {_made_of(about)})."
    return head + text.rstrip("\n") + f"\n\n{picture}{source}\n"


def _made_of(about: Mapping[str, Any]) -> str:
    """What was run, and where; of what trains nothing, where it was computed."""
    made = about["made_of"]
    if not made["runs"]:
        return f"{about['facts']['cpu']}, torch {about['facts']['torch']}"
    words = {"networks": "{}", "epochs": "{} epochs", "seeds": "seed {}", "precision": "{}", "machines": "{}"}
    parts = [_shares(made[key], word) for key, word in words.items()]
    runs = f"{made['runs']} run{'s' if made['runs'] > 1 else ''}, {made['minutes']:.0f} minutes of training"
    return "; ".join([runs, *parts])


def _shares(counts: Mapping[str, int], word: str) -> str:
    """``float32 (17), bfloat16 (6)``; without numbers if all are alike."""
    if len(counts) == 1:
        return word.format(next(iter(counts)))
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{word.format(what)} ({count})" for what, count in ordered)


def paper_scale() -> str:
    """Which networks and methods were built at the paper's scale, from results/paper_scale.json."""
    path = ROOT / "results" / "paper_scale.json"
    if not path.exists():
        return "not run\n"
    found = read_json(path)
    cells: dict[str, list[str]] = {}
    for row in found["rows"]:
        source, network, method = row["cell"].split(" ", 2)
        cells.setdefault(f"{source}, {network}", []).append(f"`{method}`")
    rows = [(plain(what), ", ".join(methods)) for what, methods in cells.items()]
    facts = found["facts"]
    return (
        table(("data set, network", "methods built and trained for two steps"), rows)
        + f"\n{len(found['rows'])} programs, random pictures, small batches; `results/paper_scale.json` "
        + f"(`{found['command']}`; {facts['cpu']}, torch {facts['torch']}).\n"
    )
