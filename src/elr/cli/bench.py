"""``elr bench``: a grid of runs from the command line."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from elr.bench.grid import (
    Grid,
    claim_grid,
    folder,
    is_done,
    is_schedule,
    make_grid,
    method_arms,
    setting_name,
    split_arm,
)
from elr.bench.table import COLUMNS, page, tidy, write_table
from elr.bench.timing import expected_seconds, read_times, time_methods
from elr.bench.work import makespan, run_cells, work_left
from elr.cli.flags import Parser, add_options, as_typed, config_settings, given_settings, known_options, parse
from elr.cli.progress import grid_watcher, loading
from elr.config import FREE, Config, Option, options
from elr.convert import convert
from elr.data import Data, load
from elr.data.stream import JITTER
from elr.engine.lines import clock
from elr.job.claim import data_facts, same_data
from elr.job.network import check_network
from elr.methods import METHODS
from elr.report.comparison import draw_comparison
from elr.report.lock import alone
from elr.report.machine import facts
from elr.report.records import write_csv, write_json

OWN = {"DATA", "config", "out", "methods", "seeds", "budget", "jobs", "no_timing", "dry_run", "quiet"}


def bench(argv: Sequence[str]) -> int:
    """``elr bench``."""
    args, grid = _arguments(argv)
    if args.out is None and not args.dry_run:
        raise ValueError("--out is missing: the folder for runs and tables")
    out = Path(args.out or "runs/bench")
    if args.out is not None:
        claim_grid(out, grid)
    with loading(quiet=args.quiet):
        data = _try_data(grid, out if args.out is not None else None)
    jobs = job_count(args.jobs, grid.baseline())
    todo = [cell for cell in grid.cells if args.out is None or not is_done(out, cell)]
    lines = _plan_lines(grid, data, jobs, len(todo))
    if args.dry_run:
        left = [cell.work if args.out is None else work_left(out, cell) for cell in todo]
        seconds = expected_seconds(grid, makespan(left, jobs), data)
        print("\n".join([*lines, f"expected time     about {clock(seconds)}, evaluation not counted"]))
        return 0
    for line in [] if args.quiet else lines:
        print(line, file=sys.stderr)
    out.mkdir(parents=True, exist_ok=True)
    with alone(out, f"another queue of elr is running in {out}: wait for it, or use another --out"):
        return _run(grid, out, jobs, data, as_typed("elr bench", argv), timed=not args.no_timing, quiet=args.quiet)


def _run(grid: Grid, out: Path, jobs: int, data: Data, command: str, *, timed: bool, quiet: bool) -> int:
    about = _about(grid, jobs, data, command)
    write_json(out / "bench.json", about)
    watch = grid_watcher(quiet=quiet)
    failures: dict[str, str] = {}
    interrupted = False
    try:
        run_cells(grid.cells, out, jobs, watch, failures)
        if timed:
            ran = tuple(m for m in grid.methods if any(is_done(out, c) for c in grid.cells if c.method == m))
            time_methods(grid, out, ran, watch.timing)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        watch.stop()
    timing = about["timing"] = read_times(grid, out)
    about["failures"] = failures
    rows = tidy(grid, out, timing, failures)
    write_json(out / "bench.json", about)
    write_csv(out / "table.csv", rows, COLUMNS)
    write_table(out / "table.md", rows, about, failures)
    drawn = draw_comparison(rows, out / "table")
    if interrupted:
        done = sum(is_done(out, cell) for cell in grid.cells)
        print(f"elr: interrupted; {done} of {len(grid.cells)} cells are done in {out}", file=sys.stderr)
        print("elr: the same command goes on where it stopped", file=sys.stderr)
        return 1
    print(page(rows, about, failures))
    print(f"{', '.join(['table.csv', 'table.md', *(path.name for path in drawn), 'bench.json'])} are in {out}")
    for name, reason in failures.items():
        print(f"elr: {name} failed: {reason}", file=sys.stderr)
    return 1 if failures else 0


def _arguments(argv: Sequence[str]) -> tuple[argparse.Namespace, Grid]:
    first = Parser(add_help=False)
    first.add_argument("--config")
    first.add_argument("--methods")
    early, rest = first.parse_known_args(list(argv))
    if any(word.partition("=")[0] in ("--method", "--method.name") for word in rest):
        raise ValueError("--method is for one run; give --methods NAME,NAME here")
    settings = config_settings(early.config)
    if any(key.startswith("method") for key in settings):
        print(f"elr: note: [method] of {early.config} is left out: methods have their defaults here", file=sys.stderr)
        settings = {key: value for key, value in settings.items() if not key.startswith("method")}
    # All arguments of all methods would bury the rest of the help; those of methods that are named are shown.
    brief = early.methods is None and not {"-h", "--help"}.isdisjoint(rest)
    found = _options(rest, settings, () if brief else method_arms(early.methods or "all"))
    parser = _parser()
    add_options(parser, found)
    args = parse(parser, argv, found)
    given = given_settings(args, OWN)
    if args.budget == "authors":
        if own := [key for key in given if is_schedule(key)]:
            raise ValueError(f"--budget authors decides {own[0]} for each method; leave --{own[0]} out")
        if own := [key for key in settings if is_schedule(key)]:
            decided = f"--budget authors decides {', '.join(own)} where the authors' values are known"
            print(f"elr: note: {decided}; {early.config} does elsewhere", file=sys.stderr)
    settings = {**settings, **given}
    kinds = convert(_listed(settings.pop("noise.kind", "none")), tuple[str, ...], "noise.kind")
    rates = convert(_listed(settings.pop("noise.rate", "")), tuple[float, ...], "noise.rate")
    seeds = convert(args.seeds, int, "--seeds")
    return args, make_grid(settings, kinds, rates, args.methods, seeds, args.budget)


def _parser() -> Parser:
    parser = Parser(
        prog="elr bench",
        usage="elr bench [DATA] --out DIR [--noise KIND,..] [--noise.rate RATE,..] [--methods NAME,..] [--seeds N] "
        "[any option of elr train]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compare methods on the same data, noise and network, over several seeds. Every cell of the grid "
        "is an ordinary run\nbelow DIR/runs; what is done is not run again. Writes DIR/table.csv, DIR/table.md, "
        "DIR/table.png and .svg, and DIR/bench.json.",
        epilog="--method.NAME VALUE sets an argument of every method compared that has it.",
    )
    parser.add_argument("DATA", nargs="?", help="short for --data")
    parser.add_argument("--config", metavar="FILE", help="TOML file with settings for all cells; flags come on top")
    parser.add_argument("--out", metavar="DIR", help="folder of the comparison")
    parser.add_argument(
        "--methods",
        default="all",
        help="all, or names separated by commas; a name may "
        "bring settings: elr,elr:lam=7:beta=0.9 compares ELR with another ELR [all]",
    )
    parser.add_argument("--seeds", default="3", help="seeds of each cell, from --seed on [3]")
    parser.add_argument(
        "--budget", default="equal", help="equal: the same number of gradient evaluations for all; authors: each "
        "method's published epochs, optimizer and schedule [equal]"
    )  # fmt: skip
    parser.add_argument("--jobs", help="cells run at a time, one thread each [number of cores]")
    parser.add_argument("--no-timing", action="store_true", help="leave out the serial timing at the end")
    parser.add_argument("--dry-run", action="store_true", help="print cells, epochs and expected time, and stop")
    parser.add_argument("--quiet", action="store_true", help="no progress, only errors and the table")
    return parser


def _options(words: Sequence[str], settings: dict[str, Any], methods: Sequence[str]) -> dict[str, Option]:
    """Those of ``elr train``, with lists for the noise and the arguments of every method compared."""
    found = {key: option for key, option in known_options(words, settings).items() if not key.startswith("method.")}
    for key in ("noise.kind", "noise.rate"):
        found[key] = found[key]._replace(type=str, help=f"{found[key].help}; or several, separated by commas")
    for method in dict.fromkeys(split_arm(arm)[0] for arm in methods):
        for key, option in options({"method": method}).items():
            if key.startswith("method.") and key != "method.name":
                found.setdefault(key, option._replace(help=f"{option.help} ({method})"))
    return found


def _listed(value: Any) -> Any:
    """A single number of a TOML file is a list of one."""
    return value if isinstance(value, str | list) else [value]


def job_count(asked: str | None, config: Config) -> int:
    """Runs at a time: as asked for, or as many as the cores hold at the threads of one run."""
    if asked is not None:
        jobs = int(convert(asked, int, "--jobs"))
        if jobs < 1:
            raise ValueError(f"--jobs must be at least 1, got {jobs}")
        return jobs
    if config.runtime.resolved_device().type != "cpu":
        return 1  # runs that share a device would only wait for each other
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // (config.runtime.threads or 1))


def _try_data(grid: Grid, out: Path | None) -> Data:
    """Load every noise setting once, so that a mistake shows before hours of work; returns the first.

    What is done must have been done on these data: a folder of pictures may have changed since.
    """
    loaded = []
    for kind, rate in grid.noises:
        config = grid.config(grid.methods[0], kind, rate, grid.seeds[0])
        data = load(config.data, config.noise, config.seed)
        if data.val is None and data.test is None:
            raise ValueError("nothing to compare methods by: the data have no test part, and data.val_fraction is 0")
        check_network(config.model_maker(data.shape, data.num_classes), data)
        loaded.append(data)
        here = [c for c in grid.cells if (c.noise, c.rate, c.seed) == (kind, rate, grid.seeds[0])]
        for run in [folder(out, cell) for cell in here] if out is not None else []:
            if (run / "data.json").exists():
                same_data(run, data_facts(data))
    return loaded[0]


def _plan_lines(grid: Grid, data: Data, jobs: int, todo: int) -> list[str]:
    noises = ", ".join(setting_name(*noise) for noise in grid.noises)
    epochs = {cell.method: cell.epochs for cell in grid.cells}
    names = list(dict.fromkeys(split_arm(arm)[0] for arm in grid.methods))
    lines = [
        f"{data.name}: {len(data.train):,} training examples; noise {noises}; {len(grid.methods)} methods; "
        f"seeds {grid.seeds[0]} to {grid.seeds[-1]}; budget {grid.budget}",
        f"cells             {len(grid.cells)}, {len(grid.cells) - todo} done already; {jobs} at a time",
        "epochs            " + ", ".join(f"{method} {count}" for method, count in epochs.items()),
    ]
    if grid.budget == "authors" and (without := [m for m in names if not METHODS[m].authors]):
        lines.append(f"note: no schedule of the authors is known for {', '.join(without)}: they have the run's")
    if len(data.shape) == 1 and (several := [m for m in names if METHODS[m].views > 1]):
        lines.append(jitter_note(several))
    return lines


def jitter_note(methods: Sequence[str]) -> str:
    """What a user of vectors should know about methods that need several views."""
    verb = "needs" if len(methods) == 1 else "need"
    return (
        f"note: {', '.join(methods)} {verb} several views of an example; those of a vector are made by jitter "
        f"({JITTER:g} standard deviations), not by crops"
    )


def _about(grid: Grid, jobs: int, data: Data, command: str) -> dict[str, Any]:
    """All that the numbers need beside them."""
    configs = {cell.method: cell.config for cell in grid.cells}
    methods = {}
    for name, config in configs.items():
        method = config.make_method()
        own = {key: value for key, value in config.flat().items() if is_schedule(key) or key.startswith("method.")}
        methods[name] = {"cost": method.cost, "backwards": method.backwards, "settings": own}
    shared = grid.baseline()
    free = {key: value for key, value in shared.flat().items() if key.split(".")[0] in FREE and value is not None}
    return {
        "command": command,
        "data": data.name,
        "model": shared.model.name,
        "budget": grid.budget,
        "jobs": jobs,
        "threads": grid.baseline().runtime.threads or torch.get_num_threads(),
        "facts": facts(),
        "grid": grid.identity(),
        "free": free,
        "methods": methods,
        "timing": None,
        "failures": {},
    }
