"""Flags made from the options of a configuration: ``--method elr --method.lam 3``."""

import argparse
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin

from elr.config import HEADS, Option, hint, options, read_toml
from elr.convert import describe

TITLES = {
    "data": "data: where examples come from",
    "noise": "noise: labels replaced on purpose, to measure what a method does",
    "method": "method: how to train in spite of wrong labels (these are the arguments of the method chosen)",
    "model": "model: the network (arguments of the model chosen)",
    "optim": "optim: how weights are updated",
    "schedule": "schedule: the learning rate over time (arguments of the schedule chosen)",
    "evaluate": "evaluate: how often to look",
    "runtime": "runtime: where the arithmetic runs",
}


class Parser(argparse.ArgumentParser):
    """Reports a mistake in one line, with the nearest name, and exit code 2. Flags are not abbreviated."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        raise ValueError(message)


def chosen(argv: Sequence[str], settings: dict[str, Any]) -> dict[str, str]:
    """Names of method, model and schedule in the arguments or in settings: they decide which flags there are."""
    found = {
        t: str(settings[key]) for t in ("method", "model", "schedule") for key in (t, f"{t}.name") if key in settings
    }
    for position, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        table = flag.removeprefix("--").removesuffix(".name")
        if (
            flag.startswith("--")
            and table in ("method", "model", "schedule")
            and flag in (f"--{table}", f"--{table}.name")
        ):
            value = value if equals else (argv[position + 1] if position + 1 < len(argv) else "")
            found[table] = value
    return {t: name if t == "model" else name.replace("-", "_") for t, name in found.items() if name}


def add_options(parser: argparse.ArgumentParser, found: dict[str, Option]) -> None:
    """A flag for each option, grouped by table."""
    groups = {table: parser.add_argument_group(title) for table, title in TITLES.items()}
    for key, option in found.items():
        table, dot, name = key.partition(".")
        head = HEADS.get(table) == name
        names = [f"--{table}", f"--{key}"] if dot and head else [f"--{key}"]
        target: Any = groups[table] if dot else parser
        default = shown(option.default)
        text = f"{option.help} " if option.help else f"{describe(option.type)} "
        extra: dict[str, Any] = {"nargs": "?", "const": "true"} if option.type in (bool, bool | None) else {}
        ending = "" if "(default" in text else f"[{default}]"
        target.add_argument(
            *names, dest=key, metavar=_placeholder(option.type, name if dot else key),
            help=(text + ending).replace("%", "%%"), default=argparse.SUPPRESS, **extra
        )  # fmt: skip


def _placeholder(kind: Any, name: str) -> str:
    """What stands for the value in --help: the values themselves where there are few."""
    for part in (kind, *get_args(kind)):
        if get_origin(part) is Literal:
            return "{" + ",".join(map(str, get_args(part))) + "}"
    return name.upper()


def add_data_options(parser: argparse.ArgumentParser, explained: Collection[str]) -> dict[str, Option]:
    """Flags for how data are read, of which --help shows these; `elr train --help` has them all."""
    known = {key: option for key, option in known_options((), {}).items() if key.startswith("data.")}
    add_options(parser, known)
    for action in parser._actions:
        if action.dest in known and action.dest not in explained:
            action.help = argparse.SUPPRESS
    return known


def add_cut(parser: argparse.ArgumentParser) -> None:
    """Where a list of labels that look wrong is to end."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--threshold", metavar="Q", type=float, help="quality below which a label looks wrong, if another is likelier"
        " [0.5: more likely wrong than right, by the noise that the data show]"
    )  # fmt: skip
    group.add_argument(
        "--precision", metavar="P", type=float, help="the longest list of which this part is expected to be wrong"
    )
    group.add_argument("--budget", metavar="K", type=int, help="the K labels of lowest quality")


def shown(default: Any) -> str:
    """A default as a user would write it."""
    if isinstance(default, tuple):
        return ",".join(map(str, default)) or "none"
    if isinstance(default, float) and len(str(default)) > 8:
        return f"{default:.4g}"
    return "none" if default is None else str(default)


def parse(
    parser: argparse.ArgumentParser, argv: Sequence[str], found: Mapping[str, Option] | None = None
) -> argparse.Namespace:
    """Parse, and name the nearest flag for one that does not exist."""
    flags = [flag for action in parser._actions for flag in action.option_strings]
    known, unknown = parser.parse_known_args([_underscored(word, flags) for word in argv])
    if unknown:
        word = unknown[0].partition("=")[0]
        if not word.startswith("-"):
            raise ValueError(f"unexpected argument {word!r}; see `{parser.prog} --help`")
        own = [flag[2:] for flag in flags if flag.startswith("--") and "." not in flag]
        raise ValueError(f"unknown flag {word!r}; {hint(word.lstrip('-').replace('-', '_'), found or {}, own, '--')}")
    return known


def given_settings(args: argparse.Namespace, own: Collection[str]) -> dict[str, Any]:
    """What was given for the configuration; DATA is short for --data. ``own`` are the command's own arguments."""
    given = {key: value for key, value in vars(args).items() if key not in own}
    if args.DATA is not None:
        if "data.source" in given:
            raise ValueError(f"data are given twice: {args.DATA!r} and --data {given['data.source']!r}")
        given["data.source"] = args.DATA
    return given


def _underscored(word: str, flags: Sequence[str]) -> str:
    """``--data.val-fraction`` is ``--data.val_fraction``."""
    flag, equals, value = word.partition("=")
    spelled = "--" + flag[2:].replace("-", "_")
    return spelled + equals + value if flag.startswith("--") and flag not in flags and spelled in flags else word


def config_settings(path: str | None) -> dict[str, Any]:
    """Settings of a TOML file, if one is given."""
    return read_toml(Path(path)) if path else {}


def known_options(argv: Sequence[str], settings: dict[str, Any]) -> dict[str, Option]:
    """Options for what these arguments choose."""
    return options(chosen(argv, settings))


def as_typed(command: str, argv: Sequence[str]) -> str:
    """The command for others to type: absolute paths, which mean something on one machine only, become DIR or FILE."""
    words = []
    for word in argv:
        flag, equals, value = word.rpartition("=")
        if Path(value).is_absolute():
            word = flag + equals + ("FILE" if Path(value).suffix else "DIR")
        words.append(word)
    return f"{command} {shlex.join(words)}".strip()
