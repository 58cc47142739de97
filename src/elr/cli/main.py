"""``elr COMMAND``: what there is, and how mistakes are reported."""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from elr.cli import commands
from elr.cli.apply import evaluate, predict
from elr.cli.audit import audit, relabel
from elr.cli.bench import bench
from elr.cli.report import report
from elr.cli.reproduce import reproduce
from elr.cli.theory import theory
from elr.cli.tune import tune
from elr.config import nearest

COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "train": (
        commands.train,
        "train on noisy labels: digits, cifar10, cifar100, a folder of images, a manifest, an .npz",
    ),
    "predict": (predict, "classify new inputs with a finished run"),
    "evaluate": (evaluate, "accuracy of a finished run on labelled data"),
    "audit": (audit, "which labels are wrong, what they should be, and how many there are"),
    "report": (report, "a page to look at: what was found, how training went, and suspects to judge"),
    "relabel": (relabel, "a new label file from what a person decided about labels"),
    "demo": (commands.demo, "a minute on real handwritten digits: cross entropy memorises wrong labels, ELR does not"),
    "bench": (bench, "compare methods on the same data, noise and network, over several seeds"),
    "tune": (tune, "choose hyperparameters on noisy validation"),
    "reproduce": (reproduce, "figures and tables of the paper, at its scale or at a laptop's"),
    "theory": (theory, "the claims of the paper's theory, each measured on the linear model"),
    "methods": (commands.methods, "list the training methods, or explain one"),
    "models": (commands.models, "list the networks, or explain one"),
    "doctor": (commands.doctor, "what this machine has: versions, devices, threads, data"),
}
BAD_INPUT = (
    ValueError,
    ImportError,
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    IsADirectoryError,
    PermissionError,
)
USAGE = """elr: train classifiers that stay right when labels are wrong

usage: elr COMMAND [arguments]

{commands}

A first run:            elr train digits --noise symmetric --noise.rate 0.4 --method elr --out runs/first
Your own pictures:      elr train photos/ --method elr --model resnet18 --out runs/photos     (one folder a class)
What it would cost:     elr train photos/ --method elr --model resnet18 --dry-run
Which labels are wrong: elr audit runs/first
Which is best here:     elr bench digits --noise symmetric --noise.rate 0.2,0.4 --methods ce,elr --out runs/bench
`elr COMMAND --help` explains a command. Configuration files are TOML with the same names as the flags.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Exit code 0: done; 1: it failed or was interrupted; 2: the input was wrong."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        lines = "\n".join(f"  {name:<10}{text}" for name, (_, text) in COMMANDS.items())
        print(USAGE.format(commands=lines))
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        from elr import __version__

        print(f"elr {__version__}")
        return 0
    with warnings.catch_warnings():
        warnings.showwarning = _note
        return _run(words)


def _run(words: list[str]) -> int:
    try:
        if words[0] not in COMMANDS:
            raise ValueError(f"unknown command {words[0]!r}; {nearest(words[0], COMMANDS)}")
        return COMMANDS[words[0]][0](words[1:])
    except BAD_INPUT as error:
        print(f"elr: {_line(error)}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever read our output has enough; without this Python complains once more when it closes the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (FloatingPointError, OSError) as error:
        print(f"elr: {_line(error)}", file=sys.stderr)
        return 1
    except MemoryError as error:
        print(f"elr: not enough memory: {_line(error) or 'smaller batches or images take less'}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("elr: interrupted", file=sys.stderr)
        return 1
    except SystemExit as done:  # --help
        return int(done.code or 0)


def _line(error: object) -> str:
    """The message in one line."""
    return " ".join(str(error).split())


def _note(message: Warning | str, *rest: Any, **more: Any) -> None:
    """A warning as one line, without the place in the code."""
    print(f"elr: note: {_line(message)}", file=sys.stderr)
