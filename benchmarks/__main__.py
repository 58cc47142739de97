"""``make bench``: every speed claim, measured; writes results/bench/*.json and docs/benchmarks.md."""

import argparse
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import evidence, fastnet, layout, loss, methods, pipeline, steps
from elr.report.machine import facts
from elr.report.records import read_json, write_json, write_text

BENCHMARKS: dict[str, Callable[[], dict[str, Any]]] = {
    "loss": loss.run,
    "pipeline": pipeline.run,
    "steps": steps.run,
    "fastnet": fastnet.run,
    "layout": layout.run,
    "methods": methods.run,
    "evidence": evidence.run,
}
RESULTS = Path("results/bench")
PAGE = Path("docs/benchmarks.md")


def main() -> None:
    """Run the benchmarks named (all by default), then render the page from the result files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"{', '.join(BENCHMARKS)}; default: all; none: only render")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    names = [] if args.names == ["none"] else args.names or list(BENCHMARKS)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in names:
        result = BENCHMARKS[name]()
        about: dict[str, Any] = {"command": f"python -m benchmarks {name}", "date": str(datetime.date.today())}
        about |= {"threads": result.pop("threads", args.threads), "facts": facts()}
        write_json(RESULTS / f"{name}.json", {**about, **result})
        print(f"{name}: done", flush=True)
    write_text(PAGE, render())


def render() -> str:
    """The page, from the result files."""
    found = {name: read_json(path) for name in BENCHMARKS if (path := RESULTS / f"{name}.json").exists()}
    parts = [
        "# Benchmarks\n\nRendered from `results/bench/*.json` by `make bench`; do not edit. Sides of a comparison take "
        "turns\nin one process; a number is the median over rounds with its bootstrap 95 % interval; ratios are taken "
        "round by\nround.\n"
    ]
    for name, result in found.items():
        f = result["facts"]
        parts.append(
            f"\n## {name}\n\n`{result['command']}`, {result['date']}, {f['cpu']}, {f['cores']} cores, "
            f"{result['threads']} thread(s), torch {f['torch']}, Python {f['python']}, commit {f['commit']}.\n\n"
            + TABLES[name](result)
        )
    return "".join(parts)


def cell(value: dict[str, float], digits: int = 2) -> str:
    """median [low, high]."""
    return f"{value['median']:,.{digits}f} [{value['low']:,.{digits}f}, {value['high']:,.{digits}f}]"


def loss_table(result: dict[str, Any]) -> str:
    """Loss and target update, forward and backward."""
    head = f"n = {result['examples']:,}; goal: ratio at least 1 everywhere, aim 2 for C <= 100.\n\n"
    head += "| B | C | ELRLoss, µs | transcription of the authors' loss, µs | ratio |\n|---|---|---|---|---|\n"
    rows = [
        f"| {r['batch']} | {r['classes']} | {cell(r['microseconds']['elr'], 0)} "
        f"| {cell(r['microseconds']['transcription'], 0)} | {cell(r['transcription / elr'])} |\n"
        for r in result["rows"]
    ]
    return head + "".join(rows)


def pipeline_table(result: dict[str, Any]) -> str:
    """Crop, flip and normalise in-memory CIFAR."""
    times = result["microseconds_per_image"]
    head = f"Batch {result['batch_size']}; goal: ratio at least 10.\n\n| | µs an image |\n|---|---|\n"
    rows = "".join(f"| {name} | {cell(value)} |\n" for name, value in times.items())
    return head + rows + f"\nRatio {cell(result['ratio'], 1)}.\n"


def steps_table(result: dict[str, Any]) -> str:
    """Steps relative to cross entropy."""
    head = "Goals: ELR at most 1.03 (resnet34) and 1.10 (small_cnn); ELR+ at most 2.8 (8/3 by arithmetic).\n\n"
    head += "| network | batch | CE images/s | method | cost relative to CE |\n|---|---|---|---|---|\n"
    rows = [
        f"| {r['model']} | {r['batch']} | {cell(r['ce images/s'], 0)} | {r['method']} "
        f"| {cell(r[r['method'] + ' / ce'], 3)} |\n"
        for r in result["rows"]
    ]
    return head + "".join(rows)


def fastnet_table(result: dict[str, Any]) -> str:
    """fastnet beside resnet34."""
    head = "Goal: at least 40 at equal precision.\n\n"
    head += "| precision | fastnet images/s | resnet34 images/s | ratio |\n|---|---|---|---|\n"
    rows = [
        f"| {r['precision']} | {cell(r['images/s']['fastnet'], 0)} | {cell(r['images/s']['resnet34'], 1)} "
        f"| {cell(r['fastnet / resnet34'], 1)} |\n"
        for r in result["rows"]
    ]
    return head + "".join(rows)


def layout_table(result: dict[str, Any]) -> str:
    """A training step in two memory layouts."""
    head = "A training step, ms; channels-last is the default (`runtime.channels_last`).\n\n"
    head += "| network | images | precision | contiguous | channels-last | ratio |\n|---|---|---|---|---|---|\n"
    rows = [
        f"| {r['model']} | {r['batch']} of {'x'.join(map(str, r['shape']))} | {r['precision']} "
        f"| {cell(r['milliseconds']['contiguous'], 1)} | {cell(r['milliseconds']['channels-last'], 1)} "
        f"| {cell(r['contiguous / channels-last'])} |\n"
        for r in result["rows"]
    ]
    return head + "".join(rows)


def methods_table(result: dict[str, Any]) -> str:
    """Epochs of every method relative to cross entropy."""
    settings, rows = result["settings"], result["rows"]
    step = rows[0]["ce milliseconds a step"]["median"]
    head = (
        f"An epoch, mean over a run of {result['epochs']}, sweeps and mixture fits included, evaluation not; "
        f"{settings['model.name']} of\nwidth {settings['model.width']}, {result['examples']:,} images of "
        f"3x{result['side']}x{result['side']}, batch {settings['optim.batch_size']}; a step of cross entropy takes "
        f"{step:.0f} ms, so that what a\nmethod adds in Python counts little, as with networks of real use. Goal: "
        f"at most {methods.LIMIT:g} times the arithmetic, or a reason.\n\n"
    )
    head += "| method | cost relative to CE | by arithmetic | ratio | why more |\n|---|---|---|---|---|\n"
    return head + "".join(
        f"| {r['method']} | {cell(r['cost / ce'])} | {r['arithmetic']:.2f} "
        f"| {r['cost / ce']['median'] / r['arithmetic']:.2f} | {methods.remark(r)} |\n"
        for r in rows
    )


def evidence_table(result: dict[str, Any]) -> str:
    """Steps with evidence kept and without."""
    head = f"{result['bytes_an_example']} bytes an example; goal: at most 1.03.\n\n"
    head += "| network | batch | method | images/s | with evidence, relative |\n|---|---|---|---|---|\n"
    return head + "".join(
        f"| {r['model']} | {r['batch']} | {r['method']} | {cell(r['images/s'], 0)} "
        f"| {cell(r['watched / plain'], 3)} |\n"
        for r in result["rows"]
    )


TABLES = {
    "loss": loss_table,
    "pipeline": pipeline_table,
    "steps": steps_table,
    "fastnet": fastnet_table,
    "layout": layout_table,
    "methods": methods_table,
    "evidence": evidence_table,
}

if __name__ == "__main__":
    main()
