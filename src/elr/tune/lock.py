"""Locks of the kernel on files: gone when the processes that hold them are, however those ended."""

from pathlib import Path
from typing import IO


class FileLock:
    """An exclusive or shared lock on a file that holds nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: IO[str] | None = None

    def acquire(self) -> bool:
        """Wait until nobody else holds it."""
        return self._lock(shared=False, wait=True)

    def attempt(self) -> bool:
        """Take it if nobody holds it."""
        return self._lock(shared=False, wait=False)

    def share(self) -> bool:
        """Hold it together with others who share it; also turns a lock of one's own into a shared one."""
        return self._lock(shared=True, wait=False)

    def release(self) -> None:
        """Give it back."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def _lock(self, *, shared: bool, wait: bool) -> bool:
        if self.file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 held until release
        try:
            import fcntl
        except ImportError:  # not POSIX: two searches in one folder are then the user's affair
            return True
        try:
            fcntl.flock(self.file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            self.release()
            return False
        return True
