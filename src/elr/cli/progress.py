"""How a run is shown: a bar with time left on a terminal, plain lines elsewhere, nothing with --quiet."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from torch import Tensor

from elr.bench.work import Status, Watcher, Work
from elr.data.images import Tell, watched
from elr.data.stream import Inputs
from elr.engine.lines import Lines, clock, describe
from elr.engine.train import Progress, Silent
from elr.report.records import Record


def watcher(title: str, epochs: int, *, quiet: bool) -> Progress:
    """Whoever fits the place that output goes to."""
    if quiet:
        return Silent()
    return Bar(title, epochs) if sys.stderr.isatty() else Lines(title, epochs)


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


@contextmanager
def counting(*, quiet: bool) -> Iterator[Tell]:
    """Somebody to tell how far a work is whose pieces are counted, such as the reading of files."""
    counter = CountSilent() if quiet else CountBar() if sys.stderr.isatty() else CountLines()
    try:
        yield counter.tell
    finally:
        counter.stop()


@contextmanager
def loading(*, quiet: bool) -> Iterator[Tell]:
    """The same, and image files that are read inside are counted."""
    with counting(quiet=quiet) as tell, watched(tell):
        yield tell


class CountSilent:
    """Nobody watches."""

    def tell(self, title: str, done: int, total: int) -> None:
        """Ignore."""

    def stop(self) -> None:
        """Nothing to put in order."""


class CountLines(CountSilent):
    """A line now and then, so none of a work that is soon done."""

    PATIENCE = 30.0

    def __init__(self) -> None:
        self.title = ""
        self.began = self.spoke = time.monotonic()

    def tell(self, title: str, done: int, total: int) -> None:
        """Show how many are done, and the time left."""
        now = time.monotonic()
        if title != self.title:
            self.title, self.began, self.spoke = title, now, now
        if now - self.spoke >= self.PATIENCE:
            self.spoke = now
            self.show(f"{done:,}/{total:,}", done / total, clock((now - self.began) * (total - done) / done))

    def show(self, state: str, fraction: float, left: str) -> None:
        """Print it."""
        print(f"{self.title}  {state}  left {left}", file=sys.stderr, flush=True)


class CountBar(CountLines):
    """A live bar, if the work takes more than a moment."""

    PATIENCE = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.bar: Any = None
        self.task: Any = None

    def show(self, state: str, fraction: float, left: str) -> None:
        """Move."""
        if self.bar is None:
            self.bar, self.task = live_bar(self.title)
        self.bar.update(self.task, description=self.title, completed=fraction, state=state, left=left)

    def stop(self) -> None:
        """Leave the terminal in order."""
        if self.bar is not None:
            self.bar.stop()


class Watched:
    """Inputs that tell how many of them have been read, in a sweep that reads each of them once."""

    def __init__(self, inputs: Inputs, tell: Tell, title: str = "predicting") -> None:
        self.inputs = inputs
        self.tell = tell
        self.title = title
        self.done = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return self.inputs.shape

    def __len__(self) -> int:
        return len(self.inputs)

    def fetch(self, rows: Tensor) -> Tensor:
        """Read these rows."""
        self.done += len(rows)
        self.tell(self.title, self.done, len(self))
        return self.inputs.fetch(rows)


class GridWatcher(Watcher, Protocol):
    """Somebody who watches a comparison to its end."""

    def timing(self, method: str, number: int, total: int) -> None:
        """A method is being timed."""
        ...

    def stop(self) -> None:
        """Leave the terminal in order."""
        ...


def grid_watcher(*, quiet: bool) -> GridWatcher:
    """Whoever fits the place that output goes to."""
    if quiet:
        return GridSilent()
    return GridBar() if sys.stderr.isatty() else GridLines()


def told(cell: Work, result: Mapping[str, Any] | str) -> str:
    """A cell that ended, in one line."""
    if isinstance(result, str):
        return f"{cell.name} failed: {result}"
    numbers = {"test_accuracy": "last", "selected_test_accuracy": "chosen", "wrong_memorized": "memorised"}
    shown = [f"{name} {result[key]:.1%}" for key, name in numbers.items() if result[key] is not None]
    return "  ".join([cell.name, *shown])


def remaining(status: Status) -> str:
    """Time left, if it is known."""
    return "unknown" if status.left is None else clock(status.left)


class GridSilent:
    """Nobody watches."""

    def ended(self, cell: Work, result: Mapping[str, Any] | str, status: Status) -> None:
        """Ignore."""

    def look(self, status: Status) -> None:
        """Ignore."""

    def timing(self, method: str, number: int, total: int) -> None:
        """Ignore."""

    def stop(self) -> None:
        """Nothing to put in order."""


class GridLines(GridSilent):
    """A line for each cell that ends, and one a minute while nothing ends."""

    PATIENCE = 60.0

    def __init__(self) -> None:
        self.spoke = time.monotonic()

    def ended(self, cell: Work, result: Mapping[str, Any] | str, status: Status) -> None:
        """Print it with the time left."""
        self._say(f"[{status.done + status.failed}/{status.total}] {told(cell, result)}  left {remaining(status)}")

    def look(self, status: Status) -> None:
        """Show that the cells still move."""
        if time.monotonic() - self.spoke > self.PATIENCE:
            running = ", ".join(f"{name} {place}" for name, place in status.running.items())
            self._say(f"[{status.done + status.failed}/{status.total}] {running}  left {remaining(status)}")

    def timing(self, method: str, number: int, total: int) -> None:
        """Print which."""
        self._say(f"timing {number}/{total}  {method}")

    def _say(self, text: str) -> None:
        self.spoke = time.monotonic()
        print(text, file=sys.stderr, flush=True)


def live_bar(title: str) -> tuple[Any, Any]:
    """A bar that has started, over a work of 1, and its task, with fields for a state and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[state]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left {task.fields[left]}", markup=False),
        console=Console(stderr=True),
    )
    task = bar.add_task(title, total=1.0, state="", left="unknown")
    bar.start()
    return bar, task


class GridBar:
    """A live bar over the work of the whole grid; cells that end are printed above it."""

    def __init__(self) -> None:
        self.bar, self.task = live_bar("0 cells")

    def ended(self, cell: Work, result: Mapping[str, Any] | str, status: Status) -> None:
        """Print it above the bar."""
        self.bar.console.print(told(cell, result), markup=False, highlight=False)
        self.look(status)

    def look(self, status: Status) -> None:
        """Move."""
        title = f"{status.done}/{status.total} cells" + (f", {status.failed} failed" if status.failed else "")
        state = ", ".join(f"{name} {place}" for name, place in list(status.running.items())[:2])
        self.bar.update(self.task, description=title, completed=status.fraction, state=state, left=remaining(status))

    def timing(self, method: str, number: int, total: int) -> None:
        """Show which."""
        self.bar.update(self.task, state=f"timing {number}/{total}: {method}", left="soon")

    def stop(self) -> None:
        """Leave the terminal in order."""
        self.bar.stop()


def say(text: str, quiet: bool) -> None:
    """On standard error, where progress goes."""
    if not quiet:
        print(text, file=sys.stderr)


def left_out(skipped: Mapping[str, str]) -> str:
    """Files that were not read, in a line."""
    return f"left out: {len(skipped)} files that cannot be decoded, first {next(iter(skipped))}"
