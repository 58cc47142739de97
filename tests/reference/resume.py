"""Finish interrupted runs in a process of its own: ``python -m reference.resume METHOD=FOLDER ...``."""

import sys
from pathlib import Path

import torch

from elr.engine.train import train
from elr.methods import METHODS
from reference.tiny import tiny_job

EPOCHS = 4


def main(pairs: list[str]) -> None:
    torch.set_num_threads(1)
    for pair in pairs:
        name, folder = pair.split("=", 1)
        train(tiny_job(METHODS[name](), epochs=EPOCHS, out=Path(folder)))


if __name__ == "__main__":
    main(sys.argv[1:])
