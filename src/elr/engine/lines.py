"""A run as plain lines on standard error, one an epoch: for logs, notebooks and whoever asks for them."""

import sys
import time

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
        told = f"{self.title}  epoch {number}/{self.epochs}  {describe(record)}  {seconds:.1f} s  left {left}"
        sys.stderr.write(f"{told}\n")
        sys.stderr.flush()
