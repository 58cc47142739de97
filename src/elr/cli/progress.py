"""How a run is shown: a bar with time left on a terminal, plain lines elsewhere, nothing with --quiet."""

import sys
import time
from typing import Any

from elr.engine.train import Progress, Silent
from elr.report.records import Record

SHOWN = {
    "loss": "loss {:.3f}",
    "val_accuracy": "val {:.1%}",
    "test_accuracy": "test {:.1%}",
    "wrong_memorized": "memorised {:.1%}",
}


def describe(record: Record) -> str:
    """The numbers of an epoch that a person looks at."""
    return "  ".join(form.format(record[key]) for key, form in SHOWN.items() if key in record)


def clock(seconds: float) -> str:
    """1:02:03 or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def watcher(title: str, epochs: int, *, quiet: bool) -> Progress:
    """Whoever fits the place that output goes to."""
    if quiet:
        return Silent()
    return Bar(title, epochs) if sys.stderr.isatty() else Lines(title, epochs)


class Lines:
    """A line an epoch."""

    def __init__(self, title: str, epochs: int) -> None:
        self.title = title
        self.epochs = epochs
        self.started = time.perf_counter()
        self.first: int | None = None

    def batch(self, epoch: int, done: int, total: int) -> None:
        """Batches are too many for a log."""

    def epoch(self, record: Record, seconds: float) -> None:
        """Print the epoch with an estimate of the time left."""
        number = record["epoch"]
        self.first = self.first or number
        pace = (time.perf_counter() - self.started) / (number - self.first + 1)
        left = clock(pace * (self.epochs - number))
        print(
            f"{self.title}  epoch {number}/{self.epochs}  {describe(record)}  {seconds:.1f} s  left {left}",
            file=sys.stderr,
            flush=True,
        )


class Bar:
    """A live bar; the last numbers stand beside it."""

    def __init__(self, title: str, epochs: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self.epochs = epochs
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[state]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self.task: Any = self.bar.add_task(title, total=float(epochs), state="")

    def batch(self, epoch: int, done: int, total: int) -> None:
        """Move within the epoch."""
        if not self.bar.live.is_started:
            self.bar.start()
        self.bar.update(self.task, completed=epoch - 1 + done / total)

    def epoch(self, record: Record, seconds: float) -> None:
        """Show the numbers of the epoch."""
        number = record["epoch"]
        self.bar.update(self.task, completed=float(number), state=f"{number}/{self.epochs}  {describe(record)}")
        if number == self.epochs:
            self.stop()

    def stop(self) -> None:
        """Leave the terminal in order."""
        if self.bar.live.is_started:
            self.bar.stop()


def stop(progress: Progress) -> None:
    """Leave the terminal in order, however training ended."""
    if isinstance(progress, Bar):
        progress.stop()
