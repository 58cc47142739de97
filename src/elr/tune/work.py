"""The trials of a search on several cores: one process a run, any number of commands on one folder."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from elr.bench.work import GLANCE, ONE_THREAD, Status, environment, process_context, run_cell, why_it_ended
from elr.config import Config
from elr.report.records import Record, read_lines
from elr.tune.lock import FileLock
from elr.tune.search import Search, run_folder, trial_folder, trial_value
from elr.tune.space import Point

if TYPE_CHECKING:  # a process that trains has no use for Optuna
    from elr.tune.study import Taken, Trials


class Watcher(Protocol):
    """Somebody who watches a search."""

    def ended(self, title: str, result: str, status: Status) -> None:
        """A trial of ours has a value, or a reason why it has none."""
        ...

    def look(self, status: Status) -> None:
        """Called now and then."""
        ...


@dataclass
class _Slot:
    """A trial under way: its runs one after another."""

    taken: "Taken"
    seeds: Iterator[int]
    seed: int = 0
    process: BaseProcess | None = None
    reported: dict[int, int] = field(default_factory=dict)  # seed -> epochs that the pruner has seen


def run_search(search: Search, trials: "Trials", out: Path, jobs: int, watch: Watcher) -> None:
    """Run trials until none is left, here or in other processes. Interrupted, ours end and nothing is lost."""
    work = _Work(search, trials, out, jobs, watch)
    try:
        work.run()
    finally:
        work.stop()


class _Work:
    """The state of ``run_search`` while it runs."""

    def __init__(self, search: Search, trials: "Trials", out: Path, jobs: int, watch: Watcher) -> None:
        self.search, self.trials, self.out, self.jobs, self.watch = search, trials, out, jobs, watch
        self.slots: list[_Slot] = []
        self.context = process_context()
        self.started = time.monotonic()
        self.open_at_start = self._open()

    def run(self) -> None:
        """Until nothing is left; trials of others are waited for, because they may die and be ours to finish."""
        while True:
            while len(self.slots) < self.jobs and (taken := self.trials.take()):
                self.slots.append(_Slot(taken, iter(self.search.seeds)))
                self._next(self.slots[-1])
            if not self.slots and self.trials.over():
                return
            running = [slot.process.sentinel for slot in self.slots if slot.process is not None]
            wait(running, timeout=GLANCE) if running else time.sleep(GLANCE)
            for slot in list(self.slots):
                self._look(slot)
            self.watch.look(self._status())

    def stop(self) -> None:
        """End what still runs; its last finished epoch is on disk, and its lock is free for whoever goes on."""
        for slot in self.slots:
            if slot.process is not None:
                slot.process.terminate()
        for slot in self.slots:
            if slot.process is not None:
                slot.process.join()
            slot.taken.lock.release()
        self.slots.clear()

    def _next(self, slot: _Slot) -> None:
        """The next run of the trial that is not done, or the end of the trial."""
        slot.process = None
        for seed in slot.seeds:
            slot.seed = seed
            if not (self._run(slot) / "summary.json").is_file():
                self._start(slot)
                return
            self._report(slot, judge=False)
        value = trial_value(self.out, self.search, slot.taken.point)
        assert value is not None
        self.trials.finish(slot.taken, value)
        self._leave(slot, f"validation {value:.1%}")

    def _start(self, slot: _Slot) -> None:
        config = self.search.cell(slot.taken.point, slot.seed)
        log = self._log(slot)
        log.parent.mkdir(parents=True, exist_ok=True)
        process: BaseProcess = self.context.Process(  # type: ignore[attr-defined]
            target=run_trial, args=(config, self._run(slot), slot.taken.lock.path, log), daemon=True
        )
        with environment(ONE_THREAD):
            process.start()
        slot.process = process

    def _look(self, slot: _Slot) -> None:
        process = slot.process
        assert process is not None
        if process.is_alive():
            if self.search.prune and (note := self._report(slot, judge=True)):
                process.terminate()
                process.join()
                self._give_up(slot, note, pruned=True)
            return
        process.join()
        if (self._run(slot) / "summary.json").is_file():
            self._log(slot).unlink(missing_ok=True)
            self._report(slot, judge=False)
            self._next(slot)
        else:
            self._give_up(slot, why_it_ended(process.exitcode, self._log(slot)))

    def _report(self, slot: _Slot, *, judge: bool) -> str:
        """Tell the pruner what is new in the records; returns why the trial should be given up, if it should."""
        # Optuna judges a trial by its best step so far: a good first seed would shield whatever came after it.
        if not self.search.prune or slot.seed != self.search.seeds[0]:
            return ""
        epochs = self.search.config(slot.taken.point, slot.seed).planned_epochs
        records: list[Record] = read_lines(self._run(slot) / "records.jsonl")
        for record in records[slot.reported.get(slot.seed, 0) :]:
            if self.trials.report(slot.taken.number, record["epoch"], record["val_smoothed"]) and judge:
                return f"pruned at epoch {record['epoch']} of {epochs}, seed {slot.seed}"
            slot.reported[slot.seed] = record["epoch"]
        return ""

    def _give_up(self, slot: _Slot, note: str, *, pruned: bool = False) -> None:
        self.trials.give_up(slot.taken, note, pruned=pruned)
        self._leave(slot, note if pruned else f"failed: {note}")

    def _leave(self, slot: _Slot, result: str) -> None:
        self.slots.remove(slot)
        self.watch.ended(self.search.space.title(slot.taken.point), result, self._status())

    def _run(self, slot: _Slot) -> Path:
        return run_folder(self.out, self.search, slot.taken.point, slot.seed)

    def _log(self, slot: _Slot) -> Path:
        return self.out / "logs" / f"{trial_folder(self.out, self.search, slot.taken.point).name}.seed{slot.seed}.txt"

    def _epochs(self, point: Point) -> tuple[int, int]:
        """Epochs done and to do, over all seeds of a trial."""
        folders = [run_folder(self.out, self.search, point, seed) for seed in self.search.seeds]
        files = [folder / "records.jsonl" for folder in folders]
        done = sum(file.read_bytes().count(b"\n") for file in files if file.exists())
        return done, len(folders) * self.search.config(point, self.search.seeds[0]).planned_epochs

    def _open(self) -> float:
        """Trials that are left to run, of those under way the part."""
        parts = [done / epochs for done, epochs in map(self._epochs, self.trials.running())]
        return self.trials.waiting() + sum(1.0 - min(1.0, part) for part in parts)

    def _status(self) -> Status:
        running = {self.search.space.title(point): self._epochs(point) for point in self.trials.running()}
        waiting, left_open = self.trials.waiting(), self._open()
        failed = sum(entry.status == "failed" for entry in self.trials.entries())
        total = max(self.search.trials, waiting + len(running))
        # By everybody's progress since we came: another process on the same folder makes the end come nearer.
        behind = self.open_at_start - left_open
        left = (time.monotonic() - self.started) * left_open / behind if behind > 0 else None
        shown = {title: f"epoch {done}/{epochs}" for title, (done, epochs) in running.items()}
        done = total - waiting - len(running) - failed
        return Status(done, total, failed, shown, 1.0 - left_open / total, left)


def run_trial(config: Config, out: Path, lock: Path, log: Path) -> None:
    """Body of a process: one run from where it stopped to its end, under the lock of its trial."""
    held = FileLock(lock)
    if held.share():  # otherwise whoever started us is gone, and somebody else has the trial
        run_cell(config, out, log)
