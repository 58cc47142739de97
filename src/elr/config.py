"""One configuration rule: dotted names, the same in TOML and on the command line (docs/decisions/004-configuration.md).

Every table has a head key, and naming the table sets it: ``--method elr`` is ``method.name``, ``--data cifar10`` is
``data.source``. The arguments of a method, model or schedule are those of its constructor; there is no second list.
"""

import difflib
import hashlib
import inspect
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import tomli_w
from torch import nn

from elr.convert import convert
from elr.data import DataConfig
from elr.engine.device import RuntimeConfig
from elr.engine.evaluate import EvaluateConfig
from elr.engine.optim import OptimConfig
from elr.engine.schedule import SCHEDULES, Schedule
from elr.methods import METHODS
from elr.methods.base import Method
from elr.models import constructor, make_model
from elr.noise import RATED, NoiseConfig

HEADS = {
    "data": "source",
    "noise": "kind",
    "method": "name",
    "model": "name",
    "optim": "name",
    "schedule": "name",
    "runtime": "device",
}
TABLES: dict[str, Any] = {
    "data": DataConfig,
    "noise": NoiseConfig,
    "optim": OptimConfig,
    "evaluate": EvaluateConfig,
    "runtime": RuntimeConfig,
}
# Tables whose options depend on the name chosen: head value by default.
CHOSEN = {"method": "elr", "model": "small_cnn", "schedule": "multistep"}
CUSTOM = "custom:"  # model.name of a network that was given from Python
# Files that training starts from; a trained run holds what was in them.
INITIAL = {"method.matrix", "model.pretrained", "model.weights"}
# What does not change the result: may differ on resume.
FREE = {"runtime", "evaluate", "data.root", "data.cache", "data.cache_dir"}


# Came after the first runs. Where they are not used the hash is as it was before them, so that old runs can go on.
LATER = {"data.balanced_batches", "data.alternate", "data.sizes", "optim.turn"}


class Option(NamedTuple):
    """One thing that can be set."""

    key: str  # dotted
    type: Any
    default: Any
    help: str


@dataclass(frozen=True)
class Choice:
    """A name from a registry and the arguments of what it names."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Config:
    """A whole run. Build it with ``resolve``."""

    data: DataConfig
    noise: NoiseConfig
    method: Choice
    model: Choice
    optim: OptimConfig
    schedule: Choice
    evaluate: EvaluateConfig
    runtime: RuntimeConfig
    epochs: int
    seed: int

    def flat(self) -> dict[str, Any]:
        """Every option with its value, by dotted key."""
        result: dict[str, Any] = {"epochs": self.epochs, "seed": self.seed}
        for table in ("data", "noise", "method", "model", "optim", "schedule", "evaluate", "runtime"):
            value = getattr(self, table)
            pairs = {"name": value.name, **value.arguments} if isinstance(value, Choice) else asdict(value)
            result |= {f"{table}.{key}": item for key, item in pairs.items()}
        return result

    def identity(self) -> dict[str, Any]:
        """What must be equal for two runs to give the same bits on the same data."""
        return {k: v for k, v in self.flat().items() if k not in FREE and k.split(".")[0] not in FREE}

    def digest(self) -> str:
        """Hash of the identity."""
        counted = {k: v for k, v in self.identity().items() if not (k in LATER and v is None)}
        return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()

    def toml(self) -> str:
        """The resolved configuration as TOML; options that are None are left out."""
        tables: dict[str, Any] = {}
        for key, value in self.flat().items():
            table, dot, name = key.partition(".")
            if value is not None:
                (tables.setdefault(table, {}) if dot else tables)[name or table] = value
        return tomli_w.dumps(tables)

    def make_method(self, *, trained: bool = False) -> Method:
        """The method, not built yet; ``trained``: for a run that brings all its state itself."""
        return METHODS[self.method.name](**self._arguments("method", trained=trained))

    @property
    def planned_epochs(self) -> int:
        """Epochs that will be recorded; a run shorter than the stages of its method is lengthened."""
        return sum(stage.epochs for stage in self.make_method().plan(self.epochs))

    @property
    def work(self) -> float:
        """Epochs of cross entropy that cost as much, by arithmetic."""
        return self.planned_epochs * self.make_method().cost

    def make_schedule(self) -> Schedule:
        """The learning-rate schedule."""
        schedule: Schedule = SCHEDULES[self.schedule.name](**self.schedule.arguments)
        return schedule

    def model_maker(
        self, shape: tuple[int, ...], num_classes: int, *, trained: bool = False
    ) -> Callable[[], nn.Module]:
        """A function that builds the network; ``trained``: for a run that brings all its weights itself."""
        if self.model.name.startswith(CUSTOM):
            raise ValueError(f"model {self.model.name!r} was given from Python: use elr.fit and elr.Run(path, model)")
        arguments = self._arguments("model", trained=trained)
        return lambda: make_model(self.model.name, shape, num_classes, **arguments)

    def _arguments(self, table: str, *, trained: bool) -> dict[str, Any]:
        arguments = getattr(self, table).arguments
        return {key: value for key, value in arguments.items() if not (trained and f"{table}.{key}" in INITIAL)}


def options(chosen: Mapping[str, str] | None = None) -> dict[str, Option]:
    """Every option there is for these choices of method, model and schedule."""
    names = {**CHOSEN, **(chosen or {})}
    found = [
        Option("epochs", int, 60, "epochs to train"),
        Option("seed", int, 0, "seed of everything random: split, noise, initial weights, order, augmentation"),
    ]
    for table, cls in TABLES.items():
        hints = get_type_hints(cls)
        for f in fields(cls):
            default = None if f.default is MISSING else f.default
            found.append(Option(f"{table}.{f.name}", hints[f.name], default, f.metadata.get("help", "")))
    builders = {"method": _lookup("method", names["method"], METHODS), "model": _network(names["model"])}
    builders["schedule"] = _lookup("schedule", names["schedule"], SCHEDULES)
    for table, builder in builders.items():
        listed = "; ".join(SCHEDULES) if table == "schedule" else f"`elr {table}s` lists them"
        found.append(Option(f"{table}.name", str, names[table], f"{table} by name: {listed}"))
        found += [Option(f"{table}.{key}", *rest) for key, *rest in _parameters(builder)]
    return {option.key: option for option in found}


def _lookup(table: str, name: str, registry: Mapping[str, Any]) -> Any:
    if name not in registry:
        raise ValueError(f"unknown {table} {name!r}; {nearest(name, registry)}")
    return registry[name]


def _network(name: str) -> Any:
    """What builds a model; a network given from Python has no arguments of ours."""
    return (lambda: None) if name.startswith(CUSTOM) else constructor(name)


def _parameters(builder: Any) -> list[tuple[str, Any, Any, str]]:
    """(name, type, default, help) of the keyword-only arguments; help is the docstring's Args or field metadata."""
    declared = {f.name: f.metadata.get("help", "") for f in fields(builder)} if is_dataclass(builder) else {}
    documented = argument_help(builder)
    return [
        (name, parameter.annotation, parameter.default, declared.get(name) or documented.get(name, ""))
        for name, parameter in inspect.signature(builder, eval_str=True).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY or name in declared
    ]


def argument_help(builder: Any) -> dict[str, str]:
    """What the Args section of a docstring says of each argument."""
    doc = inspect.getdoc(getattr(builder, "func", builder)) or ""
    found: dict[str, str] = {}
    name = ""
    for line in doc.partition("Args:\n")[2].splitlines():
        if line and not line.startswith(" "):
            break  # the next section
        if match := re.match(r" {4}(\w+): (.*)", line):
            name, found[match[1]] = match[1], match[2]
        elif name and line.strip():
            found[name] += " " + line.strip()
    return found


def nearest(name: str, known: Iterable[str], dashes: str = "") -> str:
    """A hint for a name that is not known."""
    near = difflib.get_close_matches(name, names := list(known), n=1, cutoff=0.5)
    return f"did you mean '{dashes}{near[0]}'?" if near else f"choose one of {', '.join(names)}"


def resolve(settings: Mapping[str, Any], *, trained: bool = False) -> Config:
    """A configuration from dotted settings (strings are parsed); what is not set has its default.

    ``trained``: that of a run, whose files to start from may be gone.
    """
    settings = flatten(settings)
    chosen = {
        t: str(settings[f"{t}.name"]).replace("-", "_") for t in ("method", "schedule") if f"{t}.name" in settings
    }
    if "model.name" in settings:
        chosen["model"] = str(settings["model.name"])
    known = options(chosen)
    for key in settings:
        if key not in known:
            raise ValueError(f"unknown option {key!r}; {hint(key, known)}")
    values = {key: option.default for key, option in known.items()}
    values |= {key: convert(value, known[key].type, key) for key, value in settings.items()}
    values |= {f"{table}.name": name for table, name in chosen.items()}
    if values["epochs"] < 1:
        raise ValueError(f"epochs must be at least 1, got {values['epochs']}")
    for key in ("seed", "data.seed", "noise.seed"):
        if values[key] is not None and values[key] < 0:
            raise ValueError(f"{key} must be 0 or more, got {values[key]}")
    if values["noise.kind"].replace("-", "_") in RATED and "noise.rate" not in settings:
        raise ValueError(f"noise {values['noise.kind']!r} needs noise.rate, the fraction of labels to replace")
    least = values.get("schedule.min_lr")
    if least is not None and least > values["optim.lr"]:
        raise ValueError(f"schedule.min_lr {least} is above optim.lr {values['optim.lr']}")
    tables: dict[str, Any] = {table: cls(**_table(values, table)) for table, cls in TABLES.items()}
    for table in CHOSEN:
        arguments = _table(values, table)
        tables[table] = Choice(arguments.pop("name"), arguments)
    config = Config(**tables, epochs=values["epochs"], seed=values["seed"])
    config.make_method(trained=trained)  # refuses hyperparameters out of range before any data are read
    config.make_schedule()
    return config


def _table(values: Mapping[str, Any], table: str) -> dict[str, Any]:
    return {key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{table}.")}


def hint(key: str, known: Mapping[str, Option], more: Iterable[str] = (), dashes: str = "") -> str:
    """What may have been meant: ``lam`` is ``method.lam``, ``method.lamb`` too, even if ``model.name`` is as near."""
    table, dot, name = key.rpartition(".")
    if not dot and (owner := next((option for option in known if option.endswith(f".{name}")), None)):
        return f"did you mean '{dashes}{owner}'?"
    own = [option.partition(".")[2] for option in known if dot and option.startswith(f"{table}.")]
    if not own:
        near = nearest(key, [*known, *(HEADS if known else ()), *more], dashes)
        return near if near.startswith("did") else "--help lists what there is"
    if near_own := difflib.get_close_matches(name, own, n=1, cutoff=0.6):
        return f"did you mean '{dashes}{table}.{near_own[0]}'?"
    subject = f"{table} {known[f'{table}.name'].default!r}" if table in CHOSEN else table
    return f"{subject} has {', '.join(option for option in own if option != HEADS.get(table)) or 'no options'}"


def read_toml(path: Path) -> dict[str, Any]:
    """Dotted settings from a TOML file; ``method = "elr"`` is short for ``[method] name = "elr"``."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"configuration {path} does not exist") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ValueError(f"configuration {path} cannot be read: {error}") from error
    settings = flatten(tables)
    for key, value in settings.items():
        if isinstance(value, dict):
            raise ValueError(f"configuration {path}: {key} must be a value, not a table")
    return settings


def flatten(tables: Mapping[str, Any]) -> dict[str, Any]:
    """{"data": "digits", "method": {"lam": 3}} -> {"data.source": "digits", "method.lam": 3}."""
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{name}": item for name, item in value.items()}
        else:
            flat[f"{key}.{HEADS[key]}" if key in HEADS else key] = value
    return flat
