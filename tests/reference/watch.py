"""The product's own run, in its own engine, seen step by step, with the draws it made."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elr.data import Data, Examples
from elr.data.inputs import TensorInputs
from elr.engine.optim import OptimConfig
from elr.engine.schedule import Constant
from elr.engine.train import Job, RuntimeConfig, train
from elr.methods.base import Method
from elr.parts.table import ExampleTable
from reference.ce import Trajectory
from reference.tiny import TinyNet, blobs

OPTIM = {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3}


@dataclass
class Watched:
    """A run and what an oracle needs to repeat it."""

    x: Tensor
    y: Tensor
    start: list[nn.Module]
    trajectory: Trajectory = field(default_factory=Trajectory)
    passes: list[list[tuple[Tensor, Any]]] = field(default_factory=list)  # (rows, clock) of each batch, a list a pass

    @property
    def batches(self) -> list[list[int]]:
        """Rows of every batch."""
        return [rows.tolist() for batches in self.passes for rows, _ in batches]


def watch(method: Method, *, step: str = "step", n: int = 40, num_classes: int = 3, batch: int = 12, epochs: int = 13):
    """Train with float64 networks and inputs, so that what differs from the oracle is not the networks' rounding."""
    x, y, _ = blobs(n, num_classes)
    data = Data(
        "blobs",
        Examples(TensorInputs(torch.from_numpy(x)), y, np.arange(n)),
        None,
        None,
        tuple(map(str, range(num_classes))),
        lambda raw, ids, key, strong=False: raw.double(),
    )
    watched = Watched(torch.from_numpy(x).double(), torch.from_numpy(y), [])
    seen = watched.trajectory

    def make_model() -> nn.Module:
        net = TinyNet(num_classes, dtype=torch.float64)
        watched.start.append(net)
        return net

    own = getattr(method, step)

    def recorded(*args: Any) -> Any:
        *_, rows, clock = args
        if clock.batch == 0:
            watched.passes.append([])
            if len(watched.passes) == 1:  # the networks as they are before the first step
                watched.start = [_copy(net, num_classes) for net in method.nets]
        watched.passes[-1].append((rows.index, clock))
        result = own(*args)
        seen.loss.append(result.loss.item())
        return result

    setattr(method, step, recorded)

    class Watch:
        def batch(self, epoch: int, done: int, total: int) -> None:
            averages = [average.net for average in getattr(method, "averages", [])]
            tables = [m for m in method.modules() if isinstance(m, ExampleTable)]
            seen.targets.append([table.values.clone() for table in tables])
            seen.weights.append([w.detach().clone() for net in method.nets for w in net.parameters()])
            seen.averages.append([w.detach().clone() for net in averages for w in net.parameters()])
            seen.statistics.append([b.clone() for net in (*method.nets, *averages) for b in net.buffers()])

        def epoch(self, record: Any, seconds: float) -> None:
            pass

    optim = OptimConfig(batch_size=batch, **OPTIM)
    runtime = RuntimeConfig(device="cpu")
    train(Job(method, make_model, data, epochs, optim, Constant(), runtime=runtime, progress=Watch()))
    return watched


def _copy(net: nn.Module, num_classes: int) -> nn.Module:
    twin = TinyNet(num_classes, dtype=torch.float64)
    twin.load_state_dict(net.state_dict())
    return twin


def assert_same(product: Trajectory, oracle: Trajectory, *, rtol: float, names: tuple[str, ...]) -> None:
    """Every step, every tensor; an error names the first step that differs."""
    assert len(product.loss) == len(oracle.loss) >= 50
    for k, (ours, theirs) in enumerate(zip(product.loss, oracle.loss, strict=True)):
        assert abs(ours - theirs) <= rtol * max(1.0, abs(theirs)), f"loss of step {k}: {ours} and {theirs}"
    for name in names:
        for k, (ours, theirs) in enumerate(zip(getattr(product, name), getattr(oracle, name), strict=True)):
            assert len(ours) == len(theirs) > 0
            for a, b in zip(ours, theirs, strict=True):
                where = f"{name}, step {k}: "
                torch.testing.assert_close(a, b, rtol=rtol, atol=rtol, msg=lambda m, where=where: where + m)
