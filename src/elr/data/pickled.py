"""Read the pickles of CIFAR's python layout without running pickle.

A pickle is a program for a stack machine. This one understands containers, numbers, text and the four names NumPy
arrays are rebuilt from, which it rebuilds itself; it imports nothing and calls nothing the file names.
"""

import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_RECONSTRUCT = {("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")}
_KNOWN = _RECONSTRUCT | {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}
_MARK = object()


class _Array:
    """An array under construction; the memo may point to it before it has its content."""

    value: Any = None

    def build(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        content = raw.encode("latin-1") if isinstance(raw, str) else raw  # Python 2 wrote bytes as text
        self.value = np.frombuffer(content, dtype=dtype.value).reshape(shape, order="F" if fortran else "C")


class _DType:
    """A dtype under construction."""

    def __init__(self, code: str) -> None:
        self.value = np.dtype(code)
        if self.value.kind not in "biuf":
            raise ValueError(f"holds an array of {code!r}, which is no plain number")

    def build(self, state: Any) -> None:
        if state[1] in ("<", ">"):
            self.value = self.value.newbyteorder(state[1])


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in a pickle file, as plain data and arrays. Anything else in it is refused by name."""
    try:
        result = _Machine().run(path.read_bytes())
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    except Exception as error:  # a damaged program may fail in any way; none of it is ours
        raise ValueError(f"cannot read {path}: {error or type(error).__name__}") from None
    if not isinstance(result, dict):
        raise ValueError(f"cannot read {path}: holds a {type(result).__name__}, expected a dictionary")
    return {
        key.decode("latin-1") if isinstance(key, bytes) else str(key): value.value
        if isinstance(value, _Array)
        else value
        for key, value in result.items()
    }


class _Machine:
    """The stack machine, one method or one line for each instruction."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, program: bytes) -> Any:
        for instruction, argument, _ in pickletools.genops(program):
            name = instruction.name
            if name == "STOP":
                return self.stack.pop()
            if name in _PUSH:
                self.stack.append(argument)
            elif name in _DO:
                _DO[name](self, argument)
            elif name not in ("PROTO", "FRAME"):
                raise ValueError(f"uses the pickle instruction {name}, which is not read here")
        raise ValueError("ends before its end")

    def since_mark(self) -> list[Any]:
        """Take everything above the last mark."""
        place = len(self.stack) - 1 - self.stack[::-1].index(_MARK)
        items = self.stack[place + 1 :]
        del self.stack[place:]
        return items

    def take(self, count: int) -> list[Any]:
        items = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return items

    def push_name(self, module: Any, name: Any) -> None:
        if (module, name) not in _KNOWN:
            raise ValueError(f"refers to {module}.{name}, which is not read here")
        self.stack.append((_MARK, module, name))

    def reduce(self) -> None:
        function, arguments = self.take(2)
        if not (isinstance(function, tuple) and len(function) == 3 and function[0] is _MARK):
            raise ValueError("calls something that is no name")
        if function[1:] in _RECONSTRUCT:
            self.stack.append(_Array())
        elif function[1:] == ("numpy", "dtype"):
            self.stack.append(_DType(arguments[0]))
        elif function[1:] == ("_codecs", "encode"):
            self.stack.append(arguments[0].encode("latin-1"))
        else:
            raise ValueError(f"calls {function[1]}.{function[2]}, which is not read here")

    def build(self) -> None:
        (state,) = self.take(1)
        if not isinstance(self.stack[-1], _Array | _DType):
            raise ValueError("sets the state of something that is no array")
        self.stack[-1].build(state)

    def append_items(self, items: list[Any]) -> None:
        self.stack[-1].extend(items)

    def set_items(self, items: list[Any]) -> None:
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def memoize(self, place: int) -> None:
        self.memo[place] = self.stack[-1]


_PUSH = frozenset(
    """NONE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING
    UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8""".split()  # noqa: SIM905 (names, not strings)
)

_DO: dict[str, Callable[[_Machine, Any], Any]] = {
    "NEWTRUE": lambda m, _: m.stack.append(True),
    "NEWFALSE": lambda m, _: m.stack.append(False),
    "MARK": lambda m, _: m.stack.append(_MARK),
    "POP": lambda m, _: m.stack.pop(),
    "EMPTY_DICT": lambda m, _: m.stack.append({}),
    "EMPTY_LIST": lambda m, _: m.stack.append([]),
    "EMPTY_TUPLE": lambda m, _: m.stack.append(()),
    "DICT": lambda m, _: m.stack.append(dict(zip(*[iter(m.since_mark())] * 2, strict=True))),
    "LIST": lambda m, _: m.stack.append(m.since_mark()),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.since_mark())),
    "TUPLE1": lambda m, _: m.stack.append(tuple(m.take(1))),
    "TUPLE2": lambda m, _: m.stack.append(tuple(m.take(2))),
    "TUPLE3": lambda m, _: m.stack.append(tuple(m.take(3))),
    "APPEND": lambda m, _: m.append_items(m.take(1)),
    "APPENDS": lambda m, _: m.append_items(m.since_mark()),
    "SETITEM": lambda m, _: m.set_items(m.take(2)),
    "SETITEMS": lambda m, _: m.set_items(m.since_mark()),
    "PUT": lambda m, place: m.memoize(place),
    "BINPUT": lambda m, place: m.memoize(place),
    "LONG_BINPUT": lambda m, place: m.memoize(place),
    "MEMOIZE": lambda m, _: m.memoize(len(m.memo)),
    "GET": lambda m, place: m.stack.append(m.memo[place]),
    "BINGET": lambda m, place: m.stack.append(m.memo[place]),
    "LONG_BINGET": lambda m, place: m.stack.append(m.memo[place]),
    "GLOBAL": lambda m, names: m.push_name(*names.split(" ", 1)),
    "STACK_GLOBAL": lambda m, _: m.push_name(*m.take(2)),
    "REDUCE": lambda m, _: m.reduce(),
    "BUILD": lambda m, _: m.build(),
}
