"""A realisation of noise: saved, hashed, reloaded bit for bit."""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from elr.noise.clean import Labels

_FORMAT = 1


@dataclass(frozen=True, eq=False)
class NoiseManifest:
    """Labels before and after the noise for every example of the training and validation parts."""

    kind: str
    rate: float  # as requested; for a matrix the rate it implies
    seed: int
    ids: NDArray[Any]  # (n,) int64 or str
    old: Labels  # (n,) class numbers
    new: Labels  # (n,)
    classes: tuple[str, ...]

    @property
    def flip_rate(self) -> float:
        """Fraction of labels that really changed."""
        return float(np.mean(self.old != self.new)) if len(self.old) else 0.0

    @property
    def class_flip_rates(self) -> NDArray[np.float64]:
        """Fraction of each class's labels that changed, (C,)."""
        counts = np.bincount(self.old, minlength=len(self.classes))
        kept = np.bincount(self.old[self.old == self.new], minlength=len(self.classes))
        return np.where(counts > 0, 1 - kept / np.maximum(counts, 1), 0.0)

    @property
    def sha256(self) -> str:
        """Hash over everything that defines the realisation."""
        ids = self.ids.tolist()
        head = [_FORMAT, self.kind, self.rate, self.seed, list(self.classes), ids]
        digest = hashlib.sha256(json.dumps(head).encode())
        for labels in (self.old, self.new):
            digest.update(np.ascontiguousarray(labels, dtype="<i8").tobytes())
        return digest.hexdigest()

    def header(self) -> dict[str, Any]:
        """What ``noise.json`` says."""
        counts = np.bincount(self.old, minlength=len(self.classes)).tolist()
        changed = np.bincount(self.old[self.old != self.new], minlength=len(self.classes)).tolist()
        return {
            "format": _FORMAT,
            "kind": self.kind,
            "rate": self.rate,
            "flip_rate": self.flip_rate,
            "seed": self.seed,
            "examples": len(self.old),
            "changed": sum(changed),
            "classes": list(self.classes),
            "class_examples": counts,
            "class_changed": changed,
            "class_flip_rates": self.class_flip_rates.tolist(),
            "sha256": self.sha256,
        }

    def save(self, directory: str | Path) -> None:
        """Write ``noise.npz`` (id, old, new) and then ``noise.json``, each whole or not at all."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        header = json.dumps(self.header(), indent=1).encode()
        _write(directory / "noise.npz", lambda f: np.savez_compressed(f, id=self.ids, old=self.old, new=self.new))
        _write(directory / "noise.json", lambda f: f.write(header))

    @classmethod
    def load(cls, path: str | Path) -> "NoiseManifest":
        """Read a realisation from its folder or its ``noise.json``; a changed byte is refused."""
        path = Path(path)
        header_path = path / "noise.json" if path.is_dir() else path.with_suffix(".json")
        if not header_path.is_file():
            raise FileNotFoundError(f"noise file {header_path} does not exist")
        try:
            header = json.loads(header_path.read_text())
            with np.load(header_path.with_suffix(".npz"), allow_pickle=False) as arrays:
                ids, old, new = (arrays[name] for name in ("id", "old", "new"))
            manifest = cls(header["kind"], header["rate"], header["seed"], ids, old, new, tuple(header["classes"]))
            intact = manifest.header() == header
        except Exception as error:  # a damaged archive raises almost anything, zlib's and tokenize's own among it
            raise ValueError(f"cannot read the noise saved in {header_path.parent}: {error}") from None
        if not intact:
            raise ValueError(
                f"{header_path.parent}: noise.json and noise.npz do not match their hash; they were changed"
            )
        return manifest


def _write(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write through a temporary file, so that a crash leaves the old file or the new one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with open(partial, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
