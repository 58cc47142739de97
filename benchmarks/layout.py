"""Channels-last or not: a training step of image networks in both memory layouts, in turns."""

from typing import Any

import torch

from benchmarks.pairs import compare, interval, ratio
from benchmarks.update import update
from elr.engine.memory import freed_blocks_kept

NETWORKS = {  # network, shape of an image: images in a batch
    ("small_cnn", (1, 8, 8)): 64,
    ("small_cnn", (3, 32, 32)): 128,
    ("fastnet", (3, 32, 32)): 128,
    ("preact_resnet18", (3, 32, 32)): 32,
    ("resnet34", (3, 32, 32)): 32,
}
LAYOUTS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}


@freed_blocks_kept()
def run(rounds: int = 9) -> dict[str, Any]:
    """Measure every network in both precisions."""
    rows = []
    for (model, shape), batch in NETWORKS.items():
        for precision in (torch.float32, torch.bfloat16):
            sides = {name: update(model, shape, batch, precision, layout) for name, layout in LAYOUTS.items()}
            taken = compare(sides, rounds, repeat=20 if shape[-1] < 16 else 1)
            rows.append(
                {
                    "model": model,
                    "shape": shape,
                    "batch": batch,
                    "precision": str(precision).removeprefix("torch."),
                    "milliseconds": {name: interval(1e3 * values) for name, values in taken.items()},
                    "contiguous / channels-last": ratio(taken, "contiguous", "channels-last"),
                }
            )
            print(f"layout: {model} {shape} {rows[-1]['precision']}", flush=True)
    return {"benchmark": "layout", "rounds": rounds, "rows": rows}
