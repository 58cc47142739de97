"""bfloat16 on a CPU that shows AMX and cannot use it: nothing may die of an illegal instruction."""

import signal
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from elr.cli import main
from elr.engine import device
from elr.engine.device import RuntimeConfig, bfloat16_works, fast_bfloat16
from elr.reproduce.scale import single

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    bfloat16_works.cache_clear()
    yield
    bfloat16_works.cache_clear()


def machine(monkeypatch: pytest.MonkeyPatch, flags: str, ends_with: int) -> list[object]:
    """A CPU with these flags, on which the trial in another process ends so; what was tried."""
    tried: list[object] = []
    really = subprocess.run

    def run(command: list[str], **options: Any) -> Any:
        if device.TRIAL not in command:
            return really(command, **options)
        tried.append(command)
        return SimpleNamespace(returncode=ends_with)

    monkeypatch.setattr(device, "_cpu_flags", lambda: set(flags.split()))
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return tried


def test_where_the_trial_dies_bfloat16_is_refused_and_not_chosen(monkeypatch, tmp_path, capsys):
    tried = machine(monkeypatch, "avx512_bf16 amx_bf16 amx_tile", -signal.SIGILL)
    assert fast_bfloat16(CPU) is False
    assert single("laptop", "cifar10")["runtime.precision"] == "float32"
    with pytest.raises(ValueError, match=r"illegal instruction here.*ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"):
        RuntimeConfig(device="cpu", precision="bfloat16").resolved_device()
    assert RuntimeConfig(device="cpu").resolved_device() == CPU
    out = tmp_path / "run"
    options = "train --data.source digits --runtime.device cpu --runtime.precision bfloat16 --out"
    assert main([*options.split(), str(out)]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("elr: runtime.precision bfloat16")
    assert "\n" not in said
    assert not out.exists()
    assert main(["doctor"]) == 0
    assert "illegal instruction: keep float32" in capsys.readouterr().out
    assert len(tried) == 1  # once a process: it takes seconds


def test_where_the_trial_lives_bfloat16_is_quick(monkeypatch):
    tried = machine(monkeypatch, "avx512_bf16 amx_bf16 amx_tile", 0)
    assert fast_bfloat16(CPU) is True
    assert RuntimeConfig(device="cpu", precision="bfloat16").resolved_device() == CPU
    assert len(tried) == 1


def test_a_cpu_without_amx_is_not_tried(monkeypatch):
    tried = machine(monkeypatch, "avx512_bf16", -signal.SIGILL)
    assert bfloat16_works()
    assert fast_bfloat16(CPU) is True
    assert not tried


def test_the_trial_is_a_program_that_runs_here():
    """With the real machine, or with what conftest made of it: an error of Python's would say nothing of the CPU."""
    assert bfloat16_works()
    done = subprocess.run([device.sys.executable, "-c", device.TRIAL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
