"""``elr theory``: the claims of the paper's Section 3 and appendix A, measured."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from elr.cli.flags import Parser, as_typed, parse
from elr.config import nearest
from elr.convert import convert
from elr.report.machine import facts
from elr.theory.check import CLAIMS, write_results
from elr.theory.claim import judge, measured
from elr.theory.lab import Lab
from elr.theory.plan import QUICK, Plan, check_plan, sizes_from


def theory(argv: Sequence[str]) -> int:
    """``elr theory``."""
    args = parse(_parser(), argv)
    plan, names, out = _plan(args), _claims(args.claims), Path(args.out)
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out} is not a folder")
    started = time.perf_counter()

    def say(line: str) -> None:
        if not args.quiet:
            print(f"{time.perf_counter() - started:5.0f} s  {line}", file=sys.stderr, flush=True)

    lab = Lab(plan, say=say)
    results = [judge(CLAIMS[name], lab) for name in names]
    about = {
        "command": as_typed("elr theory", argv),
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(time.process_time(), 1),  # on a busy machine the other number says little
        "threads": torch.get_num_threads(),
        "facts": facts(),
        "plan": asdict(plan),
    }
    written = write_results(lab, results, about, out)
    show(results, plan)
    print(f"\n{', '.join(path.name for path in written)} are in {out}")
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="elr theory",
        usage="elr theory [--out DIR] [--n N,..] [--p P,..] [--sigma S,..] [--delta D,..] [--eta E,..] [--seeds N] "
        "[--claims NAME,..] [--quick]",
        description="Measure every claim of the paper's theory on two Gaussian clouds with noisy labels. Claims are "
        "judged at the first value of each list; the others are varied one at a time. Writes theory.json, a CSV for "
        "each experiment and figures (PNG, SVG).",
        epilog="docs/theory.md explains the model, the claims and every erratum.",
    )
    parser.add_argument("--out", metavar="DIR", default="runs/theory", help="folder of the results [runs/theory]")
    parser.add_argument("--n", metavar="N,..", help="examples [p / .9]")
    parser.add_argument("--p", metavar="P,..", help="dimensions [4000 and five smaller]")
    parser.add_argument(
        "--sigma", metavar="S,..", help="spread of a cloud in each direction [0.01,0.0005,0.03,0.1,0.5]"
    )
    parser.add_argument(
        "--delta", "--noise", dest="delta", metavar="D,..", help="noise level Delta of Eq. 1 [0.4,0.2,0.5]"
    )
    parser.add_argument("--eta", metavar="E,..", help="step size [0.05,0.4,0.2,0.1,0.025]")
    parser.add_argument("--seeds", metavar="N", help="data sets at each point [12]")
    parser.add_argument("--claims", metavar="NAME,..", default="all", help=f"which [all]: {', '.join(CLAIMS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes: a few seconds")
    parser.add_argument("--quiet", action="store_true", help="no progress, only the table")
    return parser


def _plan(args: Any) -> Plan:
    plan = QUICK if args.quick else Plan()
    changes: dict[str, Any] = {}
    for name in ("sigma", "delta", "eta"):
        if (text := getattr(args, name)) is not None:
            changes[name] = tuple(dict.fromkeys(_numbers(text, float, name)))
    if args.n is not None or args.p is not None:
        n, p = (_numbers(text, int, name) if text is not None else () for text, name in ((args.n, "n"), (args.p, "p")))
        changes["sizes"] = sizes_from(n, p)
    if args.seeds is not None:
        changes["seeds"] = convert(args.seeds, int, "--seeds")
    plan = replace(plan, **changes)
    check_plan(plan)
    return plan


def _numbers(text: str, kind: type, name: str) -> tuple[Any, ...]:
    values = convert(text, tuple[kind, ...], f"--{name}")  # type: ignore[valid-type]
    if not values:
        raise ValueError(f"--{name} is empty")
    return tuple(values)


def _claims(text: str) -> list[str]:
    if text == "all":
        return list(CLAIMS)
    names = [name.strip().replace("-", "_") for name in text.split(",") if name.strip()]
    for name in names:
        if name not in CLAIMS:
            raise ValueError(f"unknown claim {name!r}; {nearest(name, CLAIMS)}")
    if not names:
        raise ValueError("--claims is empty")
    return list(dict.fromkeys(names))


def show(results: Sequence[dict[str, Any]], plan: Plan) -> None:
    """Print the table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    base = plan.base
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    title = (
        f"n = {base.n}, p = {base.p}, sigma = {base.sigma:g} (sigma sqrt(p) = {base.sigma * base.p**0.5:.3g}), "
        f"Delta = {base.delta:g}, eta = {base.eta:g}, {plan.seeds} data sets"
    )
    table = Table(box=box.SIMPLE, title=title, title_justify="left", pad_edge=False, expand=True)
    for name, ratio in (("claim", 6), ("where", 2), ("printed", 3), ("corrected", 3), ("measured", 4), ("verdict", 2)):
        table.add_column(name, overflow="fold", ratio=ratio)
    styles = {"holds": "green", "holds corrected": "yellow", "does not hold": "red", "not decided": "dim"}
    for row in results:
        about = f"{row['name']}: {row['says']}" + (f" ({row['note']})" if row["note"] else "")
        verdict = f"[{styles[row['verdict']]}]{row['verdict']}[/]"
        cells = [about, row["where"], row["printed"], row["corrected"] or "-", measured(row)]
        table.add_row(*(cell.replace("[", r"\[") for cell in cells), verdict)
    console.print(table)
    counts = {name: sum(row["verdict"] == name for row in results) for name in styles}
    console.print(", ".join(f"{count} {name}" for name, count in counts.items()), markup=False)
