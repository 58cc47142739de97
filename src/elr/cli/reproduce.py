"""``elr reproduce``: figures and tables of the paper from the command line."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elr.bench.grid import is_done
from elr.bench.timing import epoch_seconds
from elr.bench.work import makespan, run_cells, work_left
from elr.cli.bench import job_count
from elr.cli.flags import Parser, as_typed, parse
from elr.cli.progress import grid_watcher, loading
from elr.convert import convert
from elr.data import load
from elr.engine.lines import clock
from elr.job.network import check_network
from elr.report.lock import alone
from elr.reproduce.catalogue import EXPERIMENTS
from elr.reproduce.experiment import Trial
from elr.reproduce.queue import Order, as_scale, orders, own_settings, refuse_unfinished, runs, write_report
from elr.reproduce.scale import LAPTOP, Scale
from elr.reproduce.tables import CIFARS

GIVEN = ("data.root", "data.labels", "model.weights", "runtime.device", "runtime.precision", "runtime.threads")
COUNTED = (
    "Runs that figures share count in each. Epochs of tables 3 and 4 are of ResNet-50 and of InceptionResNetV2, in "
    "epochs of cross entropy that cost as much."
)
STEPS = 8  # batches of an epoch that are timed for a guess


def reproduce(argv: Sequence[str]) -> int:
    """``elr reproduce``."""
    args = parse(_parser(), argv)
    scale = as_scale(args.scale)
    given = {key: value for key, value in vars(args).items() if key in GIVEN}
    out = Path(args.out)
    if args.list:
        print(listing(scale, given, out))
        return 0
    if not args.NAME:
        raise ValueError(f"which figure or table? {', '.join(EXPERIMENTS)}, or all; --list explains them")
    seeds = None if args.seeds is None else convert(args.seeds, int, "--seeds")
    if seeds is not None and seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    found = orders(args.NAME, scale, given, only=args.only, seeds=seeds)
    trials = runs(found)
    jobs = job_count(args.jobs, trials[0].config) if trials else 1
    if not args.show:
        with loading(quiet=args.quiet):
            _try_data(trials)
    todo = [trial for trial in trials if not is_done(out, trial)]
    lines = _plan(found, trials, todo, jobs, scale)
    if args.dry_run:
        print("\n".join([*lines, *_expected(todo, out, jobs), *_measured(found, out)]))
        return 0
    if args.show:
        return _show(found, out, scale, given, argv, measure=False)
    refuse_unfinished(out, todo, resume=args.resume)
    for line in [] if args.quiet else lines:
        print(line, file=sys.stderr)
    out.mkdir(parents=True, exist_ok=True)
    with alone(out, f"another queue of elr is running in {out}: wait for it, or use another --out"):
        return _run(found, todo, out, jobs, scale, given, argv, quiet=args.quiet)


def _run(
    found: list[Order],
    todo: list[Trial],
    out: Path,
    jobs: int,
    scale: Scale,
    given: dict[str, Any],
    argv: Sequence[str],
    *,
    quiet: bool,
) -> int:
    failures: dict[str, str] = {}
    watch = grid_watcher(quiet=quiet)
    interrupted = False
    try:
        run_cells(todo, out, jobs, watch, failures)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        watch.stop()
    if interrupted:
        print(f"elr: interrupted; go on with --resume, the last finished epoch is in {out}", file=sys.stderr)
        return 1
    _show(found, out, scale, given, argv)
    for name, reason in failures.items():
        print(f"elr: {name} failed: {reason}", file=sys.stderr)
    return 1 if failures else 0


def _show(
    found: list[Order], out: Path, scale: Scale, given: dict[str, Any], argv: Sequence[str], *, measure: bool = True
) -> int:
    for order in {order.experiment.name: order for order in found}.values():
        experiment = order.experiment
        shown = write_report(order, out, scale, given, _command(experiment.name, argv), measure=measure)
        print(f"{experiment.name}: {experiment.title} ({experiment.place}), {scale} scale\n\n{shown.text}")
        print(f"CSV, Markdown and pictures are in {out / experiment.name}\n")
    return 0


def _command(name: str, argv: Sequence[str]) -> str:
    """What makes this figure or table alone, again: without its neighbours in the queue, however it was shown."""
    passing = {"--show", "--resume", "--quiet", "all", *EXPERIMENTS}
    return as_typed("elr reproduce", [name, *(word for word in argv if word not in passing)])


def listing(scale: Scale, given: dict[str, Any], out: Path) -> str:
    """Every figure and table with what is done of it and what it costs."""
    lines = [f"{'name':<9}{'done':>9}  {'cost':<15} what ({scale} scale; finished runs in {out})"]
    for experiment in EXPERIMENTS.values():
        trials = runs([Order(experiment, all_ := experiment.trials(scale, own_settings(experiment, given)), all_)])
        done = sum(is_done(out, trial) for trial in trials)
        count = f"{done}/{len(trials)}" if trials else "-"
        cost = _cost(trials, experiment.measured(out / experiment.name), scale)
        lines.append(f"{experiment.name:<9}{count:>9}  {cost:<15} {experiment.title} ({experiment.place})")
    lines.append("")
    lines.append(_cost_note(scale))
    return "\n".join(lines)


def _cost(trials: Sequence[Trial], measured: float, scale: Scale) -> str:
    """In runs of cross entropy: on any machine the same."""
    work = measured + sum(trial.work for trial in trials)
    if not work:
        return "seconds"
    if trials and trials[0].config.data.source not in CIFARS:  # networks of another size
        return f"{work:.0f} epochs"
    return f"{work / (120 if scale == 'paper' else LAPTOP['epochs']):.1f} CE runs"


def _cost_note(scale: Scale) -> str:
    if scale == "paper":
        return (
            "A CE run is 120 epochs of ResNet-34 (in tables 2 and 5, of PreActResNet-18); the paper took 1.1 hours "
            "for one of ELR on a V100. " + COUNTED
        )
    return (
        "A CE run is 7 to 13 CPU-minutes with quick bfloat16, 30 and more without; `--dry-run` measures it here. "
        + COUNTED
    )


def _plan(found: Sequence[Order], trials: Sequence[Trial], todo: Sequence[Trial], jobs: int, scale: Scale) -> list[str]:
    names = ", ".join(dict.fromkeys(order.experiment.name for order in found))
    networks = ", ".join(sorted({trial.config.model.name for trial in trials})) or "none"
    return [
        f"{names}; {scale} scale; network {networks}",
        f"runs              {len(trials)}, {len(trials) - len(todo)} done already; {jobs} at a time",
    ]


def _try_data(trials: Sequence[Trial]) -> None:
    """Load each data set once, so that what is missing shows before hours of work."""
    seen: set[tuple[Any, ...]] = set()
    for trial in trials:
        config = trial.config
        key = (config.data.source, config.data.labels, config.data.labels_column, config.model.name)
        if key not in seen:
            seen.add(key)
            data = load(config.data, config.noise, config.seed)
            check_network(config.model_maker(data.shape, data.num_classes), data)


def _expected(todo: Sequence[Trial], out: Path, jobs: int) -> list[str]:
    """Every run and the whole: a guess from a few batches of each network on its data."""
    if not todo:
        return ["expected time     none, all is done"]
    seconds: dict[tuple[str, str], float] = {}
    for trial in todo:
        config = trial.config
        key = (config.data.source, config.model.name)
        if key not in seconds:
            data = load(config.data, config.noise, config.seed)
            rows = STEPS * config.optim.batch_size
            epoch_seconds(config, data, epochs=1, rows=rows)  # the first one allocates
            seconds[key] = epoch_seconds(config, data, epochs=1, rows=rows) / config.make_method().cost
    taken = [work_left(out, trial) * seconds[trial.config.data.source, trial.config.model.name] for trial in todo]
    lines = [
        f"  {clock(time):>9}  {trial.spec.label}, seed {trial.seed}" for trial, time in zip(todo, taken, strict=True)
    ]
    whole = clock(makespan(taken, jobs))
    return [*lines, f"expected time     about {whole} with {jobs} at a time, evaluation not counted"]


def _measured(found: Sequence[Order], out: Path) -> list[str]:
    """What is trained when it is shown, not in the queue."""
    work = {o.experiment.name: o.experiment.measured(out / o.experiment.name) for o in found}
    return [
        f"                  {name} is timed when it is shown: as long as about {epochs:.0f} epochs of cross entropy"
        for name, epochs in work.items()
        if epochs
    ]


def _parser() -> Parser:
    parser = Parser(
        prog="elr reproduce",
        usage="elr reproduce NAME [NAME ...] --data.root DIR [--scale laptop|paper] [--out DIR] [--resume]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run an experiment of the paper and draw it. `laptop` is the same experiment with a small network "
        "and one fixed schedule for\ntwo CPU cores; `paper` has the paper's networks, schedules and number of noise "
        "realisations, for a GPU. Runs are ordinary run\nfolders below OUT/runs, shared by the figures that need "
        "them; OUT/NAME gets NAME.csv, NAME.md, NAME.json and pictures.",
        epilog="elr reproduce --list\nelr reproduce fig1 fig2 --data.root DIR\n"
        "elr reproduce table1 --only 'cifar10 symmetric 0.4' --data.root DIR --dry-run\n"
        "elr reproduce all --resume --data.root DIR --labels cifar10n.npz",
    )
    parser.add_argument("NAME", nargs="*", help="fig1, table1, ... or all: what needs CIFAR only, in order of priority")
    parser.add_argument("--list", action="store_true", help="every figure and table: what is done, what it costs")
    parser.add_argument("--scale", default="laptop", help="laptop, or paper [laptop]")
    parser.add_argument("--out", metavar="DIR", default="runs/reproduce", help="folder for all of it [runs/reproduce]")
    parser.add_argument("--only", default="*", help="a part: 'cifar10 symmetric 0.4/ELR*', with * for anything [*]")
    parser.add_argument("--seeds", help="noise realisations [as the paper at its scale; 1 at a laptop's]")
    parser.add_argument("--jobs", help="runs at a time, one thread each [number of cores]")
    parser.add_argument("--resume", action="store_true", help="go on with runs that were interrupted")
    parser.add_argument("--show", action="store_true", help="run nothing; draw what is finished")
    parser.add_argument("--dry-run", action="store_true", help="print the runs and the expected time, and stop")
    parser.add_argument("--quiet", action="store_true", help="no progress, only errors and results")
    group = parser.add_argument_group("where things are")
    none: dict[str, Any] = {"default": argparse.SUPPRESS}
    group.add_argument("--data.root", dest="data.root", metavar="DIR", help="folder with the data", **none)
    group.add_argument(
        "--labels", dest="data.labels", metavar="FILE", help="human labels for CIFAR-10 (CIFAR-10N .npz)", **none
    )
    group.add_argument(
        "--weights",
        dest="model.weights",
        metavar="FILE",
        help="pretrained ResNet-50, for table3 (torchvision's resnet50-0676ba61.pth)",
        **none,
    )
    group.add_argument("--runtime.device", dest="runtime.device", metavar="DEVICE", help="auto, cpu, cuda", **none)
    group.add_argument(
        "--runtime.precision", dest="runtime.precision", metavar="NAME", help="float32 or bfloat16", **none
    )
    group.add_argument("--runtime.threads", dest="runtime.threads", metavar="N", help="threads of a run [1]", **none)
    return parser
