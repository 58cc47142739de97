"""``elr report``: a page that shows what a run found and lets a person judge it."""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from elr.audit.threshold import Cut
from elr.audit.write import check_folder
from elr.cli.flags import Parser, add_cut, parse
from elr.cli.progress import loading
from elr.pages import SUSPECTS, write_report
from elr.report.view import RunView
from elr.run import Run

PAGE = "report.html"
DOCTYPE = b"<!doctype html>"
EXAMPLES = """one run:          elr report runs/first              writes runs/first/report.html
several runs:     elr report runs/ce runs/elr --out compare.html
more suspects:    elr report runs/first --suspects 2000
after reviewing:  elr relabel runs/first corrections.csv --out labels-v2.csv
                  elr train photos/ --model resnet18 --data.labels labels-v2.csv --out runs/second

The page is one file. It needs no server and no network, and can be mailed. Keys in the review: k keep, a accept,
u unsure, z undo, a digit or c for another class.

Rows that `elr audit RUN --review 200` drew are a second queue on the page, judged without seeing what the audit thinks
of them, and downloaded by themselves; `elr audit RUN --checked checked.csv` then says how many labels are wrong, with
an interval.
"""


def report(argv: Sequence[str]) -> int:
    """``elr report``."""
    parser = Parser(
        prog="elr report",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Write one HTML page: which labels look wrong, how training went, and suspects to judge.",
        epilog=EXAMPLES,
    )
    parser.add_argument("RUN", nargs="+", help="run directory; several are shown side by side")
    parser.add_argument("--out", metavar="FILE", help="the page [RUN/report.html; needed for several runs]")
    add_cut(parser)
    parser.add_argument("--suspects", type=int, default=SUSPECTS, help=f"labels to review, surest first [{SUSPECTS}]")
    parser.add_argument("--quiet", action="store_true", help="only errors")
    args = parse(parser, argv)
    if args.suspects < 0:
        raise ValueError(f"--suspects must be at least 0, got {args.suspects}")
    if args.out is None and len(args.RUN) > 1:
        raise ValueError("several runs need --out FILE for their page")
    runs = [Run(path) for path in args.RUN]
    out = runs[0].path / PAGE if args.out is None else Path(args.out)
    _check_page(out)
    cut = Cut(args.threshold, args.precision, args.budget)
    with loading(quiet=args.quiet):
        views = write_report(runs, out, suspects=args.suspects, cut=cut)
    if not args.quiet:
        for view in views:
            if view.audit is not None:
                print(f"{view.name}: {view.audit['found']:,} of {view.audit['examples']:,} labels look wrong")
            if view.suspects and view.more:
                print(f"note: {_cut(view, args)}")
            if view.drawn:
                print(f"{view.name}: {len(view.drawn):,} rows drawn at random can be checked on the page, too")
            for sentence in view.lacks:
                print(f"note: {sentence}")
        print(f"written: {out} ({out.stat().st_size / 1e6:.1f} MB)")
        print(opening(out))
    return 0


def _check_page(out: Path) -> None:
    """Refuse a place where a page cannot be, or where it would take that of something else, before any work."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"cannot write {out}: a page ends in .html")
    if out.is_dir():
        raise IsADirectoryError(f"{out} is a folder; choose another --out")
    check_folder(out.parent)
    if out.exists():
        with open(out, "rb") as file:
            if file.read(len(DOCTYPE)).lower() != DOCTYPE:
                raise FileExistsError(f"{out} exists already and is no page; choose another --out")


def _cut(view: RunView, args: argparse.Namespace) -> str:
    """That the page has only the surest, and the command for all."""
    shown, found = len(view.suspects), len(view.suspects) + view.more
    out = [] if args.out is None else ["--out", args.out]
    out += Cut(args.threshold, args.precision, args.budget).words()
    command = shlex.join(["elr", "report", *args.RUN, *out, "--suspects", str(found)])
    return f"the page has the {shown:,} surest of {found:,}; `{command}` shows all"


def opening(page: Path) -> str:
    """How to open a page."""
    return f"open it in a browser: {page.resolve().as_uri()}"
