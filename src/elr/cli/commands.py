"""``elr train`` and ``elr demo``, and the commands that list what there is."""

import argparse
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elr.cli.bench import jitter_note
from elr.cli.flags import (
    Parser,
    add_options,
    chosen,
    config_settings,
    given_settings,
    known_options,
    parse,
)
from elr.cli.progress import left_out, loading, say, stop, watcher
from elr.config import Config, read_toml, resolve
from elr.data import Data, load
from elr.demo import METHODS as DEMO_METHODS
from elr.demo import PAGE, demo_config, run_demo
from elr.engine.device import fast_bfloat16
from elr.engine.train import Progress
from elr.fit import default_out
from elr.job.claim import claim
from elr.job.run import run_job
from elr.methods import METHODS
from elr.report.records import read_lines
from elr.run import Run

LARGE = 64  # pixels of a side


def train(argv: Sequence[str]) -> int:
    """``elr train``."""
    settings, args = _train_arguments(argv)
    config = resolve(settings)
    device = config.runtime.resolved_device()
    if config.runtime.precision == "bfloat16" and fast_bfloat16(device) is False:
        say("note: this CPU has no fast bfloat16; float32 will be quicker", args.quiet)
    if args.out is not None and not args.dry_run:
        claim(Path(args.out), config, resume=args.resume)  # before the data are read, which may take long
        if (Path(args.out) / "summary.json").exists():
            return _finished(Path(args.out), args.quiet)
    with loading(quiet=args.quiet):
        data = load(config.data, config.noise, config.seed)
    out = Path(args.out) if args.out is not None else default_out(config, data)
    say(_plan_lines(config, data, out), args.quiet)
    if len(data.shape) == 1 and METHODS[config.method.name].views > 1:
        say(jitter_note([config.method.name]), args.quiet)
    if args.dry_run:
        from elr.plan import estimate

        for line in estimate(config, data):
            print(line)
        return 0
    progress = watcher(config.method.name, config.epochs, quiet=args.quiet)
    maker = config.model_maker(data.shape, data.num_classes)
    try:
        run_job(config, data, maker, out, resume=args.resume, progress=progress)
    except KeyboardInterrupt:
        stop(progress)
        saved = len(read_lines(out / "records.jsonl"))
        print(f"elr: interrupted; {saved} of {config.epochs} epochs are saved in {out}", file=sys.stderr)
        print(f"elr: go on with: elr train --out {shlex.quote(str(out))} --resume", file=sys.stderr)
        return 1
    finally:
        stop(progress)
    _print_summary(Run(out))
    return 0


def _finished(out: Path, quiet: bool) -> int:
    say(f"{out} is finished already", quiet)
    _print_summary(Run(out))
    return 0


def _train_arguments(argv: Sequence[str]) -> tuple[dict[str, Any], argparse.Namespace]:
    """Settings from the run being resumed, the configuration file and the flags, in this order."""
    first = Parser(add_help=False)
    first.add_argument("--config")
    first.add_argument("--out")
    first.add_argument("--resume", action="store_true")
    early, rest = first.parse_known_args(list(argv))
    saved = Path(early.out or "") / "config.toml"
    resumed = early.resume and early.out is not None and early.config is None and saved.is_file()
    settings = config_settings(str(saved) if resumed else early.config)
    for table, name in chosen(rest, settings).items() if resumed else ():
        if name != settings[f"{table}.name"]:
            theirs = settings[f"{table}.name"]
            raise ValueError(f"{early.out} holds another run: its {table}.name is {theirs!r}, here it is {name!r}")
    parser = Parser(
        prog="elr train",
        usage="elr train [DATA] [--config FILE] [--out DIR] [--resume] [--dry-run] [--method NAME] [any flag below]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Train on noisy labels. Writes a run directory: config.toml, summary.json, records.jsonl, weights.",
        epilog="Flags are the names of the TOML file. Those of a method, model or schedule depend on the one chosen:\n"
        "`elr train --method elr_plus --help` shows those of ELR+.",
    )
    parser.add_argument("DATA", nargs="?", help="short for --data")
    parser.add_argument("--config", metavar="FILE", help="TOML file with settings; flags come on top")
    parser.add_argument("--out", metavar="DIR", help="run directory (default: runs/DATA-METHOD-HASH)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out where it stopped")
    parser.add_argument("--dry-run", action="store_true", help="print sizes, steps, memory and time, and stop")
    parser.add_argument("--quiet", action="store_true", help="no progress, only errors and the result")
    found = known_options(rest, settings)
    add_options(parser, found)
    args = parse(parser, argv, found)
    own = {"DATA", "config", "out", "resume", "dry_run", "quiet"}
    given = given_settings(args, own)
    if args.resume and args.out is not None and not resumed and "data.source" not in {**settings, **given}:
        raise ValueError(f"{args.out} holds no run to go on with")
    return {**settings, **given}, args


def _plan_lines(config: Config, data: Data, out: Path) -> str:
    sizes = ", ".join(f"{len(split):,} {name}" for name in ("train", "val", "test") if (split := getattr(data, name)))
    lines = [f"{data.name}: {sizes}; {data.num_classes} classes; inputs {'x'.join(map(str, data.shape))}"]
    if data.noise is not None:
        lines.append(
            f"noise: {data.noise.kind}, asked for {data.noise.rate:.1%}, labels changed {data.noise.flip_rate:.1%}"
        )
    if data.skipped:
        lines.append(left_out(data.skipped))
    lines.append(f"{config.method.name} with {config.model.name}, {config.epochs} epochs, seed {config.seed} -> {out}")
    if config.model.name == "small_cnn" and min(data.shape[1:], default=0) > LARGE:
        lines.append("note: small_cnn is for small pictures; --model resnet18 would learn more from these")
    return "\n".join(lines)


def _print_summary(run: Run) -> None:
    summary = run.summary
    rows = {
        "test accuracy, last epoch": summary["test_accuracy"],
        "top-5 accuracy, last epoch": summary.get("test_top5"),
        f"test accuracy, epoch {summary['selected_epoch']} (chosen on validation)": summary["selected_test_accuracy"],
        f"top-5 accuracy, epoch {summary['selected_epoch']} (chosen on validation)": summary.get("selected_test_top5"),
        "clean labels predicted right": summary["clean_correct"],
        "wrong labels predicted right": summary["wrong_correct"],
        "wrong labels memorised": summary["wrong_memorized"],
        f"validation accuracy, {run.facts.get('val_labels', 'noisy')} labels": summary["val_accuracy"],
    }
    for name, value in rows.items():
        if value is not None:
            print(f"{name:<52}{value:>8.1%}")
    if "chosen_by" in summary:
        print(f"{'chosen by':<30}{summary['chosen_by']:>30}")
    rate = run.records[-1].get("noise_rate")
    if rate is not None and run.config.method.arguments.get("rate", rate) is None:
        print(f"{'noise rate, estimated from training losses':<52}{rate:>8.1%}")
    print(f"{'training seconds':<52}{summary['seconds']:>8.1f}")
    if summary.get("evidence_seconds"):  # of a method that shows mixed inputs only
        print(f"{'seconds of sweeps for elr audit, beside them':<52}{summary['evidence_seconds']:>8.1f}")
    print(f"run directory: {run.path}")


def demo(argv: Sequence[str]) -> int:
    """``elr demo``."""
    parser = Parser(
        prog="elr demo",
        description="CE, ELR and ELR+ on the 1,797 handwritten digits that come with scikit-learn, 40 % of the "
        "training labels replaced. Cross entropy memorises the wrong labels; ELR does not.",
    )
    parser.add_argument("--out", metavar="DIR", default="runs/demo", help="where to write [runs/demo]")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random [0]")
    parser.add_argument("--force", action="store_true", help="replace an earlier demo in --out")
    parser.add_argument("--quiet", action="store_true", help="no progress, only the table")
    args = parse(parser, argv)
    out = Path(args.out)
    _check_demo(out)
    if args.force and out.exists():
        shutil.rmtree(out)
    for method in DEMO_METHODS:
        claim(out / method, demo_config(method, args.seed), resume=True)
    out.mkdir(parents=True, exist_ok=True)
    say("1,797 real handwritten digits, 40 % of the training labels replaced; CE, ELR and ELR+ in turn", args.quiet)
    shown: list[Progress] = []

    def watch(title: str, config: Config) -> Progress:
        shown.append(watcher(title, config.epochs, quiet=args.quiet))
        return shown[-1]

    try:
        summary = run_demo(out, args.seed, watch=watch)
    finally:
        for progress in shown:
            stop(progress)
    _demo_table(summary)
    _demo_audit(summary["audit"])
    print(f"every record, summary.json and Figure 1 (figure1.png, figure1.svg) are in {out}")
    print(f"the report, with suspects to judge; open it in a browser: {(out / PAGE).resolve().as_uri()}")
    return 0


def _check_demo(out: Path) -> None:
    """A demo may be replaced or gone on with; anything else in the folder is somebody's."""
    names = {*DEMO_METHODS, "summary.json", "figure1.png", "figure1.svg", PAGE}
    if out.is_file():
        raise ValueError(f"{out} is a file, not a folder; choose another --out")
    if out.is_dir() and (strangers := sorted(path.name for path in out.iterdir() if path.name not in names)):
        raise ValueError(f"{out} holds more than a demo ({strangers[0]}); choose another --out")
    for path in (out / method for method in DEMO_METHODS):
        about = read_toml(path / "config.toml") if (path / "config.toml").is_file() else {}
        ours = (about.get("data.source"), about.get("method.name")) == ("digits", path.name)
        if path.exists() and not ours and (path.is_file() or any(path.iterdir())):
            raise ValueError(f"{path} is not of a demo; choose another --out")


def _demo_audit(found: Mapping[str, Any]) -> None:
    print(
        f"audit of ELR's run: it names {found['found']:,} labels; {found['precision']:.1%} of them are truly wrong, "
        f"and they are {found['recall']:.1%} of the {found['wrong']:,} wrong ones"
    )


def _demo_table(summary: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title="handwritten digits, 40 % of the training labels replaced")
    table.add_column("method")
    heads = (
        "test\nlast epoch",
        "test\nchosen on val",
        "clean labels\nright",
        "wrong labels\nright",
        "memorised",
        "neither",
    )
    for head in (*heads, "seconds"):
        table.add_column(head, justify="right")
    keys = (
        "test_accuracy",
        "selected_test_accuracy",
        "clean_correct",
        "wrong_correct",
        "wrong_memorized",
        "wrong_other",
    )
    for method, title in DEMO_METHODS.items():
        row = summary[method]
        table.add_row(title, *(f"{row[key]:.1%}" for key in keys), f"{row['seconds']:.1f}")
    Console(width=None if sys.stdout.isatty() else 110).print(table)


def methods(argv: Sequence[str]) -> int:
    """``elr methods``."""
    from elr.cli.catalogue import explain_method, list_methods

    parser = Parser(prog="elr methods", description="List the training methods, or explain one.")
    parser.add_argument("NAME", nargs="?")
    args = parse(parser, argv)
    print(explain_method(args.NAME) if args.NAME else list_methods())
    return 0


def models(argv: Sequence[str]) -> int:
    """``elr models``."""
    from elr.cli.catalogue import explain_model, list_models

    parser = Parser(prog="elr models", description="List the networks, or explain one.")
    parser.add_argument("NAME", nargs="?")
    args = parse(parser, argv)
    print(explain_model(args.NAME) if args.NAME else list_models())
    return 0


def doctor(argv: Sequence[str]) -> int:
    """``elr doctor``."""
    from elr.cli.doctor import examine

    parser = Parser(prog="elr doctor", description="What this machine has, and what follows for training.")
    parser.add_argument(
        "--root", "--data.root", dest="root", metavar="DIR", help="folder to look for data sets in (default: $ELR_DATA)"
    )
    args = parse(parser, argv)
    for line in examine(args.root):
        print(line)
    return 0
