"""From a run directory to what its page shows: the audit, the surest suspects with their pictures, and the facts."""

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from elr.audit.evidence import read_evidence
from elr.audit.issues import LabelIssues
from elr.audit.of_run import WHERE_DATA_SAY, audit_run
from elr.audit.review import read_review
from elr.audit.suspects import Features, neighbours, read_features
from elr.audit.threshold import Cut
from elr.audit.write import CHECKED, DRAWN
from elr.config import read_toml
from elr.data import Examples, load
from elr.data.inputs import fingerprint
from elr.data.load import PYTHON
from elr.noise import NoiseManifest
from elr.report.page import EVIDENCE, write_page
from elr.report.records import Record, checked, read_json
from elr.report.sections import TERMS
from elr.report.view import Bin, Calibration, Drawn, Neighbour, Picture, RunView, Suspect
from elr.run import Run

SUSPECTS = 300
NEAR = 4  # neighbours of each kind
SMALL, LARGE = 32, 96  # pixels of a side: smaller pictures are enlarged, larger ones reduced
BINS = 10
VALUES = 16  # of a row of features that are shown
NUMBER = (int, float)
DRAWN_KEYS = (
    "clean_correct", "wrong_correct", "wrong_memorized", "wrong_other", "train_agreement", "val_accuracy",
    "test_accuracy", "loss", *TERMS,
)  # fmt: skip
T = TypeVar("T")


def write_report(
    runs: Sequence[Run], out: Path, *, suspects: int = SUSPECTS, cut: Cut = WHERE_DATA_SAY
) -> list[RunView]:
    """Write the page of these runs to one HTML file; returns what it shows.

    Args:
        runs: shown side by side.
        out: the file.
        suspects: how many labels to review, surest first.
        cut: where the list of labels that look wrong ends, as for the audit.
    """
    names = _names([run.path for run in runs])
    views = [view_of(run, suspects, cut, name) for run, name in zip(runs, names, strict=True)]
    write_page(out, views)
    return views


def view_of(run: Run, suspects: int = SUSPECTS, cut: Cut = WHERE_DATA_SAY, name: str | None = None) -> RunView:
    """Everything a page shows of a run; what is missing is said, not hidden."""
    lacks: list[str] = []
    issues = _if_readable(lambda: audit_run(run.path, cut), None, lacks, "Labels are not judged")
    calibration = None
    shown: tuple[Suspect, ...] = ()
    drawn: tuple[Drawn, ...] = ()
    if issues is not None:
        inputs, judged = _Inputs(run, lacks), issues
        shown = _suspects(run, issues, inputs, suspects)
        drawn = _drawn(run, issues, inputs)
        calibration = _if_readable(lambda: _calibration(run, judged), None, lacks, "Calibration is not shown")
    if not run.finished:
        lacks.append("The run is not finished: the curves end where it stopped.")
    summary: Mapping[str, Any] = {}
    if run.finished:
        summary = _if_readable(lambda: _summary(run), {}, lacks, "What training led to is not told")
    return RunView(
        key=_key(run),
        name=name or run.path.resolve().name,
        path=str(run.path),
        classes=run.classes,
        summary=summary,
        records=_if_readable(lambda: _epochs(run), [], lacks, "Curves are not shown"),
        audit=None if issues is None else issues.summary(),
        confusion=None if issues is None else issues.confusion.tolist(),
        calibration=calibration,
        suspects=shown,
        drawn=drawn,
        checked=_checked(run, len(drawn), lacks),
        facts=_facts(run, summary, lacks),
        config=_config(run, lacks),
        lacks=tuple(dict.fromkeys(lacks)),
    )


def _if_readable(read: Callable[[], T], otherwise: T, lacks: list[str], what: str) -> T:
    """What a file of a run says; if it is missing, damaged or of another version, the page says what it lacks."""
    try:
        return read()
    except (OSError, ValueError) as error:
        lacks.append(f"{what}: {error}.")
    return otherwise


def _names(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of their paths that tell runs apart."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(own[-length:]) for own in parts]
        if max(Counter(names).values()) == 1:
            return names
    return [path.resolve().name for path in paths]  # the same run twice


def _epochs(run: Run) -> list[Record]:
    """Records, if they are of epochs."""
    records, path = run.records, run.path / "records.jsonl"
    if strange := [r for r in records if not (isinstance(r, dict) and isinstance(r.get("epoch"), int))]:
        raise ValueError(f"{len(strange):,} of {len(records):,} records do not say of which epoch they are")
    return [checked(path, record, dict.fromkeys(DRAWN_KEYS, NUMBER)) for record in records]


def _data_facts(run: Run, lacks: list[str]) -> Mapping[str, Any]:
    """What data.json says, if it is what it should be."""
    counts = dict.fromkeys(("train_examples", "val_examples", "test_examples"), int)
    kinds = {**counts, "raw_shape": list, "name": str}
    path = run.path / "data.json"
    return _if_readable(lambda: checked(path, run.facts, kinds), {}, lacks, "Facts of the data are not shown")


def _summary(run: Run) -> dict[str, Any]:
    """What the page tells of summary.json, if it is what it should be."""
    path = run.path / "summary.json"
    shares = dict.fromkeys(("test_accuracy", "selected_test_accuracy", "val_accuracy", "wrong_memorized"), NUMBER)
    tables = {"noise": dict, "facts": dict}
    summary = checked(path, run.summary, {**shares, **tables, "seconds": NUMBER, "epochs": int, "selected_epoch": int})
    checked(path, summary.get("noise") or {}, {"changed": int, "examples": int, "flip_rate": NUMBER})
    return summary


def _config(run: Run, lacks: list[str]) -> dict[str, str]:
    """Settings by name: resolved, or of a run from another version as they stand in its file."""
    try:
        settings = run.config.flat()
    except ValueError as error:
        lacks.append(f"The run is perhaps of another version of elr, so that its examples are not shown: {error}.")
        settings = _if_readable(lambda: read_toml(run.path / "config.toml"), {}, lacks, "Settings are not shown")
    return {key: str(value) for key, value in settings.items() if value is not None}


def _checked(run: Run, drawn: int, lacks: list[str]) -> Mapping[str, Any] | None:
    """What the checked rows of the draw say, if they were checked."""
    path = run.path / CHECKED
    if not drawn or not path.is_file():
        return None
    shares = dict.fromkeys(("estimate", "low", "high"), NUMBER)
    kinds: Mapping[str, Any] = {**shares, "checked": int, "drawn": int}
    nothing: dict[str, Any] = {}
    said = _if_readable(lambda: checked(path, read_json(path), kinds), nothing, lacks, "What was checked is not shown")
    whole = all(said.get(key) is not None for key in kinds)
    return said if whole and said["drawn"] == drawn else None  # else of a draw before this one


class _Inputs:
    """The inputs of a run's rows by id, as pictures or text; read when they are first asked for."""

    def __init__(self, run: Run, lacks: list[str]) -> None:
        self.run = run
        self.lacks = lacks
        self.pictures: dict[str, Picture | None] = {}

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """What the run wrote down of its data."""
        return _data_facts(self.run, self.lacks)

    @cached_property
    def parts(self) -> Mapping[str, tuple[Examples, int]]:
        """id -> (part, row)."""
        try:
            config = self.run.config
        except ValueError:
            return {}  # said where settings are shown
        if config.data.source.startswith(PYTHON):
            self.lacks.append("Examples are not shown: the run was given its data from Python, and does not keep them.")
            return {}
        try:  # a picture that has become unreadable must not cost the others
            data = load(replace(config.data, on_bad_file="skip"), config.noise, config.seed)
        except (OSError, ValueError, ImportError) as error:
            self.lacks.append(f"Examples are not shown: {error}.")
            return {}
        facts = self.facts
        if [data.name, list(data.train.inputs.shape)] != [facts.get("name"), facts.get("raw_shape")]:
            self.lacks.append(f"Examples are not shown: {config.data.source} holds other data now.")
            return {}
        parts = [part for part in (data.train, data.val) if part is not None]
        found = {str(id_): (part, row) for part in parts for row, id_ in enumerate(part.ids.tolist())}
        # A path names its picture. A row number names whatever stands there now.
        now = fingerprint(data.train.inputs)
        if any(facts.get(key, value) != value for key, value in now.items()) and all(map(str.isdecimal, found)):
            self.lacks.append(f"Examples are not shown: the rows of {config.data.source} hold other inputs now.")
            return {}
        return found

    @cached_property
    def axes(self) -> int:
        """Of an example: 3 is a picture, 1 a row of features."""
        if self.facts.get("raw_shape") is None:
            self.lacks.append(f"Examples are not shown: {self.run.path / 'data.json'} does not say what they are.")
            return 0
        return len(self.facts["raw_shape"])

    def raw(self, id_: str) -> npt.NDArray[Any] | None:
        """The input as it was read; None if it is gone."""
        if id_ not in self.parts:
            if self.parts:
                self.lacks.append("Some examples are not shown: the data do not have them any more.")
            return None
        part, row = self.parts[id_]
        try:
            return np.asarray(part.inputs.fetch(torch.tensor([row]))[0].numpy())
        except (OSError, ValueError) as error:
            self.lacks.append(f"Some examples are not shown: {error}.")
            return None

    def picture(self, id_: str) -> Picture | None:
        """A small picture, if the example is one."""
        if id_ not in self.pictures:
            x = self.raw(id_) if self.axes == 3 else None
            self.pictures[id_] = None if x is None else _picture(x)
        return self.pictures[id_]

    def text(self, id_: str) -> str | None:
        """A row of features as text, if the example is one."""
        x = self.raw(id_) if self.axes == 1 else None
        if x is None:
            return None
        more = f", ... ({len(x)} values)" if len(x) > VALUES else ""
        return ", ".join(f"{value:.4g}" for value in x[:VALUES].tolist()) + more


def _picture(x: npt.NDArray[Any]) -> Picture:
    if x.dtype != np.uint8:
        low, high = float(x.min()), float(x.max())
        x = (255.0 * (x - low) / (high - low or 1.0)).astype(np.uint8)
    x = x[0] if x.shape[0] == 1 else x[:3].transpose(1, 2, 0)
    image = Image.fromarray(np.ascontiguousarray(x))
    times = -(-SMALL // min(image.size))
    if times > 1:
        image = image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST)
    image.thumbnail((LARGE, LARGE))
    file = io.BytesIO()
    photograph = image.mode == "RGB" and min(image.size) > SMALL and times == 1
    image.save(file, "JPEG" if photograph else "PNG", **({"quality": 85} if photograph else {"optimize": True}))
    return Picture(file.getvalue(), image.width, image.height)


def _suspects(run: Run, issues: LabelIssues, inputs: _Inputs, count: int) -> tuple[Suspect, ...]:
    features = _if_readable(lambda: read_features(run.path), None, inputs.lacks, "Neighbours are not shown")
    if features is None:
        inputs.lacks.append("Neighbours are not shown: the run kept no features.")
    return tuple(_suspect(int(row), issues, inputs, features) for row in issues.worst()[:count])


def _suspect(row: int, issues: LabelIssues, inputs: _Inputs, features: Features | None) -> Suspect:
    own = {name: _plain(values[row]) for name, values in issues.columns.items()}
    near = {
        label: () if features is None else _near(features, row, own[label], issues, inputs)
        for label in ("given_label", "suggested_label")
    }
    return Suspect(
        **{
            name: own[name]
            for name in (
                "id", "given_label", "suggested_label", "suggested_probability", "label_quality", "source",
            )
        },
        found=own["is_label_issue"],
        picture=inputs.picture(own["id"]),
        text=inputs.text(own["id"]),
        agreeing=near["given_label"],
        disagreeing=near["suggested_label"],
        evidence={name: own[name] for name in EVIDENCE if name in own},
    )  # fmt: skip


def _drawn(run: Run, issues: LabelIssues, inputs: _Inputs) -> tuple[Drawn, ...]:
    """The rows of a draw by ``elr audit --review``, in its order; none if there was no draw."""
    path = run.path / DRAWN
    if not path.is_file():
        return ()
    try:
        rows, _ = read_review(issues, path)
    except (OSError, ValueError) as error:
        inputs.lacks.append(f"The rows drawn are not shown: {error}.")
        return ()
    names = ("id", "given_label", "suggested_label")
    cells = ([str(issues[name][row]) for name in names] for row in rows)
    return tuple(Drawn(id_, given, suggested, inputs.picture(id_), inputs.text(id_)) for id_, given, suggested in cells)


def _near(features: Features, row: int, label: str, issues: LabelIssues, inputs: _Inputs) -> tuple[Neighbour, ...]:
    ids = [issues["id"][k] for k in neighbours(features, row, label, issues, NEAR)]
    return tuple(Neighbour(id_, label, inputs.picture(id_), inputs.text(id_)) for id_ in ids)


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and value != value else value


def _calibration(run: Run, issues: LabelIssues) -> Calibration | None:
    """Of label quality where the truth is known; else of what is believed of held-out rows, against their labels."""
    if (run.path / "noise.npz").is_file():
        manifest = NoiseManifest.load(run.path)
        right = dict(zip(map(str, manifest.ids.tolist()), (manifest.old == manifest.new).tolist(), strict=True))
        if unknown := sum(id_ not in right for id_ in issues["id"]):
            raise ValueError(f"{run.path / 'noise.npz'} does not know {unknown:,} of {len(issues):,} examples")
        happened = np.array([right[id_] for id_ in issues["id"]])
        caption = "Label quality against the truth, which is known here because the noise was injected."
        return Calibration(caption, _bins(issues["label_quality"], happened))
    rows, evidence = read_evidence(run.path, run.classes)
    if not evidence.held.any():
        return None
    p, y = evidence.belief[evidence.held], rows.given[evidence.held]
    caption = (
        "What was believed of held-out examples against the labels they were given. Labels that are wrong make it look "
        "surer than it should be."
    )
    return Calibration(caption, _bins(p.max(axis=1), p.argmax(axis=1) == y))


def _bins(probability: npt.NDArray[Any], happened: npt.NDArray[np.bool_]) -> tuple[Bin, ...]:
    place = np.minimum((probability * BINS).astype(np.int64), BINS - 1)
    return tuple(
        Bin(k / BINS, (k + 1) / BINS, float(probability[own].mean()), float(happened[own].mean()), int(own.sum()))
        for k in range(BINS)
        if (own := place == k).any()
    )


def _key(run: Run) -> str:
    digest = hashlib.sha256()
    for name in ("config.toml", "rows.csv"):
        if (run.path / name).is_file():
            digest.update((run.path / name).read_bytes())
    return digest.hexdigest()[:16]


def _facts(run: Run, summary: Mapping[str, Any], lacks: list[str]) -> dict[str, str]:
    data = _data_facts(run, lacks)
    sizes = {"train_examples": "training", "val_examples": "validation", "test_examples": "test"}
    counts = ", ".join(f"{data[key]:,} {word}" for key, word in sizes.items() if data.get(key) is not None)
    facts = {"data": f"{data.get('name', 'unknown')}: {counts}", "labels, sha256": str(data.get("sha256", "unknown"))}
    if not summary:
        return facts
    if noise := summary.get("noise"):
        kind, rate = noise.get("kind", "unknown"), noise.get("rate", "unknown")
        facts["noise"] = f"{kind} {rate}, sha256 {noise.get('sha256', 'unknown')}"
    if summary.get("seconds") is not None and summary.get("epochs") is not None:
        facts["training"] = f"{summary['seconds']:,.1f} seconds in {summary['epochs']} epochs"
    own = {"command": "command", "chosen_by": "chosen by"}
    facts |= {word: str(summary[key]) for key, word in own.items() if key in summary}
    return facts | {name: str(value) for name, value in (summary.get("facts") or {}).items()}
