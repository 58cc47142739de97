"""Methods and models in words, from the registry: nothing is listed twice."""

import inspect
import textwrap
from collections.abc import Mapping
from typing import Any

from elr.cli.flags import shown
from elr.config import Option, options
from elr.convert import describe
from elr.methods import FAMILIES, METHODS
from elr.models import LIBRARIES, MODELS, constructor, make_model

_KEEPS = {"last": "last epoch", "selected": "epoch chosen on noisy validation"}
WIDTH = 118
MARGIN = 20


def list_methods() -> str:
    """A line for each method, family by family."""
    rows = []
    for title, family in FAMILIES.items():
        rows += [f"{title}:", *(f"  {name:<21}{_first_line(cls)}" for name, cls in family.items()), ""]
    return "\n".join([*rows, "`elr methods NAME` explains one, `elr bench` compares them on your data."])


def explain_method(name: str) -> str:
    """Everything the registry knows about a method."""
    found = options({"method": name.replace("-", "_")})  # raises for an unknown name
    cls = METHODS[name.replace("-", "_")]
    method = cls()
    facts = {
        "equation": cls.equation,
        "reference": cls.reference,
        "passes an epoch": cls.passes,
        "cost": f"{method.cost:.2f} x cross entropy (arithmetic of an epoch)",
        "gradients": f"{method.backwards:.3g} of an example in an epoch",
        "kept per example": cls.per_example,
        "couples a batch": "yes" if cls.batch_coupled else "no",
        "views": f"{cls.views} of an example; of a vector they are made by jitter" if cls.views > 1 else "1",
        "result": f"weights of the {_KEEPS[cls.keeps]}",
        "in the paper": cls.published,
        "behind it": cls.backing,
        "authors' schedule": _schedule(cls.authors),
    }
    lines = [*_paragraphs(f"{name}: {_description(cls)}"), ""]
    for key, text in facts.items():
        lines += _folded(key, text)
    return "\n".join([*lines, "", *_arguments(found, "method")])


def _schedule(authors: Mapping[str, Any]) -> str:
    """The settings that ``elr bench --budget authors`` uses."""
    shown = {key: ",".join(map(str, v)) if isinstance(v, tuple | list) else v for key, v in authors.items()}
    return ", ".join(f"{key} {value}" for key, value in shown.items()) or "none of their own on CIFAR-10"


def _paragraphs(text: str) -> list[str]:
    """Paragraphs in lines that fit a terminal, an empty line between them."""
    folded = [textwrap.fill(" ".join(paragraph.split()), WIDTH) for paragraph in text.split("\n\n")]
    return "\n\n".join(folded).splitlines()


def _folded(key: str, text: str) -> list[str]:
    """A fact in lines that fit a terminal."""
    return textwrap.wrap(text, WIDTH, initial_indent=f"{key:<{MARGIN}}", subsequent_indent=" " * MARGIN) or [key]


def list_models() -> str:
    """A line for each network."""
    rows = [f"  {name:<18}{_first_line(MODELS[name])}" for name in MODELS]
    rows += [f"  {library + ':NAME':<18}{_first_line(LIBRARIES[library])}" for library in LIBRARIES]
    return "\n".join([*rows, "", "`elr models NAME` explains one."])


def explain_model(name: str) -> str:
    """Description, size and arguments of a network."""
    builder = constructor(name)
    shape = (64,) if name in ("linear", "mlp") else (3, 32, 32)
    try:
        net = make_model(name, shape, 10)
        count = sum(p.numel() for p in net.parameters())
        size = f"{count:,} parameters for inputs {'x'.join(map(str, shape))} and 10 classes"
    except (ValueError, ImportError) as error:
        size = f"cannot be built here: {error}"
    return "\n".join(
        [
            f"{name}: {_description(getattr(builder, 'func', builder))}",
            "",
            size,
            "",
            *_arguments(options({"model": name}), "model"),
        ]
    )


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _description(thing: object) -> str:
    """The docstring without its Args, which are listed with their defaults."""
    return (inspect.getdoc(thing) or "").partition("\nArgs:")[0].strip()


def _arguments(found: dict[str, Option], table: str) -> list[str]:
    rows = []
    for key, option in found.items():
        if key.startswith(f"{table}.") and key != f"{table}.name":
            text = f"{option.help or describe(option.type)} [{shown(option.default)}]"
            rows += textwrap.wrap(text, WIDTH, initial_indent=f"  --{key:<26}", subsequent_indent=" " * 30)
    return rows or ["no arguments"]
