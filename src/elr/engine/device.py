"""Where the arithmetic runs, and the process-wide settings that training borrows and gives back."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

import torch

# A matrix product as oneDNN has it in training, in a process of its own.
TRIAL = "import torch; a = torch.ones(256, 256, dtype=torch.bfloat16); a @ a"
WITHOUT_AMX = "AVX512_CORE_BF16"  # what ONEDNN_MAX_CPU_ISA has to be for bfloat16 without AMX

_BORROWED = threading.RLock()  # torch's generators


def _unborrowed() -> None:
    """In a process that was forked while a thread of its parent trained, nobody would ever give the lock back."""
    global _BORROWED
    _BORROWED = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unborrowed)


@dataclass(frozen=True)
class RuntimeConfig:
    """Where and how the arithmetic runs. Not part of a run's identity; recorded with it."""

    device: str = field(default="auto", metadata={"help": "auto, cpu, cuda, cuda:1, mps"})
    threads: int | None = field(default=None, metadata={"help": "CPU threads (default: torch's choice)"})
    precision: Literal["float32", "bfloat16"] = field(
        default="float32",
        metadata={"help": "bfloat16: autocast forward passes, evaluation too; losses and targets stay in float32"},
    )
    channels_last: bool = field(
        default=True, metadata={"help": "channels-last memory layout of images and convolutions (never on mps): faster"}
    )
    compile: bool = field(default=False, metadata={"help": "torch.compile the networks"})

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"runtime.threads must be at least 1, got {self.threads}")
        if self.precision not in ("float32", "bfloat16"):
            raise ValueError(f"runtime.precision must be float32 or bfloat16, got {self.precision!r}")

    def layout(self, device: torch.device) -> bool:
        """Whether images are channels-last on this device: not on MPS, whose kernels are made for the other layout."""
        return self.channels_last and device.type != "mps"

    def autocast(self, device: torch.device) -> AbstractContextManager[None]:
        """The context of forward passes. It can be entered again and again."""
        if self.precision == "bfloat16":
            # Without its cache: many releases of torch keep weights that were cast under no_grad, and a network that
            # is looked at first and trained then, in the same step, would get no gradient (pytorch issue 112583).
            return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
        return nullcontext()

    def resolved_device(self) -> torch.device:
        """The device that ``auto`` means here, if it can compute in this precision."""
        device = self._device()
        if device.type == "cpu" and self.precision == "bfloat16" and not bfloat16_works():
            raise ValueError(
                "runtime.precision bfloat16 ends in an illegal instruction here: this machine shows AMX and does not "
                "say how to use it; take float32 (the quicker one), or set the environment variable "
                f"ONEDNN_MAX_CPU_ISA={WITHOUT_AMX}"
            )
        return device

    def _device(self) -> torch.device:
        if self.device != "auto":
            if self.device.partition(":")[0] == "meta":
                raise ValueError("runtime.device 'meta' holds no numbers; choose auto, cpu, cuda or mps")
            try:
                return torch.empty(0, device=self.device).device
            except (RuntimeError, AssertionError) as error:
                raise ValueError(
                    f"runtime.device {self.device!r} cannot be used here: {str(error).splitlines()[0]}"
                ) from error
        if torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def fast_bfloat16(device: torch.device) -> bool | None:
    """Whether bfloat16 is quick here: on a CPU it needs avx512_bf16 or amx_bf16; None if that cannot be told."""
    if device.type != "cpu":
        return True
    flags = _cpu_flags()
    return None if flags is None else bool(flags & {"avx512_bf16", "amx_bf16", "bf16"}) and bfloat16_works()


def quick_precision() -> str:
    """bfloat16 where it is quick, for runs that leave it to the machine: half the time on such a CPU."""
    return "bfloat16" if fast_bfloat16(torch.device("cpu")) or torch.cuda.is_available() else "float32"


@cache
def bfloat16_works() -> bool:
    """Whether a matrix product in bfloat16 leaves a CPU process alive.

    Some virtual machines show the AMX unit but hide its description (CPUID leaf 0x1D); oneDNN then uses tiles that it
    never configured. Nothing in a process can catch an illegal instruction, so where there is AMX another one tries.
    """
    if "amx_tile" not in (_cpu_flags() or ()):
        return True
    return subprocess.run([sys.executable, "-c", TRIAL], capture_output=True, check=False).returncode >= 0


def _cpu_flags() -> set[str] | None:
    try:
        return set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return None


def seed_torch(key: int, device: torch.device) -> None:
    """Seed the generators that layers such as dropout draw from, here and on the device.

    Not ``torch.manual_seed``: on a machine without a GPU in use it formats a stack trace at every call.
    """
    torch.default_generator.manual_seed(key)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(key)
    elif device.type == "mps":
        torch.mps.manual_seed(key)


@contextmanager
def private_randomness(device: torch.device, *, wait: bool = True) -> Iterator[None]:
    """Whatever is drawn inside, the caller's generators are as they were.

    torch's generators are the process's: a thread waits until those of others are out. One that is told not to (to
    predict, which draws weights and then replaces them) may change what a training in another thread draws.
    """
    with (
        _BORROWED if wait else nullcontext(),
        torch.random.fork_rng(devices=[device.index] if device.type == "cuda" else []),
    ):
        if device.type != "mps":
            yield
            return
        before = torch.mps.get_rng_state()
        try:
            yield
        finally:
            torch.mps.set_rng_state(before)


@contextmanager
def thread_count(threads: int | None) -> Iterator[None]:
    """Use this many CPU threads inside; None: leave as is."""
    before = torch.get_num_threads()
    try:
        if threads is not None:
            torch.set_num_threads(threads)
        yield
    finally:
        if threads is not None:
            torch.set_num_threads(before)
