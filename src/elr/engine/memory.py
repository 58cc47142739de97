"""Keep freed memory in the process, so that every step does not fault its activations in anew."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_MMAP_MAX = -4
_MIB = 2**20


@contextmanager
def freed_blocks_kept() -> Iterator[bool]:
    """Inside, glibc does not hand large blocks back to the kernel; yields whether it could be told.

    glibc gives allocations above 32 MiB straight to mmap, and the page faults of fresh activations cost 15-20 % of a
    step of a small network. It changes the whole process, so it is undone at the end: the settings become those that
    glibc itself arrives at in a process that frees large blocks, and what is free goes back to the kernel.
    """
    libc = _glibc()
    kept = libc is not None and bool(libc.mallopt(_M_MMAP_MAX, 0) and libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
    try:
        yield kept
    finally:
        if libc is not None:
            libc.mallopt(_M_MMAP_MAX, 65536)
            libc.mallopt(_M_MMAP_THRESHOLD, 32 * _MIB)
            libc.mallopt(_M_TRIM_THRESHOLD, 64 * _MIB)
            libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    """None for another libc, or where somebody has set its allocator up himself."""
    if not sys.platform.startswith("linux") or any(
        name.startswith("MALLOC_") or (name == "GLIBC_TUNABLES" and "glibc.malloc" in value)
        for name, value in os.environ.items()
    ):
        return None
    try:
        libc = ctypes.CDLL("libc.so.6")
        return libc if libc.mallopt and libc.malloc_trim else None
    except (OSError, AttributeError):
        return None
