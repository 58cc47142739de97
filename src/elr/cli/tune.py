"""``elr tune``: hyperparameters from the command line."""

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from elr.bench.timing import epoch_seconds
from elr.bench.work import Status
from elr.cli.bench import jitter_note, job_count
from elr.cli.flags import Parser, add_options, as_typed, config_settings, given_settings, known_options, parse
from elr.cli.progress import live_bar, loading, remaining
from elr.config import FREE, Option
from elr.convert import convert
from elr.data import Data, load
from elr.engine.lines import clock
from elr.job.claim import changed_facts, data_facts
from elr.job.network import check_network
from elr.methods import METHODS
from elr.report.machine import facts
from elr.report.records import read_json, write_json, write_text
from elr.report.tuning import draw_search
from elr.tune.search import Search, claim_search, make_search
from elr.tune.space import PAPER_GRIDS, Listed
from elr.tune.table import choice_of, collect, mark, page, write_trials
from elr.tune.work import run_search

OWN = {"DATA", "config", "out", "search", "trials", "sampler", "jobs", "seeds", "prune", "dry_run", "quiet"}


def tune(argv: Sequence[str]) -> int:
    """``elr tune``."""
    args, search = _arguments(argv)
    if find_spec("optuna") is None:
        raise ImportError('elr tune needs Optuna: pip install "elr[tune]"')
    if args.out is None and not args.dry_run:
        raise ValueError("--out is missing: the folder for runs and tables")
    out = Path(args.out) if args.out is not None else None
    if out is not None:
        claim_search(out, search)
    with loading(quiet=args.quiet):
        data = _try_data(search, out)
    jobs = job_count(args.jobs, search.base)
    for line in [] if args.quiet and not args.dry_run else _plan_lines(search, data, jobs, searched=bool(args.search)):
        print(line, file=sys.stdout if args.dry_run else sys.stderr)
    if args.dry_run:
        print(f"expected time     about {clock(_expected_seconds(search, data, jobs))}, evaluation not counted")
        return 0
    assert out is not None
    out.mkdir(parents=True, exist_ok=True)
    about = _about(search, jobs, data, as_typed("elr tune", argv))
    if not (out / "tune.json").exists():
        write_json(out / "tune.json", about)
    return _run(search, out, jobs, about, quiet=args.quiet)


def _run(search: Search, out: Path, jobs: int, about: dict[str, Any], *, quiet: bool) -> int:
    import optuna

    from elr.tune.study import Trials

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    trials = Trials(out, search)
    if not quiet and (done := sum(entry.status in ("done", "pruned") for entry in trials.entries())):
        print(f"done already      {done} of {search.trials} trials", file=sys.stderr)
    watch = _watcher(quiet=quiet)
    interrupted = False
    try:
        with _terminated_is_interrupted():
            run_search(search, trials, out, jobs, watch)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        watch.stop()
    rows = collect(search, out, trials.entries())
    choice = choice_of(search, rows)
    mark(search, rows, choice)
    about["choice"] = choice and {
        "best": choice.best._asdict(),
        "chosen": choice.chosen._asdict(),
        "near": [trial.number for trial in choice.near],
        "reason": choice.reason,
    }
    about["trials"] = rows
    write_json(out / "tune.json", about)
    write_trials(out / "trials.csv", search, rows)
    text = page(search.space.names, rows, about)
    write_text(out / "trials.md", text)
    title = f"{about['method']} on {about['data']}, {about['noise']}"
    drawn = draw_search(rows, _axes(search), title, f"{about['val_labels']} validation, %", out / "tune")
    if interrupted:
        done = sum(row["status"] in ("done", "pruned") for row in rows)
        print(f"elr: interrupted; {done} of {search.trials} trials are done in {out}", file=sys.stderr)
        print("elr: the same command goes on where it stopped", file=sys.stderr)
        return 1
    print(text)
    for row in (failed := [row for row in rows if row["status"] == "failed"]):
        print(f"elr: {search.space.title(row['point'])} failed: {row['note']}", file=sys.stderr)
    if choice is None:
        return 1
    note = f"# Chosen by `{about['command']}`\n# {choice.reason}\n"
    write_text(out / "best.toml", note + search.config(choice.chosen.point, search.seeds[0]).toml())
    files = ["best.toml", "trials.csv", "trials.md", *(path.name for path in drawn), "tune.json"]
    print(f"{', '.join(files)} are in {out}; train with: elr train --config {out / 'best.toml'}")
    return 1 if failed else 0


def _arguments(argv: Sequence[str]) -> tuple[argparse.Namespace, Search]:
    first = Parser(add_help=False)
    first.add_argument("--config")
    early, rest = first.parse_known_args(list(argv))
    settings = config_settings(early.config)
    found: dict[str, Option] = known_options(rest, settings)
    parser = _parser()
    add_options(parser, found)
    args = parse(parser, argv, found)
    given = given_settings(args, OWN)
    search = make_search(
        {**settings, **given},
        args.search,
        found,
        sampler=args.sampler,
        trials=None if args.trials is None else convert(args.trials, int, "--trials"),
        seeds=convert(args.seeds, int, "--seeds"),
        prune=args.prune,
    )
    return args, search


def _parser() -> Parser:
    grids = "; ".join(f"{method}: {' '.join(words)}" for method, words in PAPER_GRIDS.items())
    parser = Parser(
        prog="elr tune",
        usage="elr tune [DATA] --out DIR [--search KEY=VALUES].. [--sampler NAME] [--trials N] [--seeds K] "
        "[any option of elr train]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Choose hyperparameters by accuracy on noisy validation: no true label is used.\n"
        "Every trial is an ordinary run below DIR/runs (several with --seeds). The same command goes on where it was\n"
        "stopped; started several times on one DIR, the processes share the work. Writes DIR/best.toml for\n"
        "`elr train --config`, trials.csv, trials.md, tune.json, tune.png and .svg.",
        epilog="What is not searched keeps its default or the value given. Trials within a standard error of the best\n"
        "cannot be told apart; of these, the one that leaves most options at their defaults is chosen.",
    )
    parser.add_argument("DATA", nargs="?", help="short for --data")
    parser.add_argument("--config", metavar="FILE", help="TOML file with settings for all trials; flags come on top")
    parser.add_argument("--out", metavar="DIR", help="folder of the search")
    parser.add_argument(
        "--search",
        metavar="KEY=VALUES",
        action="append",
        default=[],
        help="an option and the values to try: method.lam=1,3,5; or a range, for tpe and random: method.lam=1..10, "
        f"optim.lr=1e-3..1e-1:log. May be given several times [the paper's grid: {grids}]",
    )
    parser.add_argument(
        "--sampler",
        default="grid",
        help="grid: every combination; tpe: Optuna's tree-structured Parzen estimator, which learns from the trials so "
        "far; random [grid]",
    )
    parser.add_argument("--trials", help="trials in all, of tpe and random, by whichever processes [20]")
    parser.add_argument("--jobs", help="trials of this process at a time, one thread each [number of cores]")
    parser.add_argument(
        "--seeds", default="1", help="runs of each trial, with seeds from --seed on; their mean counts [1]"
    )
    parser.add_argument(
        "--prune",
        default="none",
        help="median: give a trial up in the second half of its first seed when its validation accuracy has stayed "
        "below the median of the others. Off by default: under label noise early curves mislead, since what learns "
        "fast may memorise later [none]",
    )
    parser.add_argument("--dry-run", action="store_true", help="print trials, epochs and expected time, and stop")
    parser.add_argument("--quiet", action="store_true", help="no progress, only errors and the table")
    return parser


def _try_data(search: Search, out: Path | None) -> Data:
    """Load the data once, so that a mistake shows before hours of work. What is done must have been done on them."""
    config = search.base
    data = load(config.data, config.noise, config.seed)
    if data.val is None:
        raise ValueError(
            f"{data.name} has no validation part to judge by; data.val_fraction is {config.data.val_fraction:g}"
        )
    check_network(config.model_maker(data.shape, data.num_classes), data)
    facts = data_facts(data)
    for path in sorted(out.glob(f"runs/*/seed{config.seed}/data.json")) if out is not None else ():
        if changed_facts(read_json(path), facts):
            raise ValueError(f"{out} holds a search on other data: they have changed since {path.parent} was started")
    return data


def _plan_lines(search: Search, data: Data, jobs: int, *, searched: bool) -> list[str]:
    method = search.base.method.name
    assert data.val is not None
    lines = [
        f"{data.name}: {len(data.train):,} training and {len(data.val):,} {_val_labels(data)} validation examples; "
        f"{_noise(search)}; {method} with {search.base.model.name}, {search.base.planned_epochs} epochs",
        f"search            {'; '.join(search.space.words())} ({search.sampler})",
        f"trials            {search.trials}, {len(search.seeds)} run(s) each; {jobs} at a time",
    ]
    if not searched and method == "elr_plus":
        lines.append("note: as in the paper, lam and beta are those found for elr: tune elr first, or give --search")
    if len(data.shape) == 1 and METHODS[method].views > 1:
        lines.append(jitter_note([method]))
    return lines


def _val_labels(data: Data) -> str:
    return "clean" if data.clean_val else "noisy"


def _noise(search: Search) -> str:
    noise = search.base.noise
    return f"noise {noise.kind} {100 * noise.rate:g} %" if noise.rate else f"noise {noise.kind}"


def _expected_seconds(search: Search, data: Data, jobs: int) -> float:
    """From one short epoch of the real engine."""
    config = search.cell({}, search.seeds[0])
    rows = 8 * config.optim.batch_size
    epoch_seconds(config, data, epochs=1, rows=rows)  # the first one allocates
    epoch = epoch_seconds(config, data, epochs=1, rows=rows)
    return epoch * config.planned_epochs * search.trials * len(search.seeds) / min(jobs, search.trials)


def _axes(search: Search) -> list[dict[str, Any]]:
    return [
        {
            "key": axis.key,
            "name": search.space.names[axis.key],
            "values": list(axis.values) if isinstance(axis, Listed) else None,
            "log": not isinstance(axis, Listed) and axis.log,
        }
        for axis in search.space.axes
    ]


def _about(search: Search, jobs: int, data: Data, command: str) -> dict[str, Any]:
    """All that the numbers need beside them."""
    from importlib.metadata import version

    free = {key: value for key, value in search.base.flat().items() if key.split(".")[0] in FREE and value is not None}
    assert data.val is not None
    return {
        "command": command,
        "data": data.name,
        "noise": _noise(search),
        "method": search.base.method.name,
        "model": search.base.model.name,
        "epochs": search.base.planned_epochs,
        "val_examples": len(data.val),
        "val_labels": _val_labels(data),
        "jobs": jobs,
        "threads": search.cell({}, search.seeds[0]).runtime.threads or torch.get_num_threads(),
        "prune": "median" if search.prune else "none",
        "facts": {**facts(), "optuna": version("optuna")},
        "identity": search.identity(),
        "free": free,
        "choice": None,
        "trials": [],
    }


@contextmanager
def _terminated_is_interrupted() -> Iterator[None]:
    """SIGTERM ends a search as tidily as Ctrl-C: batch systems send it before they kill."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _watcher(*, quiet: bool) -> "Silent":
    if quiet:
        return Silent()
    return Bar() if sys.stderr.isatty() else Lines()


class Silent:
    """Nobody watches."""

    def ended(self, title: str, result: str, status: Status) -> None:
        """Ignore."""

    def look(self, status: Status) -> None:
        """Ignore."""

    def stop(self) -> None:
        """Nothing to put in order."""


class Lines(Silent):
    """A line for each trial of ours that ends, and one a minute while none does."""

    PATIENCE = 60.0

    def __init__(self) -> None:
        self.spoke = time.monotonic()

    def ended(self, title: str, result: str, status: Status) -> None:
        """Print it with the time left."""
        self._say(status, f"{title}  {result}")

    def look(self, status: Status) -> None:
        """Show that trials still move."""
        if time.monotonic() - self.spoke > self.PATIENCE:
            self._say(status, "; ".join(f"{title} {place}" for title, place in status.running.items()))

    def _say(self, status: Status, text: str) -> None:
        self.spoke = time.monotonic()
        place = f"[{status.done + status.failed}/{status.total}]"
        print(f"{place} {text}  left {remaining(status)}", file=sys.stderr, flush=True)


class Bar(Silent):
    """A live bar over the whole search, whoever runs it; our trials that end are printed above it."""

    def __init__(self) -> None:
        self.bar, self.task = live_bar("0 trials")

    def ended(self, title: str, result: str, status: Status) -> None:
        """Print it above the bar."""
        self.bar.console.print(f"{title}  {result}", markup=False, highlight=False)
        self.look(status)

    def look(self, status: Status) -> None:
        """Move."""
        title = f"{status.done}/{status.total} trials" + (f", {status.failed} failed" if status.failed else "")
        state = "; ".join(f"{name} {place}" for name, place in list(status.running.items())[:2])
        self.bar.update(self.task, description=title, completed=status.fraction, state=state, left=remaining(status))

    def stop(self) -> None:
        """Leave the terminal in order."""
        self.bar.stop()
