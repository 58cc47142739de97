"""Values of a declared type from TOML or from text, and one clear line when that cannot be."""

import os
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def convert(value: Any, kind: Any, name: str) -> Any:
    """``value`` as ``kind``: str, int, float, bool, a Literal, a tuple of one of these, or one of these or None."""
    try:
        return _convert(value, kind)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise ValueError(f"{name} must be {describe(kind)}, got {value!r}") from None


def _convert(value: Any, kind: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None or (isinstance(value, str) and value.lower() in ("none", "")):
            return None
        return _convert(value, next(a for a in arguments if a is not type(None)))
    if origin is Literal:
        return {str(choice): choice for choice in arguments}[str(value).replace("-", "_")]
    if origin is tuple:
        items = [item for item in value.split(",") if item.strip()] if isinstance(value, str) else list(value)
        return tuple(_convert(item, arguments[0]) for item in items)
    if kind is bool:
        # NumPy's truth values are none of Python's; a parameter grid made of an array has them.
        return bool(value) if isinstance(value, bool | np.bool_) else _WORDS[value.lower()]
    if kind is str and isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, bool) or (kind is str and not isinstance(value, str)):
        raise TypeError
    if kind is int and not isinstance(value, str) and not float(value).is_integer():
        raise ValueError
    return kind(value)


def describe(kind: Any) -> str:
    """A type in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join("none" if a is type(None) else describe(a) for a in arguments if a is not Path)
    if origin is Literal:
        return "one of " + ", ".join(str(a) for a in arguments)
    if origin is tuple:
        return f"{describe(arguments[0]).removeprefix('a ')}s separated by commas"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return names.get(kind, str(kind))
