"""What keeping evidence of every example costs: steps with it and without, on the same network and data."""

from typing import Any

from benchmarks.pairs import compare, interval, ratio
from benchmarks.steps import passes
from elr.engine.memory import freed_blocks_kept
from elr.engine.witness import BYTES

CASES = (
    # network, input, batch, batches timed together
    ("small_cnn", (1, 8, 8), 64, 22),  # an epoch of digits
    ("small_cnn", (1, 8, 8), 128, 40),
    ("fastnet", (3, 32, 32), 128, 4),
    ("resnet18", (3, 32, 32), 128, 1),
)


@freed_blocks_kept()
def run(rounds: int = 21) -> dict[str, Any]:
    """Measure every case for CE, which has no targets of its own, ELR and ELR+."""
    rows = []
    for model, shape, batch, batches in CASES:
        for method in ("ce", "elr", "elr_plus") if model == "small_cnn" else ("elr",):
            sides = {
                name: passes(method, model, shape, batch, batches, watched=name == "watched")
                for name in ("plain", "watched")
            }
            taken = compare(sides, rounds if model == "small_cnn" else max(11, rounds // 3))
            rows.append(
                {
                    "model": model,
                    "batch": batch,
                    "method": method,
                    "images/s": interval(batch * batches / taken["plain"]),
                    "watched / plain": ratio(taken, "watched", "plain"),
                }
            )
    return {"benchmark": "evidence", "rounds": rounds, "bytes_an_example": BYTES, "rows": rows}
