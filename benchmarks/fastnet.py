"""fastnet: training images per second beside resnet34, in the same run and at the same precision."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from benchmarks.pairs import compare, interval, ratio
from elr.engine.memory import keep_freed_blocks
from elr.engine.optim import OptimConfig, build_optimizer
from elr.models import make_model

BATCH = {"fastnet": 512, "resnet34": 128}


def step(model: str, precision: torch.dtype) -> Callable[[], None]:
    """One update of a network on synthetic images, channels-last."""
    torch.manual_seed(0)
    net = make_model(model, (3, 32, 32), 10)
    net.to(memory_format=torch.channels_last)
    optimizer = build_optimizer(net, OptimConfig(lr=1e-3))
    x = torch.randn(BATCH[model], 3, 32, 32).to(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (BATCH[model],))

    def side() -> None:
        with torch.autocast("cpu", precision, enabled=precision != torch.float32):
            logits = net(x)
        functional.cross_entropy(logits.float(), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return side


def run(rounds: int = 11) -> dict[str, Any]:
    """Measure both networks in both precisions."""
    keep_freed_blocks()
    rows = []
    for precision in (torch.float32, torch.bfloat16):
        taken = compare({model: step(model, precision) for model in BATCH}, rounds)
        seconds = {model: values / BATCH[model] for model, values in taken.items()}  # per image
        rows.append(
            {
                "precision": str(precision).removeprefix("torch."),
                "images/s": {model: interval(1.0 / values) for model, values in seconds.items()},
                "fastnet / resnet34": ratio(seconds, "resnet34", "fastnet"),
            }
        )
    return {"benchmark": "fastnet", "rounds": rounds, "batch": BATCH, "rows": rows}
