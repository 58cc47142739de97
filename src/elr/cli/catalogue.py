"""Methods and models in words, from the registry: nothing is listed twice."""

import inspect

from elr.config import Option, options
from elr.convert import describe
from elr.methods import METHODS
from elr.models import LIBRARIES, MODELS, constructor, make_model

_KEEPS = {"last": "last epoch", "selected": "epoch chosen on noisy validation"}


def list_methods() -> str:
    """A line for each method."""
    rows = [f"  {name:<18}{_first_line(cls)}" for name, cls in METHODS.items()]
    return "\n".join([*rows, "", "`elr methods NAME` explains one."])


def explain_method(name: str) -> str:
    """Everything the registry knows about a method."""
    found = options({"method": name.replace("-", "_")})  # raises for an unknown name
    cls = METHODS[name.replace("-", "_")]
    lines = [
        f"{name}: {_description(cls)}",
        "",
        f"reference           {cls.reference}",
        f"cost                {cls().cost:.2f} x cross entropy (arithmetic of an epoch)",
        f"kept per example    {cls.per_example}",
        f"couples a batch     {'yes' if cls.batch_coupled else 'no'}",
        f"result              weights of the {_KEEPS[cls.keeps]}",
        f"behind it           {cls.backing}",
        "",
        *_arguments(found, "method"),
    ]
    return "\n".join(lines)


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
            default = "none" if option.default is None else option.default
            text = option.help or describe(option.type)
            rows.append(f"  --{key:<26}{text} [{default}]")
    return rows or ["no arguments"]
