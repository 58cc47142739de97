"""What an audit found, in words and tables for a person at a terminal."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from elr.audit.issues import LabelIssues
from elr.audit.relabel import Relabelled
from elr.audit.review import Rate, Review
from elr.audit.truth import Found

WORST = 10
PAIRS = 10
WIDE, NARROW = 44, 24  # most cells of an id, and of a label
SHOWN = 20  # classes; the rest are in audit.json
NOTE, BEWARE = "note: ", "beware: "


def percent(value: float) -> str:
    """19.8 %; what is nearly all or nothing does not become all or nothing by rounding."""
    shown = f"{100 * value:.1f}"
    if shown == "0.0" and value > 0:
        return "less than 0.1 %"
    if shown == "100.0" and value < 1:
        return "more than 99.9 %"
    return f"{shown} %"


def label(name: Any, most: int = NARROW) -> str:
    """A label or id in one line of at most so many cells, with what cannot be printed escaped; ends tell most."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(name))
    if cell_len(text) <= most:
        return text
    while cell_len(text) >= most:
        text = text[1:]
    return f"…{text}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of aligned columns; a head that ends in a colon is that of numbers, which stand on the right."""
    names = [head.rstrip(":") for head in heads]
    widths = [max(cell_len(row[k]) for row in [names, *rows]) for k in range(len(heads))]
    for row in [names, *rows]:
        cells = []
        for cell, head, width in zip(row, heads, widths, strict=True):
            gap = " " * (width - cell_len(cell))
            cells.append(gap + cell if head.endswith(":") else set_cell_size(cell, width))
        yield ("  " + "  ".join(cells)).rstrip()


def findings(issues: LabelIssues, name: str, by: str, answers: Review | None, found: Found | None) -> Iterator[str]:
    """The whole audit, headline first.

    Args:
        issues: the audit.
        name: of the run.
        by: how the list was cut, if that was asked for: said after "quality below .50".
        answers: what checked rows say.
        found: how good the audit was, where the truth is known.
    """
    yield from headline(issues, name, by, answers)
    if found is not None:
        yield from known(found)
    if issues.found:
        yield ""
        yield f"the {min(WORST, issues.found)} surest" if issues.found > WORST else "all of them"
        yield from worst(issues)
    if pairs := issues.confused_pairs(PAIRS):
        yield ""
        yield "classes most often confused (expected number of examples)"
        rows = [
            (label(p["given_label"]), label(p["true_label"]), f"{p['examples']:,.1f}")
            for p in pairs
            if p["examples"] >= 0.5
        ]
        yield from table(("given", "true", "examples:"), rows or [("none", "", "")])
    yield ""
    yield from health(issues)


def headline(issues: LabelIssues, name: str, by: str, answers: Review | None) -> Iterator[str]:
    """Why not to believe it, if there is a reason; how many labels look wrong, how sure that is, and how many are."""
    parts = [f"{int((issues['source'] == part).sum()):,} {part}" for part in ("train", "val")]
    yield f"{name}: {len(issues):,} labels ({', '.join(parts)}) of {len(issues.classes)} classes"
    yield from (f"{BEWARE}{warning}" for warning in issues.warnings)
    yield ""
    cut = f"quality below {_cut(issues.threshold)}{by}"
    verb = (
        ("is" if issues.found == 1 else "are") + " listed"
        if by
        else "looks wrong"
        if issues.found == 1
        else "look wrong"
    )
    if issues.precision is None:
        yield f"none of {len(issues):,} labels {'is listed' if by else 'looks wrong'} ({cut})"
    else:
        yield f"{issues.found:,} of {len(issues):,} labels {verb} ({cut});"
        recall = "" if issues.recall is None else f", and to be {_about(issues.recall)} of all wrong labels"
        yield f"{_about(issues.precision)} of them are expected to be wrong{recall}"
    low, high = map(percent, issues.noise_range)
    yield f"estimated noise rate {percent(issues.noise_rate)}, {low} to {high} under other assumptions; it rests on"
    yield "assumptions that labels alone cannot prove" + (
        ": --review draws rows to check for an interval that does not" if answers is None else ""
    )
    if answers is not None:
        yield from reviewed(answers)


def worst(issues: LabelIssues) -> Iterator[str]:
    """The labels found, surest first."""
    rows = [
        (
            label(issues["id"][row], WIDE),
            issues["source"][row],
            label(issues["given_label"][row]),
            label(issues["suggested_label"][row]),
            f"{issues['suggested_probability'][row]:.2f}",
            _low(issues["label_quality"][row]),
        )
        for row in issues.worst()[:WORST]
    ]
    yield from table(("id", "part", "given", "suggested", "probability:", "quality:"), rows)


def health(issues: LabelIssues) -> Iterator[str]:
    """A line for each class, most wrong first."""
    classes = sorted(issues.class_health(), key=lambda row: -(row["wrong"] or 0.0))
    rows = [
        (
            label(row["label"]),
            f"{row['given']:,}",
            f"{row['found']:,}",
            "none given" if row["wrong"] is None else percent(max(row["wrong"], 0.0)),
            f"{row['missed']:,.1f}",
        )
        for row in classes[:SHOWN]
    ]
    yield "health of the classes (given: labels; missed: examples expected to be of the class under another label)"
    yield from table(("class", "given:", "look wrong:", "expected wrong:", "missed:"), rows)
    if len(classes) > SHOWN:
        yield f"  and {len(classes) - SHOWN:,} more in audit.json"


def known(found: Found) -> Iterator[str]:
    """How good the audit was."""
    yield ""
    yield "known here because the noise was injected (the audit has not seen it):"
    if found.precision is not None:
        yield f"  precision            {percent(found.precision)} of the {found.found:,} found are wrong"
    if found.recall is not None:
        yield f"  recall               {percent(found.recall)} of the {found.wrong:,} wrong labels were found"
    if found.average_precision is not None and found.auroc is not None:
        yield f"  ranking              average precision {found.average_precision:.3f}, AUROC {found.auroc:.3f}"
    if found.suggestion_accuracy is not None:
        yield f"  suggested label      true for {percent(found.suggestion_accuracy)} of the wrong ones found"
    share = percent(found.wrong / found.examples)
    yield f"  quality              off by {100 * found.ece:.1f} points on average; true noise rate {share}"


def reviewed(review: Review) -> Iterator[str]:
    """What the checked rows say."""
    rate = review.overall
    yield ""
    if rate.bound == "counted":
        yield f"all {rate.checked:,} labels were checked: {rate.wrong:,} are wrong, {percent(rate.estimate)}"
    else:
        yield f"noise rate {percent(rate.estimate)}, 95 % interval {_interval(rate)}, whatever the noise:"
        yield f"from {rate.checked:,} checked rows, {rate.wrong:,} of them wrong; {_how(rate)}"
    rows = [
        (label(name), percent(own.estimate), _interval(own), f"{own.checked:,}", f"{own.wrong:,}")
        for name, own in review.classes.items()
    ]
    if rows:
        yield from table(("class", "wrong:", "95 % interval:", "checked:", "of them wrong:"), rows)
    yield from (f"{NOTE}{note}" for note in review.notes)


def changes(done: Relabelled, examples: int) -> Iterator[str]:
    """What relabelling did."""
    kinds = ", ".join(
        f"{done.decisions[kind]:,} {word}"
        for kind, word in (("keep", "kept"), ("accept", "accepted"), ("change", "changed"), ("unsure", "unsure"))
    )
    yield f"{sum(done.decisions.values()):,} decisions: {kinds}"
    yield f"{done.changed:,} of {examples:,} labels are different; those unsure or not decided stay as they were"
    if done.pairs:
        yield ""
        yield "changed most often"
        shown = [(label(old), label(new), f"{count:,}") for old, new, count in done.pairs[:PAIRS]]
        yield from table(("before", "after", "labels:"), shown)
        yield ""
        yield "examples of each class" if len(done.before) <= SHOWN else f"the {SHOWN} classes that changed most"
        names = sorted(done.before, key=lambda name: -abs(done.after[name] - done.before[name]))[:SHOWN]
        counts = [
            (label(n), f"{done.before[n]:,}", f"{done.after[n]:,}", f"{done.after[n] - done.before[n]:+,}")
            for n in (names if len(done.before) > SHOWN else done.before)
        ]
        yield from table(("class", "before:", "after:", "difference:"), counts)


def _interval(rate: Rate) -> str:
    return f"{percent(rate.low)} to {percent(rate.high)}"


def _how(rate: Rate) -> str:
    if rate.bound == "normal":
        return "prediction-powered, with a normal approximation"
    return "prediction-powered, by betting: safe for few answers or surprises"


def _about(share: float) -> str:
    whole = round(100 * share)
    if 1 <= whole <= 99:
        return f"about {whole} %"
    return "more than 99 %" if whole else "less than 1 %"


def _low(quality: float) -> str:
    return f"{quality:.3f}" if quality >= 0.0005 else "< 0.001"


def _cut(threshold: float) -> str:
    return (
        f"{threshold:.2f}"
        if 0.005 <= threshold <= 0.995
        else f"{threshold:.2g}"
        if threshold < 0.5
        else f"{threshold:.6g}"
    )
