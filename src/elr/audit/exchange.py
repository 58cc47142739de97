"""Suspects for Label Studio and FiftyOne, and what people decided there.

Formats, by the page of the documentation they are described on:
Label Studio: "Import pre-annotated data into Label Studio" (tasks with predictions), "Label Studio Task Format" and
"Export annotations and data from Label Studio" (JSON, not JSON_MIN), "Choices" (the labelling configuration).
FiftyOne: the JSON of ``Dataset.write_json`` and ``Dataset.from_json`` ("fiftyone.core.dataset"), which the samples.json
of "Exporting FiftyOne Datasets" resembles; "Classification" of "Using FiftyOne Datasets".
"""

import os
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import quoteattr

import numpy as np
import numpy.typing as npt

from elr.audit.corrections import Correction, decided, read_corrections, unique
from elr.audit.issues import LabelIssues
from elr.report.records import read_json, write_json, write_text

KINDS = ("label-studio", "fiftyone")
TAGS = ("keep", "accept", "unsure")  # that a person gives to a FiftyOne sample
LOCAL = "/data/local-files/?d="  # Label Studio serves files by their path below its document root
FIELDS = "fiftyone.core.fields"
CLASSIFICATION = f"{FIELDS}.EmbeddedDocumentField(fiftyone.core.labels.Classification)"

Ints = npt.NDArray[np.int64]


class Pictures(NamedTuple):
    """The image file of every example."""

    paths: Mapping[str, Path]  # by id

    @property
    def root(self) -> Path:
        """The folder that all of them are below, wherever a manifest found them."""
        return Path(os.path.commonpath([os.path.abspath(path.parent) for path in self.paths.values()]))

    @property
    def served(self) -> Path:
        """What Label Studio is to call its document root: of that it serves folders below, but not itself."""
        return self.root.parent

    def there(self, issues: LabelIssues, rows: Ints) -> Ints:
        """Those of the rows whose files still are where they were; one at least."""
        ids = issues["id"][rows].tolist()
        left = [
            row for row, id_ in zip(rows.tolist(), ids, strict=True) if id_ in self.paths and self.paths[id_].is_file()
        ]
        if len(rows) and not left:
            place = self.paths.get(ids[0], Path(ids[0]))
            raise FileNotFoundError(f"none of the pictures is there any more, first {place}, seen from {Path.cwd()}")
        return np.array(left, dtype=np.int64)


def export(
    kind: str,
    issues: LabelIssues,
    rows: Ints,
    path: Path,
    pictures: Pictures | None = None,
    *,
    blind: bool = False,
) -> list[Path]:
    """Write these rows for a tool; an existing file is not replaced.

    Args:
        kind: label-studio, which also gets a labelling configuration beside the tasks, or fiftyone.
        issues: the audit.
        rows: places in its table, in the order to be shown.
        path: the .json file to write.
        pictures: where the images are; without them Label Studio shows ids, and FiftyOne has nothing to show.
        blind: without what the audit thinks, for rows that are drawn to check it.
    """
    if kind not in KINDS:
        raise ValueError(f"cannot export to {kind!r}; choose {' or '.join(KINDS)}")
    if path.suffix != ".json":
        raise ValueError(f"cannot export to {path}: the file must end in .json")
    files = [path] if kind == "fiftyone" else [path, path.with_suffix(".xml")]
    for file in files:
        if file.exists():
            raise FileExistsError(f"{file} exists already; choose another --to")
    if kind == "fiftyone":
        if pictures is None:
            raise ValueError("FiftyOne shows files, and these examples are not image files")
        content: Any = to_fiftyone(issues, rows, pictures, path.stem, blind=blind)
        configuration = None
    else:
        configuration = labelling_configuration(issues.classes, images=pictures is not None, blind=blind)
        content = to_label_studio(issues, rows, pictures, blind=blind)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content)
    if configuration is not None:
        write_text(files[1], configuration)
    return files


def to_label_studio(
    issues: LabelIssues, rows: Ints, pictures: Pictures | None = None, *, blind: bool = False
) -> list[dict[str, Any]]:
    """Tasks with the suggested label as a prediction, and all that is needed to read the answer back."""
    shown = "example" if pictures is None else "image"
    served = None if pictures is None else pictures.served
    tasks: list[dict[str, Any]] = []
    for number, row in enumerate(rows.tolist()):
        id_, suggested = issues["id"][row], issues["suggested_label"][row]
        data = {"example_id": id_, "given_label": issues["given_label"][row]}  # not id: Label Studio has its own
        if pictures is not None and served is not None:
            place = Path(os.path.relpath(os.path.abspath(_picture(pictures, id_)), served)).as_posix()
            data["image"] = LOCAL + urllib.parse.quote(place)
        if blind:
            tasks.append({"data": data})
            continue
        data |= {"suggested_label": suggested, "label_quality": float(issues["label_quality"][row])}
        choice = {
            "id": f"elr{number}",
            "from_name": "label",
            "to_name": shown,
            "type": "choices",
            "value": {"choices": [suggested]},
        }
        score = float(issues["suggested_probability"][row])
        tasks.append({"data": data, "predictions": [{"model_version": "elr", "score": score, "result": [choice]}]})
    return tasks


def labelling_configuration(classes: Sequence[str], *, images: bool, blind: bool = False) -> str:
    """What a Label Studio project asks: one choice among the classes."""
    bad = [name for name in classes if any(ord(c) < 32 and c not in "\t\n\r" for c in name)]
    if bad:
        raise ValueError(f"class {bad[0]!r} holds a control character, which Label Studio's configuration cannot")
    tag, name = ("Image", "image") if images else ("Text", "example")
    value = "$image" if images else "$example_id"
    choices = "\n".join(f"    <Choice value={quoteattr(label)}/>" for label in classes)
    told = "given: $given_label" if blind else "given: $given_label; suggested: $suggested_label"
    return (
        f'<View>\n  <{tag} name="{name}" value="{value}"/>\n'
        f'  <Header value="{told}"/>\n'
        f'  <Choices name="label" toName="{name}" choice="single">\n{choices}\n  </Choices>\n</View>\n'
    )


def to_fiftyone(
    issues: LabelIssues, rows: Ints, pictures: Pictures, name: str, *, blind: bool = False
) -> dict[str, Any]:
    """A dataset that ``fiftyone.Dataset.from_json`` reads; ``ground_truth`` is there to be changed."""
    samples = [
        {
            "filepath": os.path.abspath(_picture(pictures, issues["id"][row])),
            "tags": [],
            "_media_type": "image",
            "example_id": issues["id"][row],
            "given_label": issues["given_label"][row],
            "ground_truth": _classification(issues["given_label"][row]),
            **({} if blind else _opinion(issues, row)),
        }
        for row in rows.tolist()
    ]
    fields = dict.fromkeys(("example_id", "given_label"), f"{FIELDS}.StringField") | {"ground_truth": CLASSIFICATION}
    if not blind:
        fields |= {"prediction": CLASSIFICATION, "label_quality": f"{FIELDS}.FloatField"}
    return {
        "name": name,
        "media_type": "image",
        "sample_fields": fields,
        "default_classes": list(issues.classes),
        "info": {"made_by": "elr audit", "tags_to_give": list(TAGS)},
        "samples": samples,
    }


def _opinion(issues: LabelIssues, row: int) -> dict[str, Any]:
    """What the audit thinks of a label, for a FiftyOne sample."""
    sure = float(issues["suggested_probability"][row])
    return {
        "prediction": _classification(issues["suggested_label"][row], confidence=sure),
        "label_quality": float(issues["label_quality"][row]),
    }


def read_decisions(path: Path) -> list[Correction]:
    """Decisions from a corrections.csv, or from the JSON that Label Studio or FiftyOne exported."""
    return read_annotations(path) if path.suffix == ".json" else read_corrections(path)


def read_annotations(path: Path) -> list[Correction]:
    """Decisions from the JSON of either tool; examples that nobody decided about are left out.

    Label Studio: the last word is the choice that was submitted; a skipped task, several choices, or people who
    disagree are unsure. FiftyOne: a changed ``ground_truth``, or a tag on the sample: keep, accept or unsure.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    content = read_json(path)
    samples = content.get("samples") if isinstance(content, dict) else None
    read: Callable[[Any], Correction | None] = _from_task if samples is None else _from_sample
    items = content if samples is None else samples
    if not isinstance(items, list):
        raise ValueError(f"{path} is neither a list of Label Studio tasks nor a FiftyOne dataset")
    found = []
    for number, item in enumerate(items, 1):
        try:
            correction = read(item)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            lacks = f"no {error.args[0]}" if isinstance(error, KeyError) else "another form than expected"
            raise ValueError(
                f"item {number} of {path} has {lacks}: export what `elr audit --export` made, as full JSON"
            ) from None
        if correction is not None:
            found.append(correction)
    return unique(found, path)


def _from_task(task: Mapping[str, Any]) -> Correction | None:
    data = task["data"]
    id_, given = (_text(data[key], key) for key in ("example_id", "given_label"))
    suggested = data.get("suggested_label")  # rows drawn to check the audit have none
    if not task["annotations"]:
        return None
    valid = [annotation for annotation in task["annotations"] if not annotation.get("was_cancelled")]
    choices = {
        _text(choice, "choice")
        for annotation in valid
        for result in annotation["result"]
        if result["type"] == "choices"
        for choice in result["value"]["choices"]
    }
    if len(choices) != 1:
        return Correction(id_, given, "unsure", given)
    return decided(id_, given, suggested, choices.pop())


def _from_sample(sample: Mapping[str, Any]) -> Correction | None:
    id_, given = (_text(sample[key], key) for key in ("example_id", "given_label"))
    said_by_audit = sample.get("prediction")
    suggested = None if said_by_audit is None else _text(said_by_audit["label"], "prediction")
    truth = sample["ground_truth"]
    label = given if truth is None else _text(truth["label"], "ground_truth")
    tags = sample["tags"] or ()
    said = {chosen for tag, chosen in (("keep", given), ("accept", suggested)) if tag in tags and chosen is not None}
    said |= {label} - {given}
    nothing_to_accept = "accept" in tags and suggested is None
    if "unsure" in tags or nothing_to_accept or len(said) > 1:
        return Correction(id_, given, "unsure", given)
    return decided(id_, given, suggested, said.pop()) if said else None


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise KeyError(key)
    return value


def _picture(pictures: Pictures, id_: str) -> Path:
    if id_ not in pictures.paths:
        raise ValueError(f"example {id_!r} has no image file")
    return pictures.paths[id_]


def _classification(label: str, **more: Any) -> dict[str, Any]:
    return {"_cls": "Classification", "tags": [], "label": label, **more}
