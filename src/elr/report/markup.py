"""Values into HTML: whatever a user named stands on the page as text, never as markup."""

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# Half a surrogate pair (a file name in a broken encoding) cannot be written as UTF-8.
_SURROGATES = re.compile("[\ud800-\udfff]")
# What could end a script element, or a line of script: as JSON escapes they mean the same and are only letters.
_IN_SCRIPT = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
UNKNOWN = "\u2013"


class Cell(NamedTuple):
    """HTML of a table cell, and what it is sorted by: a number, or None where its text will do."""

    html: str
    value: float | None = None


def text(value: object) -> str:
    """Escaped, for content and for attributes in double quotes."""
    return html.escape(_SURROGATES.sub("\ufffd", str(value)))


def name(value: object) -> str:
    """A user's word among ours; kept apart, so that a name written from right to left does not reorder the sentence."""
    return f"<bdi>{text(value)}</bdi>"


def path(value: object) -> str:
    """An id among our words: often a path, whose parts stand in order whatever script they are written in."""
    return f'<bdi dir="ltr">{text(value)}</bdi>'


def clipped(value: str, length: int) -> str:
    """At most so many characters, with an ellipsis where something is cut."""
    return value if len(value) <= length else value[: length - 1].rstrip() + "\u2026"


def percent(share: float | None, digits: int = 1) -> str:
    """A share as per cent; a dash if it is not known. Only what is all or nothing is written as 100 or 0."""
    if share is None or not math.isfinite(share):
        return UNKNOWN
    last = 10.0**-digits
    sign, shown = "", 100.0 * share
    if 1e-9 < shown < last / 2.0:
        sign, shown = "<", last
    elif 100.0 - last / 2.0 <= shown < 100.0 - 1e-9:
        sign, shown = ">", 100.0 - last
    return f"{sign}{shown:.{digits}f}\u00a0%"


def number(value: object) -> str:
    """Whole numbers in full with separators, others to three digits, anything else as it is; a dash if not known."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if not math.isfinite(value):
            return UNKNOWN
        return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.3g}"
    return UNKNOWN if value is None else str(value)


def items(lines: Sequence[str], kind: str = "") -> str:
    """A list of HTML fragments; nothing for none."""
    if not lines:
        return ""
    return f'<ul class="{kind}">' + "".join(f"<li>{line}</li>" for line in lines) + "</ul>"


def table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, sortable: bool = True) -> str:
    """A table with its first column as row headings; columns are HTML, the caption is text."""
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row"{_value(row[0])}>{row[0].html}</th>'
        + "".join(f"<td{_value(cell)}>{cell.html}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    kind = ' class="sortable"' if sortable else ""
    return (
        # A wide table scrolls by itself, and then has to be reached by keyboard.
        f'<div class="scroll" role="group" tabindex="0" aria-label="{text(caption)}">'
        f"<table{kind}><caption>{text(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _value(cell: Cell) -> str:
    return "" if cell.value is None else f' data-value="{cell.value:.6g}"'


def data_block(identifier: str, value: Mapping[str, Any]) -> str:
    """JSON inside the page, which no string in it can leave."""
    compact = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    safe = _IN_SCRIPT.sub(lambda found: f"\\u{ord(found[0]):04x}", compact)
    return f'<script type="application/json" id="{identifier}">{safe}</script>'
