"""What this machine has, in plain lines."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from elr.data.cifar import KINDS, holds
from elr.engine.device import RuntimeConfig, fast_bfloat16
from elr.engine.memory import keep_freed_blocks
from elr.report.machine import facts


def examine(root: str | None) -> Iterator[str]:
    """Versions, devices, speed, data."""
    for name, value in facts().items():
        yield f"{name:<16}{value if value is not None else 'unknown'}"
    device = RuntimeConfig().resolved_device()
    yield f"{'device':<16}{device} (what runtime.device auto means here)"
    yield f"{'threads':<16}{torch.get_num_threads()}"
    speeds = {True: "fast on this CPU", False: "slow on this CPU: keep float32", None: "unknown"}
    yield f"{'bfloat16':<16}{speeds[fast_bfloat16(torch.device('cpu'))]}"
    yield f"{'allocator':<16}{'large blocks are kept (glibc)' if keep_freed_blocks() else 'left as it is (not glibc)'}"
    yield f"{'matrix speed':<16}{_gflops():.0f} GFLOP/s in float32"
    yield f"{'free disk':<16}{shutil.disk_usage(Path.cwd()).free / 2**30:.0f} GiB here"
    where = root or os.environ.get("ELR_DATA")
    for name in KINDS:
        if where is None:
            yield f"{name:<16}no folder to look in: set ELR_DATA or give --data.root"
        else:
            yield f"{name:<16}{'found' if holds(Path(where), name) else 'not found'} below {where}"
    for package, extra in (("torchvision", "vision"), ("timm", "vision"), ("pyarrow", "parquet")):
        yield f"{package:<16}{_installed(package, extra)}"


def _gflops(size: int = 1024, repeat: int = 5) -> float:
    a = torch.randn(size, size)
    best = float("inf")
    for _ in range(repeat):
        started = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best / 1e9


def _installed(package: str, extra: str) -> str:
    from importlib.util import find_spec

    return "installed" if find_spec(package) else f"not installed: pip install 'elr[{extra}]'"
