"""Facts that a number needs beside it: versions, machine, commit."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("elr", "torch", "numpy", "scikit-learn", "torchvision", "timm")


def facts() -> dict[str, str | int | None]:
    """Versions, processor, cores, commit of this source tree (None outside a checkout)."""
    found: dict[str, str | int | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found | {"platform": platform.platform(), "cpu": _cpu(), "cores": os.cpu_count(), "commit": _commit()}


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    here = Path(__file__).resolve().parent
    try:
        top = subprocess.run(
            ["git", "-C", str(here), "ls-files", "--error-unmatch", __file__],
            capture_output=True,
            timeout=10,
            check=False,
        )
        if top.returncode:
            return None  # installed from a wheel into somebody else's checkout
        done = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
