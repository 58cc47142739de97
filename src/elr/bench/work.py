"""The cells of a grid on several cores: one process a cell, one thread a process."""

import heapq
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from elr.bench.grid import folder, is_done
from elr.config import Config
from elr.data import load
from elr.job.run import run_job
from elr.report.records import read_json

GLANCE = 0.5  # seconds between two looks at the running cells
# Libraries below scikit-learn have threads of their own, which would fight for the cores that the processes fill.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Status(NamedTuple):
    """Where a comparison is."""

    done: int
    total: int
    failed: int
    running: Mapping[str, str]  # cell -> "epoch 3/60"
    fraction: float  # of the work of the whole grid, by arithmetic
    left: float | None  # seconds; None before anything is known


class Work(Protocol):
    """One run among several."""

    @property
    def name(self) -> str:
        """Its folder below ``DIR/runs``."""
        ...

    @property
    def config(self) -> Config:
        """What is run."""
        ...

    @property
    def epochs(self) -> int:
        """Epochs that will be recorded."""
        ...

    @property
    def work(self) -> float:
        """Epochs of cross entropy that cost as much, by arithmetic."""
        ...


class Watcher(Protocol):
    """Somebody who watches a grid."""

    def ended(self, cell: Work, result: Mapping[str, Any] | str, status: Status) -> None:
        """A cell has a summary, or a reason why it has none."""
        ...

    def look(self, status: Status) -> None:
        """Called now and then."""
        ...


def work_left(out: Path, cell: Work) -> float:
    """What is still to do of a cell: its finished epochs are not run again."""
    return 0.0 if is_done(out, cell) else cell.work * (1.0 - min(1.0, _epochs_done(out, cell) / cell.epochs))


def makespan(work: Iterable[float], jobs: int) -> float:
    """How long pieces of work take, so many at a time: each is begun, in turn, as soon as a place is free."""
    places = [0.0] * jobs
    for piece in work:
        heapq.heapreplace(places, places[0] + piece)
    return max(places)


def run_cells(cells: Sequence[Work], out: Path, jobs: int, watch: Watcher, failures: dict[str, str]) -> None:
    """Run every cell that is not done, and note why some failed. Interrupted, all processes end and nothing is lost."""
    running = _Cells(cells, out, jobs, watch, failures)
    try:
        running.run()
    finally:
        running.stop()


class _Cells:
    """The state of ``run_cells`` while it runs."""

    def __init__(self, cells: Sequence[Work], out: Path, jobs: int, watch: Watcher, failures: dict[str, str]) -> None:
        self.cells, self.out, self.jobs, self.watch, self.failures = cells, out, jobs, watch, failures
        self.queue = deque(cell for cell in cells if not is_done(out, cell))
        self.running: dict[str, tuple[BaseProcess, Work]] = {}
        self.context = process_context()
        self.epochs = {cell.name: cell.epochs for cell in cells}
        self.weights = {cell.name: cell.work for cell in cells}
        self.whole = sum(self.weights.values())
        # Cells that stopped in the middle have a part behind them, which says nothing of today's pace.
        self.begun = {cell.name: _epochs_done(out, cell) for cell in self.queue}
        self.started = time.monotonic()

    def run(self) -> None:
        """Until nothing is left."""
        while self.queue or self.running:
            while self.queue and len(self.running) < self.jobs:
                self._start(self.queue.popleft())
            wait([process.sentinel for process, _ in self.running.values()], timeout=GLANCE)
            for process, cell in list(self.running.values()):
                if not process.is_alive():
                    self._end(process, cell)
            self.watch.look(self._status())

    def stop(self) -> None:
        """End what still runs; its last finished epoch is on disk."""
        for process, _ in self.running.values():
            process.terminate()
        for process, _ in self.running.values():
            process.join()
        self.running.clear()

    def _start(self, cell: Work) -> None:
        log = self._log(cell)
        log.parent.mkdir(parents=True, exist_ok=True)
        process: BaseProcess = self.context.Process(  # type: ignore[attr-defined]
            target=run_cell, args=(cell.config, folder(self.out, cell), log), daemon=True
        )
        with environment(ONE_THREAD):
            process.start()
        self.running[cell.name] = process, cell

    def _end(self, process: BaseProcess, cell: Work) -> None:
        process.join()
        del self.running[cell.name]
        result: Mapping[str, Any] | str
        if is_done(self.out, cell):
            self._log(cell).unlink(missing_ok=True)
            result = dict(read_json(folder(self.out, cell) / "summary.json"))
        else:
            result = self.failures[cell.name] = why_it_ended(process.exitcode, self._log(cell))
        self.watch.ended(cell, result, self._status())

    def _log(self, cell: Work) -> Path:
        return self.out / "logs" / (cell.name.replace("/", ".") + ".txt")

    def _status(self) -> Status:
        waiting = {cell.name for cell in self.queue}
        running = {name: _epochs_done(self.out, cell) for name, (_, cell) in self.running.items()}
        share = {name: min(1.0, done / self.epochs[name]) for name, done in running.items()}
        open_work = sum(self.weights[name] for name in waiting)
        open_work += sum((1.0 - part) * self.weights[name] for name, part in share.items())
        today = sum(
            self.weights[name] * (share.get(name, 1.0) - min(1.0, before / self.epochs[name]))
            for name, before in self.begun.items()
            if name not in waiting and name not in self.failures
        )
        left = (time.monotonic() - self.started) * open_work / today if today > 0 else None
        done = len(self.cells) - len(waiting) - len(running) - len(self.failures)
        shown = {name: f"epoch {epochs}/{self.epochs[name]}" for name, epochs in running.items()}
        fraction = 1.0 - open_work / self.whole
        return Status(done, len(self.cells), len(self.failures), shown, fraction, left)


def run_cell(config: Config, out: Path, log: Path) -> None:
    """Body of a process: one cell from where it stopped to its end. What it prints goes to a file."""
    _end_with_parent()
    with open(log, "w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        data = load(config.data, config.noise, config.seed)
        run_job(config, data, config.model_maker(data.shape, data.num_classes), out, resume=True)
    except KeyboardInterrupt:
        sys.exit(1)
    except Exception as error:  # whatever it is, it is this cell's and the others go on
        traceback.print_exc()
        sys.stderr.write(f"{_kind(error)}{' '.join(str(error).split())}\n")
        sys.stderr.flush()
        sys.exit(1)


def _kind(error: Exception) -> str:
    """Messages of ours explain themselves; those of others need to say what they are."""
    return "" if isinstance(error, ValueError | FloatingPointError) else f"{type(error).__name__}: "


def why_it_ended(code: int | None, log: Path) -> str:
    """Why a cell has no summary, in one line."""
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return f"its process was ended by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return lines[-1] if lines else f"its process ended with code {code}"


def _end_with_parent() -> None:
    """A worker whose comparison was killed must not write on beside the one that is started next."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def process_context() -> BaseContext:
    """A fork server that has imported everything starts a process in milliseconds; elsewhere a new interpreter."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["elr.bench.work", "sklearn.datasets", "torch._dynamo"])
    return context


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """These variables for processes started inside."""
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


def _epochs_done(out: Path, cell: Work) -> int:
    """Complete lines of the cell's records."""
    path = folder(out, cell) / "records.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0
