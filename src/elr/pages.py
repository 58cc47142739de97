"""From a run directory to what its page shows: the audit, the surest suspects with their pictures, and the facts."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from elr.audit.evidence import read_evidence
from elr.audit.issues import LabelIssues
from elr.audit.review import read_review
from elr.audit.suspects import Features, neighbours, read_features
from elr.audit.write import DRAWN
from elr.data import Examples, load
from elr.noise import NoiseManifest
from elr.report.page import EVIDENCE, write_page
from elr.report.view import Bin, Calibration, Drawn, Neighbour, Picture, RunView, Suspect
from elr.run import Run

SUSPECTS = 300
NEAR = 4  # neighbours of each kind
SMALL, LARGE = 32, 96  # pixels of a side: smaller pictures are enlarged, larger ones reduced
BINS = 10
IN_MEMORY = ("arrays", "dataset")  # names of data that were given from Python
VALUES = 16  # of a row of features that are shown


def write_report(runs: Sequence[Run], out: Path, *, suspects: int = SUSPECTS) -> list[RunView]:
    """Write the page of these runs to one HTML file; returns what it shows."""
    views = [view_of(run, suspects) for run in runs]
    write_page(out, views)
    return views


def view_of(run: Run, suspects: int = SUSPECTS) -> RunView:
    """Everything a page shows of a run; what is missing is said, not hidden."""
    lacks: list[str] = []
    issues: LabelIssues | None = None
    calibration = None
    shown: tuple[Suspect, ...] = ()
    drawn: tuple[Drawn, ...] = ()
    try:
        issues = run.label_issues()
    except (FileNotFoundError, ValueError) as error:
        lacks.append(f"Labels are not judged: {error}.")
    if issues is not None:
        inputs = _Inputs(run, lacks)
        shown = _suspects(run, issues, inputs, suspects)
        drawn = _drawn(run, issues, inputs)
        calibration = _calibration(run, issues)
    if not run.finished:
        lacks.append("The run is not finished: the curves end where it stopped.")
    return RunView(
        key=_key(run),
        name=run.path.resolve().name,
        path=str(run.path),
        classes=run.classes,
        summary=run.summary if run.finished else {},
        records=run.records,
        audit=None if issues is None else issues.summary(),
        confusion=None if issues is None else issues.confusion.tolist(),
        calibration=calibration,
        suspects=shown,
        drawn=drawn,
        facts=_facts(run),
        config={key: str(value) for key, value in run.config.flat().items() if value is not None},
        lacks=tuple(dict.fromkeys(lacks)),
    )


class _Inputs:
    """The inputs of a run's rows by id, as pictures or text; read when they are first asked for."""

    def __init__(self, run: Run, lacks: list[str]) -> None:
        self.run = run
        self.lacks = lacks
        self.pictures: dict[str, Picture | None] = {}

    @cached_property
    def parts(self) -> Mapping[str, tuple[Examples, int]]:
        """id -> (part, row)."""
        config = self.run.config
        if self.run.facts["name"] in IN_MEMORY:
            self.lacks.append("Examples are not shown: the run was given arrays, which it does not keep.")
            return {}
        try:
            data = load(config.data, config.noise, config.seed)
        except (OSError, ValueError, ImportError) as error:
            self.lacks.append(f"Examples are not shown: {error}.")
            return {}
        if [data.name, list(data.train.inputs.shape)] != [self.run.facts["name"], self.run.facts["raw_shape"]]:
            self.lacks.append(f"Examples are not shown: {config.data.source} holds other data now.")
            return {}
        parts = [part for part in (data.train, data.val) if part is not None]
        return {str(id_): (part, row) for part in parts for row, id_ in enumerate(part.ids.tolist())}

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
            x = self.raw(id_) if len(self.run.facts["raw_shape"]) == 3 else None
            self.pictures[id_] = None if x is None else _picture(x)
        return self.pictures[id_]

    def text(self, id_: str) -> str | None:
        """A row of features as text, if the example is one."""
        x = self.raw(id_) if len(self.run.facts["raw_shape"]) == 1 else None
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
    features = read_features(run.path)
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


def _facts(run: Run) -> dict[str, str]:
    sizes = {"train_examples": "training", "val_examples": "validation", "test_examples": "test"}
    counts = ", ".join(f"{run.facts[key]:,} {word}" for key, word in sizes.items() if key in run.facts)
    facts = {"data": f"{run.facts['name']}: {counts}", "labels, sha256": str(run.facts["sha256"])}
    if not run.finished:
        return facts
    summary = run.summary
    if noise := summary.get("noise"):
        facts["noise"] = f"{noise['kind']} {noise['rate']:g}, sha256 {noise.get('sha256', 'unknown')}"
    facts |= {
        "command": str(summary.get("command", "")),
        "training": f"{summary['seconds']:,.1f} seconds in {summary['epochs']} epochs",
        "chosen by": str(summary.get("chosen_by", "")),
    }
    return facts | {name: str(value) for name, value in summary.get("facts", {}).items()}
