"""fastnet: training images per second beside resnet34, in the same run and at the same precision."""

from typing import Any

import torch

from benchmarks.pairs import compare, interval, ratio
from benchmarks.update import update
from elr.engine.memory import freed_blocks_kept

BATCH = {"fastnet": 512, "resnet34": 128}


@freed_blocks_kept()
def run(rounds: int = 11) -> dict[str, Any]:
    """Measure both networks in both precisions."""
    rows = []
    for precision in (torch.float32, torch.bfloat16):
        sides = {m: update(m, (3, 32, 32), batch, precision, torch.channels_last) for m, batch in BATCH.items()}
        taken = compare(sides, rounds)
        seconds = {model: values / BATCH[model] for model, values in taken.items()}  # per image
        rows.append(
            {
                "precision": str(precision).removeprefix("torch."),
                "images/s": {model: interval(1.0 / values) for model, values in seconds.items()},
                "fastnet / resnet34": ratio(seconds, "resnet34", "fastnet"),
            }
        )
    return {"benchmark": "fastnet", "rounds": rounds, "batch": BATCH, "rows": rows}
