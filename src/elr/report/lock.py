"""A folder that one process at a time writes to."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(folder: Path, busy: str) -> Iterator[None]:
    """Keep other processes out; who comes second gets ``busy`` as a ValueError. Ends with the process, however it ends.

    The lock is on the folder itself, so no file is left behind.
    """
    try:
        import fcntl
    except ImportError:  # not POSIX: two processes in one folder are then the user's affair
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(busy) from None
        yield
    finally:
        os.close(handle)
