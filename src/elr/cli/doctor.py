"""What this machine has, in plain lines."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from elr.data import DataConfig, clothing1m, ilsvrc, webvision
from elr.data.cifar import KINDS, find_cifar
from elr.data.published import find
from elr.engine.device import RuntimeConfig, bfloat16_works, fast_bfloat16
from elr.engine.memory import freed_blocks_kept
from elr.report.machine import facts

PUBLISHED = {
    "clothing1m": (clothing1m.FOLDERS, clothing1m.missing),
    "mini_webvision": (webvision.FOLDERS, webvision.missing),
    "ilsvrc12": (ilsvrc.FOLDERS, ilsvrc.missing),
}


EXTRAS = {"torchvision": "vision", "timm": "vision", "pyarrow": "parquet", "optuna": "tune"}


def examine(root: str | None) -> Iterator[str]:
    """Versions, devices, speed, data."""
    known = facts()
    for name, value in known.items():
        yield f"{name:<16}{value if value is not None else 'unknown'}"
    device = RuntimeConfig().resolved_device()
    yield f"{'device':<16}{device} (what runtime.device auto means here)"
    yield f"{'threads':<16}{torch.get_num_threads()}"
    speeds = {True: "fast on this CPU", False: "slow on this CPU: keep float32", None: "unknown"}
    speed = (
        speeds[fast_bfloat16(torch.device("cpu"))]
        if bfloat16_works()
        else "ends in an illegal instruction: keep float32"
    )
    yield f"{'bfloat16':<16}{speed}"
    with freed_blocks_kept() as kept:
        yield f"{'allocator':<16}{'training keeps large blocks (glibc)' if kept else 'left as it is'}"
    yield f"{'matrix speed':<16}{_gflops():.0f} GFLOP/s in float32"
    yield f"{'free disk':<16}{shutil.disk_usage(Path.cwd()).free / 2**30:.0f} GiB here"
    where = root or os.environ.get("ELR_DATA")
    for name in (*KINDS, *PUBLISHED):
        if where is None:
            yield f"{name:<16}no folder to look in: set ELR_DATA or give --data.root"
        elif name in KINDS:
            place = find_cifar(Path(where), name)
            yield f"{name:<16}{f'not found below {where}' if place is None else f'found in {place}'}"
        else:
            yield f"{name:<16}{_published(name, where)}"
    for package, extra in EXTRAS.items():
        if package not in known:
            yield f"{package:<16}{_installed(package, extra)}"


def _published(name: str, where: str) -> str:
    """Where a data set is, or what is missing of it."""
    folders, missing = PUBLISHED[name]
    try:
        return f"found in {find(name, DataConfig(name, root=where), folders, missing)}"
    except FileNotFoundError as error:
        return str(error)


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
