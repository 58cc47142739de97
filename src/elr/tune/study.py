"""The queue of trials, kept by Optuna in one file of JSON lines that any number of processes may share.

See docs/tuning.md for why this storage, and why locks of the kernel rather than Optuna's heartbeat.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from elr.parts.draw import fold
from elr.tune.lock import FileLock
from elr.tune.search import Search, trial_folder
from elr.tune.space import Axis, Listed, Point

JOURNAL = "optuna.jsonl"
NAME = "elr"
STARTUP = 5  # trials that run whole before any may be pruned

Status = Literal["waiting", "running", "done", "pruned", "failed"]
STATES: dict[TrialState, Status] = {
    TrialState.WAITING: "waiting",
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}


class Entry(NamedTuple):
    """A trial as the journal has it."""

    number: int
    point: Point
    status: Status
    note: str  # why it failed, or when it was pruned


class Taken(NamedTuple):
    """A trial that is ours to run as long as we hold its lock."""

    number: int
    point: Point
    lock: FileLock


class Trials:
    """The trials of a search, shared with every other process that opens the same folder."""

    def __init__(self, out: Path, search: Search) -> None:
        self.out, self.search = out, search
        self.lock = FileLock(out / ".lock")
        writing = FileLock(out / ".journal.lock")
        with writing:
            _mend(out / JOURNAL)
        # Optuna's own lock is a symbolic link: whoever dies with it keeps the others waiting for half a minute.
        backend = JournalFileBackend(str(out / JOURNAL), lock_obj=writing)  # type: ignore[arg-type]
        self.storage = JournalStorage(backend)
        with self.lock:
            self.study = optuna.create_study(
                storage=self.storage,
                study_name=NAME,
                direction="maximize",
                load_if_exists=True,
                sampler=optuna.samplers.RandomSampler(seed=0),
                pruner=_pruner(search),
            )
            self._enqueue()

    def entries(self) -> list[Entry]:
        """Every point once, in the order in which they were first asked for; the newest trial of it counts."""
        newest: dict[str, Entry] = {}
        for trial in self._trials():
            if self._whole(point := _point(trial)):
                name = self.search.space.folder(point)
                entry = Entry(trial.number, point, STATES[trial.state], str(trial.user_attrs.get("note", "")))
                if name not in newest or newest[name].status in ("failed", "waiting", "pruned"):
                    newest[name] = entry
        return list(newest.values())

    def take(self) -> Taken | None:
        """A trial to run: one whose process is gone, else the next of the queue, else a new one; None if there is none.

        All under one lock, so that a trial is never seen between its start and the lock that shows it is alive.
        """
        with self.lock:
            for trial in self._trials(TrialState.RUNNING):
                point = _point(trial)
                if not self._whole(point):  # its process died before Optuna had written all of it
                    self.study.tell(trial.number, state=TrialState.FAIL)
                elif lock := self._hold(point):
                    return Taken(trial.number, point, lock)
            while self.waiting():
                number = len(self._trials())
                # A seed for each number: two processes never draw the same sequence, and one draws it again.
                self.study.sampler = _sampler(self.search, fold(self.search.seeds[0], "tune", number) % 2**32)
                asked = self.study.ask(_distributions(self.search))
                if lock := self._hold(asked.params):
                    return Taken(asked.number, dict(asked.params), lock)
                # The same point is being run: this trial stays unowned, and whoever takes it up later finds it done.
        return None

    def over(self) -> bool:
        """Whether nothing is left to run, here or elsewhere."""
        return not self._trials(TrialState.RUNNING) and not self.waiting()

    def running(self) -> list[Point]:
        """Points that are being run, here or elsewhere."""
        points = [_point(trial) for trial in self._trials(TrialState.RUNNING)]
        return [point for point in points if self._whole(point)]

    def waiting(self) -> int:
        """Trials that have not been started; of a search without an end of its own, those still to be drawn, too."""
        open_ended = self.search.sampler != "grid"
        to_draw = max(0, self.search.trials - self._drawn()) if open_ended else 0
        return len(self._trials(TrialState.WAITING)) + to_draw

    def report(self, number: int, step: int, value: float) -> bool:
        """Note the validation accuracy of an epoch; says whether the trial should be given up."""
        trial_id = self._id(number)
        if step > (self.storage.get_trial(trial_id).last_step or 0):
            self.storage.set_trial_intermediate_value(trial_id, step, value)
        return self.study.pruner.prune(self.study, self.storage.get_trial(trial_id))

    def finish(self, taken: Taken, value: float) -> None:
        """It has run to its end."""
        self.study.tell(taken.number, value, skip_if_finished=True)
        taken.lock.release()

    def give_up(self, taken: Taken, note: str, *, pruned: bool = False) -> None:
        """It has not; the note says why."""
        self.storage.set_trial_user_attr(self._id(taken.number), "note", note)
        self.study.tell(taken.number, state=TrialState.PRUNED if pruned else TrialState.FAIL)
        taken.lock.release()

    def _enqueue(self) -> None:
        """The points that every search starts with, and those that failed in an earlier command."""
        entries = {self.search.space.folder(entry.point): entry for entry in self.entries()}
        for point in self.search.points():
            if self.search.space.folder(point) not in entries:
                self.study.enqueue_trial(point, user_attrs={"point": point})
        for entry in entries.values():
            if entry.status == "failed":
                self.study.enqueue_trial(entry.point, user_attrs={"point": entry.point, "again": True})

    def _drawn(self) -> int:
        """Trials that count towards their number: not those that were cut off at birth, nor second attempts."""
        return sum(self._whole(_point(t)) and not t.user_attrs.get("again") for t in self._trials())

    def _hold(self, point: Mapping[str, Any]) -> FileLock | None:
        lock = FileLock(trial_folder(self.out, self.search, point) / ".lock")
        # Shared with the process that trains: if we are killed, the trial counts as alive until that has ended, too.
        return lock if lock.attempt() and lock.share() else None

    def _whole(self, point: Mapping[str, Any]) -> bool:
        return set(point) == set(self.search.space.names)

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=states or None)

    def _id(self, number: int) -> int:
        study = self.storage.get_study_id_from_name(NAME)
        return self.storage.get_trial_id_from_study_id_trial_number(study, number)


def _point(trial: FrozenTrial) -> Point:
    return dict(trial.user_attrs.get("point") or trial.params)


def _distributions(search: Search) -> dict[str, BaseDistribution]:
    return {axis.key: _distribution(axis) for axis in search.space.axes}


def _distribution(axis: Axis) -> BaseDistribution:
    if isinstance(axis, Listed):
        return CategoricalDistribution(axis.values)
    if axis.whole:
        return IntDistribution(int(axis.low), int(axis.high), log=axis.log)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def _sampler(search: Search, seed: int) -> optuna.samplers.BaseSampler:
    """A grid is a queue that is filled at the start, so that no two processes can run the same point of it."""
    if search.sampler == "tpe":
        return optuna.samplers.TPESampler(seed=seed)
    return optuna.samplers.RandomSampler(seed=seed)


def _pruner(search: Search) -> optuna.pruners.BasePruner:
    if not search.prune:
        return optuna.pruners.NopPruner()
    # Not in the first half: under noise, what learns fast at first may be what memorises later.
    return optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=search.base.planned_epochs // 2)


def _mend(path: Path) -> None:
    """Cut off a last line that a crash left incomplete: Optuna would glue the next one to it and read neither."""
    if not path.exists() or not (text := path.read_bytes()) or text.endswith(b"\n"):
        return
    with open(path, "r+b") as file:
        file.truncate(text.rfind(b"\n") + 1)
        os.fsync(file.fileno())
