"""Image files as inputs: decoded to one size by a few threads, checked before training, cached on request."""

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from elr.data.config import DataConfig
from elr.data.inputs import BYTES, TensorInputs
from elr.data.stream import Inputs

Tell = Callable[[str, int, int], None]  # what is being done, how many are done, of how many
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
LARGEST_SIDE = 224  # of the default size

Result = TypeVar("Result")

# A variable, not an argument: it would pass through every source, and no source has anything to say to it.
_watcher: ContextVar[Tell | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(tell: Tell) -> Iterator[None]:
    """Inside, ``tell`` hears how far the reading of image files is."""
    token = _watcher.set(tell)
    try:
        yield
    finally:
        _watcher.reset(token)


def open_images(paths: Sequence[Path], config: DataConfig) -> tuple[Inputs, dict[int, str]]:
    """Inputs (3, S, S) of all files, and the rows that cannot be decoded with the reason, if they may be skipped."""
    with _workers() as pool:
        side = config.image_size or _common_side(paths, pool)
        if config.cache == "none":
            inputs: Inputs = FileInputs(paths, side)
            # To one pixel: cheap, a JPEG decodes at an eighth of its size, and yet every byte is gone through.
            bad = _failures(pool, lambda row: decode(paths[row], 1), len(paths), "checking image files")
        elif config.cache == "ram":
            canvas = np.zeros((len(paths), 3, side, side), dtype=np.uint8)
            inputs, bad = TensorInputs(torch.from_numpy(canvas)), _fill(canvas, paths, pool)
        else:
            assert config.cache_dir is not None
            canvas, bad = _disk_cache(paths, side, Path(config.cache_dir), pool)
            inputs = TensorInputs(torch.from_numpy(canvas))
    if bad and config.on_bad_file == "stop":
        row, reason = next(iter(bad.items()))
        more = f" (and {len(bad) - 1:,} more)" if len(bad) > 1 else ""
        raise ValueError(f"cannot decode {paths[row]}: {reason}{more}; data.on_bad_file skip leaves such files out")
    return inputs, bad


class FileInputs:
    """Images decoded every time they are asked for."""

    def __init__(self, paths: Sequence[Path], side: int) -> None:
        self.paths = paths
        self.side = side

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return (3, self.side, self.side)

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return _workers()

    def fetch(self, rows: Tensor) -> Tensor:
        """Decode these files."""
        chosen = [self.paths[row] for row in rows.tolist()]
        out = np.empty((len(chosen), *self.shape), dtype=np.uint8)
        for row, error in _failures(self._pool, lambda row: _into(out, row, chosen[row]), len(chosen)).items():
            raise ValueError(f"cannot decode {chosen[row]}: {error}; it was readable before training")
        return torch.from_numpy(out)

    @property
    def pixels(self) -> str:
        """Always bytes."""
        return BYTES

    def fingerprint(self, rows: Tensor) -> dict[str, str]:
        """Of the sizes of these files: a picture that is replaced hardly ever has as many bytes, and none is read."""
        sizes = [self.paths[row].stat().st_size for row in rows.tolist()]
        return {"files_sha256": hashlib.sha256(json.dumps(sizes).encode()).hexdigest()}


def decode(path: Path, side: int) -> NDArray[np.uint8]:
    """One file as RGB (3, side, side): upright, shorter side resized to ``side``, centre kept."""
    with Image.open(path) as image:
        image.draft("RGB", (side, side))  # a large JPEG decodes at a fraction of its size, never below ``side``
        upright = ImageOps.exif_transpose(image)
        fitted = ImageOps.fit(_rgb(upright), (side, side), method=Image.Resampling.BILINEAR)
    return np.asarray(fitted).transpose(2, 0, 1)


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16") or image.mode == "I":  # PIL would clip 16-bit grey to white
        image = Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).clip(0, 255).astype(np.uint8))
    if image.mode == "P":  # a palette may carry transparency in a form that converts only through RGBA
        image = image.convert("RGBA")
    return image.convert("RGB")


def _common_side(paths: Sequence[Path], pool: ThreadPoolExecutor) -> int:
    """The median shorter side, at most 224: small pictures are not blown up, large ones not carried along."""

    def shorter(row: int) -> int:
        try:
            with Image.open(paths[row]) as image:
                return min(image.size)
        except Exception:
            return 0  # the check that follows says why

    found = _told(_bounded_map(pool, shorter, range(len(paths))), "sizes of image files", len(paths))
    sides = [side for side in found if side]
    return min(LARGEST_SIDE, int(np.median(sides))) if sides else LARGEST_SIDE


def _failures(
    pool: ThreadPoolExecutor, work: Callable[[int], Any], count: int, title: str | None = None
) -> dict[int, str]:
    """Run ``work`` on 0 .. count - 1 and collect what cannot be decoded; with a title, whoever watches is told."""

    def attempt(row: int) -> str | None:
        try:
            work(row)
        except MemoryError:
            raise
        except Exception as error:  # Pillow's decoders raise almost anything on damaged files
            return str(error) or type(error).__name__
        return None

    reasons = _bounded_map(pool, attempt, range(count))
    if title is not None:
        reasons = _told(reasons, title, count)
    return {row: reason for row, reason in enumerate(reasons) if reason is not None}


def _told(results: Iterable[Result], title: str, total: int) -> Iterator[Result]:
    """The same results, while whoever watches hears how many there are."""
    tell = _watcher.get()
    for done, result in enumerate(results, start=1):
        yield result
        if tell is not None and (done % 32 == 0 or done == total):
            tell(title, done, total)


def _bounded_map(
    pool: ThreadPoolExecutor, work: Callable[[int], Result], rows: Sequence[int], block: int = 4096
) -> Iterable[Result]:
    """pool.map without a million futures at once."""
    for start in range(0, len(rows), block):
        yield from pool.map(work, rows[start : start + block])


def _fill(canvas: NDArray[np.uint8], paths: Sequence[Path], pool: ThreadPoolExecutor) -> dict[int, str]:
    return _failures(pool, lambda row: _into(canvas, row, paths[row]), len(paths), "decoding image files")


def _into(canvas: NDArray[np.uint8], row: int, path: Path) -> None:
    canvas[row] = decode(path, canvas.shape[-1])


def _disk_cache(
    paths: Sequence[Path], side: int, folder: Path, pool: ThreadPoolExecutor
) -> tuple[NDArray[np.uint8], dict[int, str]]:
    """A memory-mapped .npy called after the files' names, sizes and times; a .json beside it lists the unreadable."""
    digest = hashlib.sha256(f"{side}".encode())
    for path in paths:
        stat = path.stat() if path.exists() else None
        digest.update(f"\0{path.absolute()}\0{stat and stat.st_size}\0{stat and stat.st_mtime_ns}".encode())
    target = folder / f"images-{side}-{digest.hexdigest()[:16]}.npy"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # With the process in both names: another one may be making the same cache.
        partial, listed = (folder / f".{target.stem}.{os.getpid()}{suffix}" for suffix in (".npy", ".json"))
        try:
            canvas = np.lib.format.open_memmap(partial, mode="w+", dtype=np.uint8, shape=(len(paths), 3, side, side))
            _reserve(partial)
            bad = _fill(canvas, paths, pool)
            canvas.flush()
            del canvas
            listed.write_text(json.dumps(bad))
            # The .npy comes last: where it exists, both are complete.
            os.replace(listed, target.with_suffix(".json"))
            os.replace(partial, target)
        finally:
            for left in (partial, listed):
                left.unlink(missing_ok=True)
    bad = {int(row): reason for row, reason in json.loads(target.with_suffix(".json").read_text()).items()}
    return np.load(target, mmap_mode="c", allow_pickle=False), bad


def _reserve(path: Path) -> None:
    """Take the room of a mapped file now: a disk that fills up under a mapping kills the process without a word."""
    if not hasattr(os, "posix_fallocate"):
        return
    with open(path, "r+b") as file:
        size = path.stat().st_size
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):  # a file system that cannot
                return
            raise OSError(f"no room for {size:,} bytes of decoded images in {path.parent}: {error.strerror}") from error


def _workers() -> ThreadPoolExecutor:
    Image.init()  # now: two threads that load Pillow's plugins at the same time may each miss a format
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
