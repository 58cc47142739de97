"""The [noise] table of a configuration."""

import difflib
from dataclasses import dataclass, field

from elr.noise.inject import NOISES

KINDS = ("none", "file", *NOISES)
RATED = tuple(kind for kind in NOISES if kind != "matrix")  # those that are asked for a fraction of labels


@dataclass(frozen=True)
class NoiseConfig:
    """Which labels are replaced on purpose, in the training and validation parts."""

    kind: str = field(
        default="none",
        metadata={
            "help": "noise process: none, symmetric (uniform over all classes, the paper's), symmetric_exclusive (the "
            "true class left out), asymmetric (similar classes; CIFAR), asymmetric_blocks, pair (next class), instance "
            "(depends on the input), matrix (needs noise.matrix) or file (a saved realisation, needs noise.file)"
        },
    )
    rate: float = field(
        default=0.0,
        metadata={
            "help": "fraction of labels the process is asked to replace, in [0, 1]; `instance` replaces more than it "
            "is asked for below .2 (.10 for .05), since rates of single examples cannot be negative"
        },
    )
    seed: int | None = field(default=None, metadata={"help": "seed of the noise; default: the run's seed"})
    file: str | None = field(
        default=None, metadata={"help": "noise.json of an earlier run, or its folder: the same labels bit for bit"}
    )
    matrix: str | None = field(default=None, metadata={"help": "transition matrix, rows sum to 1: .npy, .csv or .json"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", self.kind.replace("-", "_"))
        if self.kind not in KINDS:
            near = difflib.get_close_matches(self.kind, KINDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(KINDS)}"
            raise ValueError(f"unknown noise {self.kind!r}; {hint}")
        if not 0 <= self.rate <= 1:
            raise ValueError(f"noise.rate must lie in [0, 1], got {self.rate}")
        if self.rate > 0 and self.kind not in RATED:
            raise ValueError(f"noise.rate {self.rate} has no meaning for noise {self.kind!r}; leave it out")
        for name in ("file", "matrix"):
            if (self.kind == name) != (getattr(self, name) is not None):
                raise ValueError(f"noise.{name} and noise {name!r} belong together; give both or neither")
