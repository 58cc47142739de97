"""One HTML file that needs nothing else: what a run found, and the page on which a person judges it."""

import base64
import hashlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from elr.report import sections
from elr.report.markup import clipped, data_block, name, number, percent, text
from elr.report.records import write_text
from elr.report.view import Drawn, Neighbour, Picture, RunView, Suspect

PICTURE_BYTES = 4_000_000  # of suspects and neighbours; a page of 300 suspects without a draw stays below 5 MB
TEXT, NEAR_TEXT = 2000, 240  # characters of a text, and of a neighbour's
QUICK = 9  # keys 1 to 9
EVIDENCE = {
    "target_given": "belief in the given label",
    "target_suggested": "belief in the suggested label",
    "mean_margin": "mean margin of the given label",
    "first_agreement": "first epoch that predicts it",
    "last_agreement": "last epoch that predicts it",
    "learnt": "times learnt",
    "forgotten": "times forgotten",
    "peak_loss": "loss at the early-learning peak",
    "networks_agree": "both networks agree",
}


def write_page(path: Path, runs: Sequence[RunView]) -> None:
    """Write the page atomically, in a folder that is made if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page(runs))


def page(runs: Sequence[RunView]) -> str:
    """The page of one run, or of several side by side."""
    if not runs:
        raise ValueError("a page needs a run at least")
    pictures, left_out = _pictures(runs)
    style, script = _template("style.css"), _template("script.js")
    title = f"Labels of {runs[0].name}" if len(runs) == 1 else f"Labels of {len(runs)} runs"
    queued = [run for run in runs if run.suspects or run.drawn]
    lead = sections.side_by_side(runs, sections.headline)
    numbers = sections.numbers(runs)
    if len(runs) > 1:  # of one run the words above have said the most of it
        lead, numbers = lead + numbers, ""
    if left_out:
        lead += f"<p>{left_out:,} pictures are left out: the page would be too large to pass on.</p>"
    in_cards = {s.picture.key for run in runs for s in run.suspects[: sections.SUREST] if s.picture is not None}
    beyond = {key: address for key, address in pictures.items() if key not in in_cards}
    return Template(_template("page.html")).substitute(
        policy=_policy(style, script),
        title=text(title),
        heading=f"Labels of {name(runs[0].name)}" if len(runs) == 1 else title,
        style=style,
        script=script,
        lead=lead,
        surest=sections.side_by_side(runs, lambda run: sections.surest(run, pictures)),
        review=_template("review.html") if queued else "<p>There is nothing to review.</p>",
        curves=sections.side_by_side(runs, sections.curves),
        terms=sections.side_by_side(runs, sections.terms),
        confusion=sections.side_by_side(runs, sections.confusion),
        health=sections.side_by_side(runs, sections.health),
        calibration=sections.side_by_side(runs, sections.calibration),
        facts=numbers + sections.facts(runs),
        data=data_block("data", {"runs": [_queue(run, pictures) for run in queued], "pictures": beyond}),
    )


def _template(file: str) -> str:
    return (resources.files("elr.report") / "templates" / file).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Only what this file brings along may run or be shown, and nothing may leave it."""
    sources = {"style-src": style, "script-src": script}
    hashes = [
        f"{kind} 'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
        for kind, source in sources.items()
    ]
    return "; ".join(["default-src 'none'", "img-src data:", *hashes, "base-uri 'none'", "form-action 'none'"])


def _pictures(runs: Sequence[RunView]) -> tuple[dict[str, str], int]:
    """Pictures by key, each once, while there is room for them; and how many there was none for."""
    chosen: dict[str, str] = {}
    left_out: set[str] = set()
    room = PICTURE_BYTES
    for picture in _by_use(runs):
        if picture.key in chosen or picture.key in left_out:
            continue
        address = _address(picture)
        if len(address) > room:
            left_out.add(picture.key)
            continue
        chosen[picture.key] = address
        room -= len(address)
    # Of a draw every row has to be judged, so there is always room for it.
    asked = {row.picture.key: row.picture for run in runs for row in run.drawn if row.picture is not None}
    chosen |= {key: _address(picture) for key, picture in asked.items() if key not in chosen}
    return chosen, len(left_out - asked.keys())


def _address(picture: Picture) -> str:
    return f"data:{picture.media_type};base64,{base64.b64encode(picture.data).decode()}"


def _by_use(runs: Sequence[RunView]) -> Iterator[Picture]:
    """Suspects before neighbours, the surest of every run first."""
    ranked = [(rank, suspect) for run in runs for rank, suspect in enumerate(run.suspects)]
    suspects = [suspect for _, suspect in sorted(ranked, key=lambda pair: pair[0])]
    yield from (suspect.picture for suspect in suspects if suspect.picture is not None)
    for suspect in suspects:
        near = (*suspect.agreeing, *suspect.disagreeing)
        yield from (neighbour.picture for neighbour in near if neighbour.picture is not None)


def _queue(run: RunView, pictures: Mapping[str, str]) -> dict[str, Any]:
    """What the script needs to show the queues of a run, words and numbers as they are to be read."""
    return {
        "key": run.key,
        "name": run.name,
        "classes": list(run.classes),
        "likely": _likely(run),
        "more": run.more,
        "about": {"suspects": _about_suspects(run), "drawn": _about_drawn(run)},
        "suspects": [_suspect(suspect, pictures) for suspect in run.suspects],
        "drawn": [_drawn(row, pictures) for row in run.drawn],
    }


def _about_suspects(run: RunView) -> list[str]:
    """Words and commands by turns: that the queue is not all there is."""
    if not run.more:
        return []
    found = len(run.suspects) + run.more
    command = f"elr report {shlex.quote(run.path)} --suspects {found}"
    return [f"These are the {len(run.suspects):,} surest of {found:,} that look wrong; ", command, " shows all."]


def _about_drawn(run: RunView) -> list[str]:
    """Words and commands by turns: what is asked, and what for."""
    return [
        "Is the given label right? What the audit thinks is not shown here, so as not to lead you; for the same reason "
        "only what is decided here counts, and rows that are suspects too are better judged here first. Judge all and "
        "download; ",
        f"elr audit {shlex.quote(run.path)} --checked checked.csv",
        " then says how many labels are wrong, with an interval.",
    ]


def _likely(run: RunView) -> dict[str, list[str]]:
    """For each given label the classes that it hides most often; empty where every class has a key of its own."""
    if run.confusion is None or len(run.classes) <= QUICK:
        return {}
    given = {row.given_label for row in run.suspects} | {row.given_label for row in run.drawn}
    order = range(len(run.classes))
    return {
        # Two more than there are keys: the given label and the suggested one have keys already.
        label: [run.classes[k] for k in sorted(order, key=lambda k: -row[k])[: QUICK + 2]]
        for label, row in zip(run.classes, run.confusion, strict=True)
        if label in given
    }


def _suspect(suspect: Suspect, pictures: Mapping[str, str]) -> dict[str, Any]:
    seen = [[EVIDENCE.get(key, key), _seen(key, value)] for key, value in suspect.evidence.items() if value is not None]
    return {
        "id": suspect.id,
        "given": suspect.given_label,
        "suggested": suspect.suggested_label,
        "probability": percent(suspect.suggested_probability),
        "picture": _key(suspect.picture, pictures),
        "text": None if suspect.text is None else clipped(suspect.text, TEXT),
        "agreeing": [_neighbour(neighbour, pictures) for neighbour in suspect.agreeing],
        "disagreeing": [_neighbour(neighbour, pictures) for neighbour in suspect.disagreeing],
        "evidence": [
            ["label quality", percent(suspect.label_quality)],
            ["found in", {"train": "training", "val": "validation"}.get(suspect.source, suspect.source)],
            *seen,
        ],
    }


def _drawn(row: Drawn, pictures: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": row.id,
        "given": row.given_label,
        "suggested": row.suggested_label,
        "picture": _key(row.picture, pictures),
        "text": None if row.text is None else clipped(row.text, TEXT),
    }


def _seen(key: str, value: str | float) -> str:
    if key.startswith("target_") and isinstance(value, float):
        return percent(value)
    if key.endswith("_agreement") and value == 0:
        return "never"
    return number(value)


def _neighbour(neighbour: Neighbour, pictures: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": neighbour.id,
        "label": neighbour.label,
        "picture": _key(neighbour.picture, pictures),
        "text": None if neighbour.text is None else clipped(neighbour.text, NEAR_TEXT),
    }


def _key(picture: Picture | None, pictures: Mapping[str, str]) -> str | None:
    return picture.key if picture is not None and picture.key in pictures else None
