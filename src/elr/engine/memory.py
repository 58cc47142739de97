"""Keep freed memory in the process, so that every step does not fault its activations in anew."""

import ctypes
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4


def keep_freed_blocks() -> bool:
    """Tell glibc not to hand large blocks back to the kernel; returns whether it could.

    glibc gives allocations above 32 MiB straight to mmap, and the page faults of fresh activations cost 15-20 % of a
    step of a small network. Called by the engine, never at import: it changes the whole process.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another libc
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
