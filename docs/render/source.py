"""What the source says of itself: the file tree and the registry of methods."""

import ast

from docs.render.markdown import ROOT, plain
from elr.methods import FAMILIES


def tree() -> str:
    """A line for each source file: the first line of its docstring."""
    lines = []
    for path in sorted((ROOT / "src" / "elr").rglob("*.py")):
        doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        lines.append(f"{path.relative_to(ROOT).as_posix():<42}{doc.partition(chr(10))[0].rstrip('.')}")
    return "```\n" + "\n".join(lines) + "\n```\n"


def registry() -> str:
    """Every method with its one line, its cost and its source, family by family."""
    head = "| name | what it does | cost / CE | kept per example | reference |\n|---|---|---|---|---|\n"
    return head + "".join(
        f"| *{title}* | | | | |\n"
        + "".join(
            f"| `{name}` | {plain(_first_line(cls))} | {cls().cost:.2f} | {plain(cls.per_example)} "
            f"| {plain(cls.reference)} |\n"
            for name, cls in family.items()
        )
        for title, family in FAMILIES.items()
    )


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0]
