"""``elr audit`` and ``elr relabel``: which labels are wrong, how many there are, and a label file without them."""

import argparse
import contextlib
import io
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elr.audit import relabel as labelling
from elr.audit.corrections import check_new as check_new_corrections
from elr.audit.corrections import write_corrections
from elr.audit.exchange import KINDS, Pictures, export, read_decisions
from elr.audit.issues import LabelIssues
from elr.audit.of_run import audit_run, found_in_run
from elr.audit.review import Review, check_new, drawn, read_review, review, typed_answers, write_review
from elr.audit.threshold import Cut
from elr.audit.truth import Found
from elr.audit.write import CHECKED, DRAWN, check_folder, write_issues
from elr.cli.commands import train
from elr.cli.findings import NOTE, changes, findings, headline
from elr.cli.flags import (
    Parser,
    add_cut,
    add_data_options,
    add_options,
    config_settings,
    given_settings,
    known_options,
    parse,
)
from elr.config import resolve
from elr.convert import convert
from elr.data import load
from elr.data.labels import class_names, read_labels
from elr.data.load import PYTHON, SOURCES
from elr.data.manifest import column, optional_column
from elr.data.table import read_npz, read_table
from elr.report.records import write_json
from elr.run import Run

TABLES = (".csv", ".tsv", ".parquet")
ENOUGH = 200  # rows to check
AUDIT_EXAMPLES = """a finished run:          elr audit runs/first
train first, then audit: elr audit photos/ --out runs/photos --model resnet18
                         (the same command again audits the finished run; other flags are those of elr train)
a shorter, surer list:   elr audit runs/first --precision 0.95
what you have time for:  elr audit runs/first --budget 100
how many are wrong:      elr audit runs/first --review 200     draws rows into runs/first/review.csv
                         elr report runs/first                 has them as a second queue: judge all, and download
                         elr audit runs/first --checked checked.csv
                         (an interval that needs no assumption about the noise; without the page, answer is_wrong in
                         review.csv and give that; what Label Studio exported will do, too)
judge them elsewhere:    elr audit runs/first --export label-studio --to tasks.json
"""
RELABEL_EXAMPLES = """the labels of a run:   elr relabel runs/first corrections.csv --out labels-v2.csv
a folder of pictures:  elr relabel photos/ corrections.csv --out labels-v2.csv
a label file:          elr relabel labels-v1.csv corrections.csv --out labels-v2.csv
and then:              elr train photos/ --model resnet18 --data.labels labels-v2.csv --out runs/second

corrections.csv has the columns id, given_label, decision (keep, accept, change or unsure) and label; the page that
`elr report` makes writes it. The JSON that Label Studio or FiftyOne exports will do, too.
"""


def audit(argv: Sequence[str]) -> int:
    """``elr audit``."""
    args, settings = _audit_arguments(argv)
    if _is_run(args.DATA):
        run = Path(args.DATA)
        strange = [key for key in settings if key not in ("data.source", "seed")]
        strange += [flag for flag, given in (("config", args.config), ("dry-run", args.dry_run)) if given]
        if strange:
            raise ValueError(f"{run} is a run: --{strange[0]} is for training, and it is trained")
    else:
        code = _train_first(args, settings)
        if code or args.dry_run:
            return code
        run = Path(args.out)
    folder = Path(args.out or run)
    check_folder(folder)
    if _is_run(str(folder)) and not folder.samefile(run):
        raise FileExistsError(f"{folder} is another run, and has an audit of its own; choose another --out")
    cut = Cut(args.threshold, args.precision, args.budget)
    issues = audit_run(run, cut)
    found, unknown = _known(issues, run)
    answers = None if args.checked is None else _answers(issues, Path(args.checked), folder / DRAWN)
    rows, files, notes = issues.worst(), [], [*unknown, *_withheld(issues, args)]
    if args.review is not None:
        check_new(folder / DRAWN)
        rows = drawn(issues, args.review, convert(settings.get("seed", 0), int, "seed"))
    if args.export is not None:
        pictures = _pictures(run)
        shown = rows if pictures is None else pictures.there(issues, rows)
        if len(shown) < len(rows):
            notes.append(f"{NOTE}{len(rows) - len(shown):,} of {len(rows):,} pictures are gone, and not exported")
        files += export(args.export, issues, shown, Path(args.to), pictures, blind=args.review is not None)
    if args.review is not None:
        write_review(issues, rows, folder / DRAWN)
        files.append(folder / DRAWN)
    files = [*write_issues(issues, folder), *files]
    if answers is not None:
        write_json(folder / CHECKED, answers.summary())
        files.append(folder / CHECKED)
    if args.json:
        print(json.dumps(_as_json(issues, found, answers, files), indent=2))
        return 0
    told = (issues, str(run), _how_cut(cut), answers)
    for line in (*(headline(*told) if args.quiet else findings(*told, found)), *notes):
        print(line)
    print(f"\nwritten: {', '.join(map(str, files))}")
    for line in () if args.quiet else _next(args, run, folder, len(issues)):
        print(line)
    return 0


def _audit_arguments(argv: Sequence[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Our own arguments, and settings for training."""
    first = Parser(add_help=False)
    first.add_argument("--config")
    early, rest = first.parse_known_args(list(argv))
    parser = Parser(
        prog="elr audit",
        usage="elr audit RUN [--threshold Q | --precision P | --budget K] [--review N | --checked FILE] [--out DIR]\n"
        "       elr audit DATA --out DIR [any flag of elr train]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Which labels are wrong, what they should be, and how many there are: from the files of a finished "
        "run,\nor of one that is trained first. Writes label_issues.csv (a row for every label), label_issues.parquet "
        "(with\npyarrow) and audit.json into the run directory, and changes nothing else there.",
        epilog=AUDIT_EXAMPLES,
    )
    parser.add_argument("DATA", metavar="RUN", nargs="?", help="run directory, or data to train on first")
    parser.add_argument("--out", metavar="DIR", help="where to write [the run directory]; with DATA: the run directory")
    add_cut(parser)
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--review", metavar="N", type=int, help=f"draw N rows to check by hand, into {DRAWN}; 200 or more give an "
        "interval worth having"
    )  # fmt: skip
    group.add_argument(
        "--checked", metavar="FILE", help=f"noise rate with its interval, from a {DRAWN} with answers, or from what "
        "was decided about the rows drawn: the checked.csv of the page, or an export of Label Studio"
    )  # fmt: skip
    parser.add_argument(
        "--export", choices=KINDS, help="write what looks wrong, or with --review what was drawn, for another tool"
    )
    parser.add_argument("--to", metavar="FILE", help="the .json file of --export")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress and no tables")
    parser.add_argument("--config", metavar="FILE", help="with DATA: TOML file with settings for training")
    parser.add_argument("--dry-run", action="store_true", help="with DATA: print what training would cost, and stop")
    own = {action.dest for action in parser._actions}
    known = known_options(rest, config_settings(early.config))
    add_options(parser, known)
    for action in parser._actions:
        if action.dest in known and action.dest != "seed":
            action.help = argparse.SUPPRESS  # `elr train --help` has them, and they would bury ours
    args = parse(parser, argv, known)
    if (args.export is None) != (args.to is None):
        raise ValueError("--export and --to belong together: what to write, and the file to write it to")
    return args, given_settings(args, own)


def _is_run(name: str | None) -> bool:
    return name is not None and (Path(name) / "config.toml").is_file()


def _train_first(args: argparse.Namespace, settings: dict[str, Any]) -> int:
    """Train in --out, unless that is done; the code that training ends with."""
    source = settings.get("data.source")
    if source is None and args.config is None:
        raise ValueError("give a run directory, or data to train on: elr audit runs/first")
    if source is not None and source not in SOURCES and not Path(source).exists():
        raise FileNotFoundError(f"there is no run and no data at {source!r}")
    if args.out is None:
        raise ValueError(f"{source or args.config} is not a run; to train on it first, give --out DIR")
    if _is_run(args.out):
        saved = Run(args.out).config.data.source
        if source is not None and Path(source).exists() and Path(saved).exists() and Path(source).samefile(saved):
            settings = {**settings, "data.source": saved}  # photos and photos/ are the same
    words = [f"--{key}={value}" for key, value in settings.items()] + ["--out", args.out]
    words += [] if args.config is None else ["--config", args.config]
    if args.dry_run:
        return train([*words, "--dry-run"])
    words += ["--resume"] * _is_run(args.out) + ["--quiet"] * args.quiet
    aside = io.StringIO() if args.quiet else sys.stderr if args.json else sys.stdout
    with contextlib.redirect_stdout(aside):
        code = train(words)
        print()
    return code


def _how_cut(cut: Cut) -> str:
    """What precision or budget asked for, said after the threshold it led to."""
    if cut.precision is not None:
        return f", for a precision of {cut.precision:g}"
    return "" if cut.budget is None else f", the {cut.budget:,} lowest"


def _known(issues: LabelIssues, run: Path) -> tuple[Found | None, list[str]]:
    """How good the audit was, where the truth is known; and a note if the file that knows it cannot be read."""
    try:
        return found_in_run(issues, run), []
    except (OSError, ValueError) as error:
        return None, [f"{NOTE}how good this audit is cannot be told: {error}"]


def _answers(issues: LabelIssues, path: Path, draw: Path) -> Review:
    """What the answers in a file say: a review.csv that was filled in, or decisions about the rows of a ``draw``."""
    if path.suffix.lower() in TABLES and "is_wrong" in read_table(path):
        rows, typed = read_review(issues, path)
        return review(issues, rows, typed_answers(typed, path))
    decisions = read_decisions(path)
    if not draw.is_file():
        raise FileNotFoundError(f"{path} says what is wrong but not how rows were drawn, and there is no {draw}")
    rows, _ = read_review(issues, draw)
    given = dict(zip(issues["id"], issues["given_label"], strict=True))
    if stale := [c for c in decisions if c.id in given and given[c.id] != c.given]:
        raise ValueError(f"{path} is about other labels: id {stale[0].id!r} is {given[stale[0].id]!r} in this run")
    asked = set(issues["id"][rows])
    if strange := [c for c in decisions if c.id not in asked]:
        # Suspects are judged with the audit's opinion in view. Answers that it has led say nothing about it.
        raise ValueError(
            f"{path} decides about rows that were not drawn, first {strange[0].id!r}: the page has the rows drawn as a "
            "queue of their own, and downloads what is decided there as checked.csv"
        )
    return review(issues, rows, {c.id: c.wrong for c in decisions})


def _pictures(run: Path) -> Pictures | None:
    """The image files of a run's examples; None if they are not files."""
    config = Run(run).config.data
    source = Path(config.source)
    if config.source in SOURCES or config.source.startswith(PYTHON) or source.suffix.lower() == ".npz":
        return None
    if not source.exists():
        raise FileNotFoundError(f"the pictures of {run} are not at {source}, seen from {Path.cwd()}")
    if source.is_dir():
        return Pictures({id_: source / id_ for id_ in labelling.run_labels(run).ids})
    columns = read_table(source)
    names = column(columns, config, "path_column", source)
    root = Path(config.root) if config.root else source.parent
    ids = optional_column(columns, config, "id_column", source) or names
    return Pictures({id_: root / name for id_, name in zip(ids, names, strict=True)})


def _as_json(issues: LabelIssues, found: Found | None, answers: Review | None, files: Sequence[Path]) -> dict[str, Any]:
    return {
        **issues.summary(),
        "known_because_noise_was_injected": None if found is None else found._asdict(),
        "review": None if answers is None else answers.summary(),
        "files": [str(path) for path in files],
    }


def _withheld(issues: LabelIssues, args: argparse.Namespace) -> Iterator[str]:
    """A threshold asked for may be above the quality of labels that have no better one."""
    more = int((issues["label_quality"] < issues.threshold).sum()) - issues.found
    if args.threshold is not None and more:
        yield f"{NOTE}{more:,} more are below it, but no other label is likelier; --budget and --precision list them"


def _next(args: argparse.Namespace, run: Path, folder: Path, rows: int) -> Iterator[str]:
    """What to do now."""
    name = shlex.quote(str(run))
    out = "" if folder == run else f" --out {shlex.quote(str(folder))}"
    if args.review is not None:
        lead = "next: "
        if folder == run:  # the page looks for the draw there
            yield f"next: elr report {name}              a page to check these rows on, all of them, and then"
            yield f"      elr audit {name} --checked checked.csv"
            lead = "  or: "
        yield f"{lead}answer is_wrong in {folder / DRAWN} with yes, no or unsure, from the top, and then"
        yield f"      elr audit {name}{out} --checked {shlex.quote(str(folder / DRAWN))}"
    if args.export == "label-studio":
        yield f"next: set up a Label Studio project with {Path(args.to).with_suffix('.xml')} and import {args.to}"
        if (pictures := _pictures(run)) is not None:
            yield "      pictures are served to it if it was started with LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true"
            yield f"      and LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={shlex.quote(str(pictures.served))}, and if the"
            yield f"      project has a source storage of type local files with the path {pictures.root}"
    if args.export == "fiftyone":
        yield f"next: fiftyone.Dataset.from_json({args.to!r}); tag samples keep, accept or unsure, or change their"
        yield "      ground_truth; and write_json() what you have checked"
    if args.export is not None:
        yield f"      elr relabel {name} EXPORTED.json --out labels-v2.csv"
    if args.review is None and args.export is None:
        same = "".join(f" {word}" for word in Cut(args.threshold, args.precision, args.budget).words())
        yield f"next: elr report {name}{same}              the suspects as pictures, to keep or correct"
        if args.checked is None:
            some = min(ENOUGH, rows)
            yield f"      elr audit {name}{out} --review {some}  rows to check for a noise rate without assumptions"


def relabel(argv: Sequence[str]) -> int:
    """``elr relabel``."""
    parser = Parser(
        prog="elr relabel",
        usage="elr relabel DATA CORRECTIONS --out FILE [--new-classes] [--data.root DIR and other flags of data]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Apply decisions about labels: writes a new label file for --data.labels, never over an old one.",
        epilog=RELABEL_EXAMPLES,
    )
    parser.add_argument("DATA", help="a run (its labels, with noise that was injected), data as for elr train, or a "
                        "label file")  # fmt: skip
    parser.add_argument("CORRECTIONS", help="corrections.csv, or JSON exported by Label Studio or FiftyOne")
    parser.add_argument("--out", metavar="FILE", required=True, help="the new label file, .csv; must not exist")
    parser.add_argument("--new-classes", action="store_true", help="allow labels that are no class yet")
    parser.add_argument("--corrections", metavar="FILE", help="also write the decisions as a corrections.csv")
    own = {action.dest for action in parser._actions}
    known = add_data_options(parser, ("data.root", "data.labels"))
    args = parse(parser, argv, known)
    settings = given_settings(args, own)
    out = Path(args.out)
    labelling.check_new(out)
    check_folder(out.parent)
    if args.corrections is not None:
        check_new_corrections(Path(args.corrections))
        if Path(args.corrections).absolute() == out.absolute():
            raise ValueError(f"--out and --corrections are the same file, {out}")
    decisions = read_decisions(Path(args.CORRECTIONS))
    now = _labels(args.DATA, settings)
    done = labelling.relabel(now, decisions, new_classes=args.new_classes)
    if args.corrections is not None:
        write_corrections(Path(args.corrections), decisions)
    labelling.write_labels(out, now.ids, done.labels)
    for line in changes(done, len(now.ids)):
        print(line)
    print(f"\nwritten: {out}")
    for line in _after_relabel(args, settings, done):
        print(line)
    return 0


def _labels(name: str, settings: dict[str, Any]) -> labelling.Labels:
    """The labels as they are now: of a run, of a label file, or of data."""
    if _is_run(name):
        if other := [key for key in settings if key != "data.source"]:
            raise ValueError(f"{name} is a run and knows its labels; leave --{other[0]} out")
        return labelling.run_labels(Path(name))
    path = Path(name)
    if _is_label_file(path, settings):
        ids, names = read_labels(path, settings.get("data.labels_column"))
        if ids is None:
            raise ValueError(f"{path} has labels but no ids, and corrections are by id")
        return labelling.Labels([str(id_) for id_ in ids.tolist()], names.tolist(), class_names(names))
    # Nothing is split off and nothing left out: a label file is for all examples.
    data = load(replace(resolve(settings).data, val_fraction=0.0, subset=None))
    parts = [data.train, *([] if data.val is None else [data.val])]
    ids_, labels = [], []
    for part in parts:
        ids_ += [str(id_) for id_ in part.ids.tolist()]
        labels += [data.classes[k] for k in part.y.tolist()]
    return labelling.Labels(ids_, labels, data.classes)


def _is_label_file(path: Path, settings: dict[str, Any]) -> bool:
    """Labels by id, without anything to learn from."""
    if not path.is_file():
        return False
    if path.suffix.lower() == ".npz":
        return "x" not in read_npz(path)
    return path.suffix.lower() in TABLES and settings.get("data.path_column", "path") not in read_table(path)


def _after_relabel(args: argparse.Namespace, settings: dict[str, Any], done: labelling.Relabelled) -> Iterator[str]:
    """What to know and to do now."""
    if done.new:
        names = ", ".join(map(repr, done.new[:5]))
        yield f"{NOTE}{names} is new: elr train takes its classes from DATA, so one example there must have it"
    source, more = args.DATA, [f"--{key}={value}" for key, value in settings.items() if key != "data.source"]
    if _is_run(source):
        run = Run(source)
        if run.config.noise.kind != "none":
            yield f"{NOTE}these labels hold what is left of the noise that was injected: train without --noise"
        if run.config.data.subset is not None:
            yield f"{NOTE}the run had {len(done.labels):,} of the examples, and so has the file; train needs all"
        source = "DATA" if run.needs_python else ""
        if not run.needs_python:  # all as before, but for the labels
            clean = ["--noise=none", "--noise.rate=0"] if run.config.noise.kind != "none" else []
            more = ["--config", str(run.path / "config.toml"), *clean]
    elif _is_label_file(Path(source), settings):
        source = "DATA"
    command = shlex.join(["elr", "train", *([source] if source else []), *more, "--data.labels", args.out])
    yield f"next: {command} --out runs/second"
