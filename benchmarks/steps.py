"""A training step of ELR, and an epoch of ELR+, relative to cross entropy with the same network and data."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.pairs import compare, interval, ratio
from elr.data.inputs import TensorInputs
from elr.data.stream import Stream, TrainData
from elr.engine.memory import freed_blocks_kept
from elr.engine.optim import OptimConfig, build_optimizer
from elr.engine.witness import Witness
from elr.methods import METHODS
from elr.models import make_model
from elr.parts.clock import Clock

CASES = (
    # network, input, batch, batches timed together, methods
    ("small_cnn", (1, 8, 8), 128, 10, ("elr",)),
    ("resnet34", (3, 32, 32), 128, 1, ("elr",)),
    ("fastnet", (3, 32, 32), 128, 2, ("elr", "elr_plus")),
    ("preact_resnet18", (3, 32, 32), 128, 1, ("elr_plus",)),
)


def passes(
    name: str, model: str, shape: tuple[int, ...], batch: int, batches: int, *, watched: bool = False
) -> Callable[[], None]:
    """``batches`` batches of every pass of the method: for ELR+ that is twice as many updates as for CE.

    Watched: with the evidence that the engine keeps of every example.
    """
    method = METHODS[name]()
    torch.manual_seed(0)
    n = batch * batches

    def make_net(k: int = 0) -> nn.Module:
        return make_model(model, shape, 10)

    method.build(make_net, n, 10)
    method.to(memory_format=torch.channels_last)  # as the engine has it
    method.train()
    optimizer = build_optimizer(method, OptimConfig(lr=1e-3, batch_size=batch))
    data = TrainData(
        TensorInputs(torch.randint(0, 256, (n, *shape), dtype=torch.uint8)),
        torch.randint(0, 10, (n,)),
        10,
        _scale,
        ids=torch.arange(n),
        batch_size=batch,
        device=torch.device("cpu"),
        channels_last=True,
    )
    epochs: Iterator[int] = iter(range(1 << 30))
    averages = method.belief() is None
    witness = Witness(data.y, None, 10, averages=averages, every=5) if watched else None

    def side() -> None:
        start = Clock(0, epoch=next(epochs), epochs=1 << 30, batches=batches)
        for turn, (stream, step) in enumerate(method.epoch(data, start)):
            for b, one in enumerate(data.batches(stream, start._replace(turn=turn))):
                result = step(one, start._replace(turn=turn, batch=b))
                result.loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                if result.then is not None:
                    result.then()
                if witness is not None and result.seen is not None:
                    witness.step(*result.seen, 1)
            if witness is not None:
                witness.take_in(1)

    assert data.num_batches(Stream()) == batches
    return side


def _scale(x: Tensor, ids: Tensor, key: int | None, *, strong: bool = False) -> Tensor:
    return x.float().div_(255)


@freed_blocks_kept()
def run(rounds: int = 31) -> dict[str, Any]:
    """Measure every case."""
    rows = []
    for model, shape, batch, batches, names in CASES:
        sides = {name: passes(name, model, shape, batch, batches) for name in ("ce", *names)}
        taken = compare(sides, rounds if model != "resnet34" else max(11, rounds // 2))
        images = batch * batches
        rows += [
            {
                "model": model,
                "batch": batch,
                "method": name,
                "ce images/s": interval(images / taken["ce"]),
                f"{name} / ce": ratio(taken, name, "ce"),
            }
            for name in names
        ]
    return {"benchmark": "steps", "rounds": rounds, "rows": rows}
