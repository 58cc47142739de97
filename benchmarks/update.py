"""One update of a network on synthetic images: what speed comparisons of networks have in common."""

from collections.abc import Callable

import torch
from torch.nn import functional

from elr.engine.optim import OptimConfig, build_optimizer
from elr.models import make_model


def update(
    model: str, shape: tuple[int, ...], batch: int, precision: torch.dtype, layout: torch.memory_format
) -> Callable[[], None]:
    """A function that trains the network by one step."""
    torch.manual_seed(0)
    net = make_model(model, shape, 10)
    net.to(memory_format=layout)
    optimizer = build_optimizer(net, OptimConfig(lr=1e-3))
    x = torch.randn(batch, *shape).to(memory_format=layout)
    y = torch.randint(0, 10, (batch,))

    def side() -> None:
        with torch.autocast("cpu", precision, enabled=precision != torch.float32):
            logits = net(x)
        functional.cross_entropy(logits.float(), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return side
