"""The parts of a page, in the order in which they are read; several runs stand side by side in each of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elr.report.markup import UNKNOWN, Cell, clipped, items, name, number, path, percent, table, text
from elr.report.svg import Line, bar, heat_map, line_chart, patch, reliability_chart, swatch
from elr.report.view import RunView, Suspect

SUREST = 20  # cards that are there without JavaScript
PAIRS = 20
MAP_CLASSES = 30  # beyond that a cell is smaller than a finger, and a name smaller than print
EXCERPT = 240  # characters of a text on a card
TERMS = {
    "ce": "cross entropy",
    "penalty": "penalty, log(1 \u2212 \u27e8p, t\u27e9)",
    "agreement": "\u27e8p, t\u27e9, prediction and target",
}
Pictures = Mapping[str, str]  # key -> address of the data
Draw = Callable[[RunView], str]


def side_by_side(runs: Sequence[RunView], draw: Draw) -> str:
    """The same part of every run; a run alone needs no name."""
    if len(runs) == 1:
        return draw(runs[0])
    columns = "".join(f'<div class="run"><h3>{name(run.name)}</h3>{draw(run)}</div>' for run in runs)
    return f'<div class="runs">{columns}</div>'


def headline(run: RunView) -> str:
    """What happened, in words."""
    lead, *rest = [*_found(run), *_noise(run), *_learnt(run)]
    warnings = items([f"<strong>Beware:</strong> {text(line)}." for line in (run.audit or {}).get("warnings", ())])
    lacks = items([text(line) for line in run.lacks])
    return "".join(
        [
            lead,
            f'<div class="warnings">{warnings}</div>' if warnings else "",
            *rest,
            f'<div class="lacks"><p>What this page lacks:</p>{lacks}</div>' if lacks else "",
        ]
    )


def _found(run: RunView) -> list[str]:
    audit = run.audit
    if audit is None:
        return ['<p class="lead">Labels were not audited: this page says nothing about which of them are wrong.</p>']
    found, total = audit["found"], audit["examples"]
    if not found:
        return [f'<p class="lead">None of the {total:,} labels looks wrong.</p>']
    verb = "looks" if found == 1 else "look"
    shown = min(SUREST, sum(suspect.found for suspect in run.suspects))
    here = ("; here is the surest" if shown == 1 else f"; here are the {shown} surest") if shown else ""
    lines = [f'<p class="lead"><strong>{found:,} of {total:,}</strong> labels {verb} wrong{here}.</p>']
    if audit["expected_precision"] is not None:
        of_all = audit["expected_recall"]
        rest = f", and to be {percent(of_all)} of all that are wrong" if of_all is not None else ""
        lines.append(f"<p>{percent(audit['expected_precision'])} of these are expected to be wrong indeed{rest}.</p>")
    return lines


def _noise(run: RunView) -> list[str]:
    lines = []
    if run.checked is not None:
        told = run.checked
        lines.append(
            f"<p>Share of wrong labels, from {told['checked']:,} that were checked: "
            f"<strong>{percent(told['estimate'])}</strong>, 95\u00a0% interval {percent(told['low'])} to "
            f"{percent(told['high'])}, whatever the noise.</p>"
        )
    if run.audit is not None:
        low, high = run.audit["noise_range"]
        lines.append(
            f"<p>Estimated share of wrong labels: <strong>{percent(run.audit['noise_rate'])}</strong>; other "
            f"assumptions give {percent(low)} to {percent(high)} (rests on assumptions, not a confidence interval). "
            f"Assumed: {text(run.audit['noise_rate_rests_on'])}.</p>"
        )
    noise = run.summary.get("noise") or {}
    if noise.get("changed"):
        share, kind = percent(noise.get("flip_rate")), text(noise.get("kind", UNKNOWN))
        lines.append(
            f"<p>In truth {noise['changed']:,} of {name(number(noise.get('examples')))} labels ({share}) were replaced "
            f"on purpose ({kind} noise).</p>"
        )
    return lines


def _learnt(run: RunView) -> list[str]:
    if not run.summary:
        return ["<p>The run is not finished.</p>"]
    summary = run.summary
    if summary.get("test_accuracy") is not None:
        return [
            f"<p>Trained with {name(summary.get('method', UNKNOWN))}, the model is right on "
            f"{percent(summary['test_accuracy'])} of the test examples after the last epoch.</p>"
        ]
    if summary.get("val_accuracy") is not None:
        return [
            f"<p>Trained with {name(summary.get('method', UNKNOWN))}, the model predicts "
            f"{percent(summary['val_accuracy'])} of the validation labels, wrong ones among them, after the last "
            "epoch.</p>"
        ]
    return []


def numbers(runs: Sequence[RunView]) -> str:
    """The same quantities of all runs, a column each; a quantity that no run has is left out."""
    rows: list[tuple[str, Callable[[RunView], Any]]] = [
        ("method", lambda run: run.summary.get("method")),
        ("labels", lambda run: (run.audit or {}).get("examples")),
        ("labels that look wrong", lambda run: (run.audit or {}).get("found")),
        ("of these expected to be wrong", _share(lambda run: (run.audit or {}).get("expected_precision"))),
        ("of the wrong ones among these", _share(lambda run: (run.audit or {}).get("expected_recall"))),
        ("estimated share of wrong labels", _share(lambda run: (run.audit or {}).get("noise_rate"))),
        ("labels replaced on purpose", _share(lambda run: (run.summary.get("noise") or {}).get("flip_rate"))),
        ("test accuracy, last epoch", _share(lambda run: run.summary.get("test_accuracy"))),
        ("test accuracy, chosen epoch", _share(lambda run: run.summary.get("selected_test_accuracy"))),
        ("validation labels predicted", _share(lambda run: run.summary.get("val_accuracy"))),
        ("wrong labels memorised", _share(lambda run: run.summary.get("wrong_memorized"))),
        ("epochs", lambda run: run.summary.get("epochs")),
        ("seconds", lambda run: run.summary.get("seconds")),
    ]
    told = [[Cell(label), *(Cell(name(number(value(run)))) for run in runs)] for label, value in rows]
    known = [row for row in told if any(cell.html != name(UNKNOWN) for cell in row[1:])]
    if not known:
        return ""
    return table("In numbers", ["quantity", *(name(run.name) for run in runs)], known, sortable=False)


def _share(value: Callable[[RunView], float | None]) -> Callable[[RunView], str]:
    return lambda run: percent(value(run))


def surest(run: RunView, pictures: Pictures) -> str:
    """The first suspects as cards, for reading, printing, and browsers without JavaScript."""
    if not run.suspects:
        return "<p>There is nothing to show.</p>"
    cards = "".join(_card(suspect, pictures) for suspect in run.suspects[:SUREST])
    return f'<ol class="cards">{cards}</ol>'


def _card(suspect: Suspect, pictures: Pictures) -> str:
    shown = ""
    if suspect.picture is not None and suspect.picture.key in pictures:
        key, small = suspect.picture.key, ' class="pixels"' if suspect.picture.width <= 64 else ""
        size = f'width="{suspect.picture.width}" height="{suspect.picture.height}"'
        alt = f"example {suspect.id}, labelled {suspect.given_label}"
        shown = f'<img src="{pictures[key]}" data-key="{key}" {size} alt="{text(alt)}"{small}>'
    elif suspect.text is not None:
        shown = f'<p class="words" dir="auto">{text(clipped(suspect.text, EXCERPT))}</p>'
    unsure = "" if suspect.found else "<p>not below the threshold</p>"
    rows = [
        ("given", "given", suspect.given_label),
        ("suggested", "suggested", suspect.suggested_label),
        ("probability", "", percent(suspect.suggested_probability)),
    ]
    told = "".join(f'<dt>{word}</dt><dd class="{look}">{name(value)}</dd>' for word, look, value in rows)
    return f"<li>{shown}<dl>{told}<dt>example</dt><dd>{path(suspect.id)}</dd></dl>{unsure}</li>"


def curves(run: RunView) -> str:
    """Figure 1 of the paper where the truth is known, otherwise what can be seen of it."""
    charts, told = [], ""
    swept = [record for record in run.records if {"clean_correct", "wrong_correct"} & set(record)]
    if swept:
        told = (
            "The truth is known here, so these are the curves of Figure 1 of the paper: what is predicted for training "
            "examples whose label is right, and for those whose label is wrong."
        )
        clean = [record.get("clean_correct") for record in swept]
        missed = [None if value is None else 1.0 - value for value in clean]
        charts = [
            ("clean labels", [Line("predicted correctly", "correct", clean), Line("incorrect", "other", missed)]),
            (
                "wrong labels",
                [
                    Line("predicted correctly", "correct", [record.get("wrong_correct") for record in swept]),
                    Line("memorised: the wrong label", "memorized", [r.get("wrong_memorized") for r in swept]),
                    Line("neither", "other", [record.get("wrong_other") for record in swept]),
                ],
            ),
        ]
    elif run.records:
        told = (
            "The truth is not known here, so the curves of Figure 1 of the paper are estimated: memorising shows "
            "where ever more of the training labels are predicted, but no more of the labels held out."
        )
    drawn = "".join(_figure(run, title, swept, lines, share=True) for title, lines in charts)
    accuracy = [
        Line("training labels predicted", "memorized", [r.get("train_agreement") for r in run.records]),
        Line("validation labels predicted", "other", [r.get("val_accuracy") for r in run.records]),
        Line("test accuracy", "correct", [r.get("test_accuracy") for r in run.records]),
    ]
    drawn += _figure(run, "all labels", run.records, accuracy, share=True)
    return f'<p>{told}</p><div class="figures">{drawn}</div>' if drawn else "<p>No epoch was recorded.</p>"


def terms(run: RunView) -> str:
    """What the loss is made of, over time: each has a scale of its own."""
    own = {key: title for key, title in TERMS.items() if any(key in record for record in run.records)}
    drawn = "".join(
        _figure(run, title, run.records, [Line(title, "only", [record.get(key) for record in run.records])])
        for key, title in (own or {"loss": "loss"}).items()
    )
    return f'<div class="figures">{drawn}</div>' if drawn else "<p>No term of the loss was recorded.</p>"


def _figure(
    run: RunView, title: str, records: Sequence[Mapping[str, Any]], lines: Sequence[Line], *, share: bool = False
) -> str:
    lines = [line for line in lines if any(value is not None for value in line.values)]
    if not lines:
        return ""
    chosen = run.summary.get("selected_epoch")
    chart = line_chart(title, [record["epoch"] for record in records], lines, share=share, mark=chosen)
    legend = [f"{swatch(line.look)} {text(line.label)}" for line in lines if line.label != title]
    if chosen is not None:
        legend.append(f"{swatch('mark')} epoch chosen on validation")
    return figure(title, chart, items(legend, "legend"))


def figure(title: str, chart: str, below: str = "") -> str:
    """A chart with its title; what is hovered over or touched is also told in words."""
    return (
        f"<figure><figcaption>{text(title)}</figcaption>{chart}{below}"
        '<p class="told" aria-hidden="true">&nbsp;</p></figure>'
    )


def confusion(run: RunView) -> str:
    """Given label against true class: a map if classes are few, and the pairs confused most."""
    pairs = _pairs(run)
    if run.confusion is None and not pairs:
        return "<p>Without an audit it is not known which labels are confused.</p>"
    drawn = ""
    if run.confusion is not None and len(run.classes) <= MAP_CLASSES:
        legend = [f"{patch('right')} label right", f"{patch('wrong')} label wrong; deeper is more"]
        chart = heat_map("given label against true class", run.classes, run.confusion)
        drawn = figure("expected number of examples", chart, items(legend, "legend"))
    elif run.confusion is not None:
        drawn = f"<p>{len(run.classes):,} classes are too many for a map; these pairs are confused most.</p>"
    rows = [
        [Cell(name(given)), Cell(name(true)), Cell(f"{examples:,.1f}", examples)] for given, true, examples in pairs
    ]
    if not rows:
        return f"{drawn}<p>No two classes are confused.</p>"
    caption = "Pairs confused most"
    return f'<div class="figures">{drawn}' + table(caption, ["given label", "true class", "expected"], rows) + "</div>"


def _pairs(run: RunView) -> list[tuple[str, str, float]]:
    if run.confusion is None:
        found = (run.audit or {}).get("confused_pairs", ())
        return [(pair["given_label"], pair["true_label"], pair["examples"]) for pair in found]
    wrong = [
        (run.classes[j], run.classes[k], float(value))
        for j, row in enumerate(run.confusion)
        for k, value in enumerate(row)
        if j != k and value >= 0.05  # shown to one digit
    ]
    return sorted(wrong, key=lambda pair: -pair[2])[:PAIRS]


def health(run: RunView) -> str:
    """A row for each class."""
    classes = (run.audit or {}).get("class_health", ())
    if not classes:
        return "<p>Without an audit nothing is known about single classes.</p>"
    rows = []
    for row in classes:
        wrong = row["wrong"]
        share = Cell(UNKNOWN, -1.0) if wrong is None else Cell(f"{bar(wrong)} {percent(wrong)}", wrong)
        counts = [Cell(f"{row['given']:,}", row["given"]), Cell(f"{row['found']:,}", row["found"])]
        rows.append([Cell(name(row["label"])), *counts, share, Cell(f"{row['missed']:,.1f}", row["missed"])])
    columns = ["class", "labels given", "look wrong", "expected wrong", "belong here too"]
    return table("Health of every class", columns, rows)


def calibration(run: RunView) -> str:
    """Whether probabilities can be taken at their word."""
    if run.calibration is None:
        return "<p>Calibration is not known for this run.</p>"
    bins = run.calibration.bins
    total = sum(b.count for b in bins)
    error = sum(b.count * abs(b.mean_predicted - b.observed) for b in bins) / total if total else None
    chart = reliability_chart("predicted and observed", bins)
    legend = [f"{swatch('mark')} where a calibrated model lies", f"{swatch('other')} this one; larger is more examples"]
    return (
        f"<p>{text(run.calibration.caption)} Expected calibration error: {percent(error)}.</p>"
        f'<div class="figures">{figure("predicted and observed", chart, items(legend, "legend"))}</div>'
    )


def facts(runs: Sequence[RunView]) -> str:
    """Where the numbers come from; what differs between runs is marked."""
    own = [{"path": run.path, **run.facts} for run in runs]
    settings = [run.config for run in runs]
    told = _fact_table("Where the numbers come from", runs, own)
    if any(settings):
        told += f"<details><summary>Configuration</summary>{_fact_table('Configuration', runs, settings)}</details>"
    return told


def _fact_table(caption: str, runs: Sequence[RunView], columns: Sequence[Mapping[str, str]]) -> str:
    rows = []
    for key in dict.fromkeys(key for column in columns for key in column):
        values = [column.get(key) for column in columns]
        differs = ' <small class="differs">differs</small>' if len(set(values)) > 1 else ""
        rows.append([Cell(text(key) + differs), *(Cell(UNKNOWN if v is None else _fact(v)) for v in values)])
    return table(caption, ["fact", *(name(run.name) for run in runs)], rows, sortable=False)


def _fact(value: str) -> str:
    return f"<pre>{text(value)}</pre>" if "\n" in value else name(value)
