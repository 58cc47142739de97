"""To Label Studio and FiftyOne and back, with names that are hard on file formats."""

import json
import urllib.parse
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from elr.audit.corrections import Correction
from elr.audit.exchange import (
    LOCAL,
    Pictures,
    export,
    labelling_configuration,
    read_annotations,
    read_decisions,
    to_fiftyone,
    to_label_studio,
)

NAMES = ("猫, 小", 'كلب "كبير" & <b>', "🦜\nparrot\t'$image'")


@pytest.fixture
def audit(made):
    return made([0.1, 0.2, 0.05, 0.9, 0.3], classes=NAMES)


@pytest.fixture
def pictures(audit, tmp_path):
    return Pictures({id_: tmp_path / "photos" / f"{id_} 100%?.png" for id_ in audit["id"]})


def annotated(task, *choices, cancelled=False):
    """A task as Label Studio exports it after a person chose; several choices are of several people."""
    shown = task["predictions"][0]["result"][0]["to_name"]
    results = [
        {"from_name": "label", "to_name": shown, "type": "choices", "value": {"choices": [choice]}}
        for choice in choices
    ]
    annotations = [{"id": k, "result": [r], "was_cancelled": cancelled} for k, r in enumerate(results)]
    return {
        **task,
        "id": 7,
        "annotations": annotations or ([{"result": [], "was_cancelled": True}] if cancelled else []),
    }


def saved(tmp_path, content):
    path = tmp_path / "exported.json"
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return path


# Label Studio


def test_tasks_say_what_is_there_and_what_is_suggested(audit, pictures):
    tasks = to_label_studio(audit, audit.worst(), pictures)
    assert [task["data"]["example_id"] for task in tasks] == ["x2", "x0", "x1", "x4"]
    task = tasks[0]
    assert task["data"]["given_label"] == NAMES[2]
    assert task["data"]["label_quality"] == 0.05
    (prediction,) = task["predictions"]
    assert prediction["score"] == pytest.approx(0.95 / 2)
    assert prediction["result"][0]["value"] == {"choices": [NAMES[0]]}
    place = urllib.parse.unquote(task["data"]["image"].removeprefix(LOCAL))
    assert place == "photos/x2 100%?.png"
    assert "?" not in task["data"]["image"].removeprefix(LOCAL)


def test_results_have_ids_of_their_own(audit):
    tasks = to_label_studio(audit, np.arange(5))
    ids = {task["predictions"][0]["result"][0]["id"] for task in tasks}
    assert len(ids) == 5


@pytest.mark.parametrize("images", [True, False])
def test_the_configuration_is_xml_with_every_class_and_fits_the_tasks(audit, pictures, images):
    root = ElementTree.fromstring(labelling_configuration(NAMES, images=images))
    assert [choice.get("value") for choice in root.iter("Choice")] == list(NAMES)
    choices = root.find("Choices")
    task = to_label_studio(audit, np.array([0]), pictures if images else None)[0]
    result = task["predictions"][0]["result"][0]
    assert (choices.get("name"), choices.get("toName")) == (result["from_name"], result["to_name"])
    shown = next(element for element in root if element.get("name") == result["to_name"])
    assert shown.get("value").removeprefix("$") in task["data"]


def test_rows_drawn_to_check_the_audit_do_not_tell_what_it_thinks(audit, pictures, tmp_path):
    tasks = to_label_studio(audit, np.arange(5), pictures, blind=True)
    assert all(set(task) == {"data"} for task in tasks)
    assert all(set(task["data"]) == {"example_id", "given_label", "image"} for task in tasks)
    assert "suggested" not in labelling_configuration(NAMES, images=True, blind=True)
    (sample, *_) = to_fiftyone(audit, np.arange(5), pictures, "drawn", blind=True)["samples"]
    assert not {"prediction", "label_quality"} & set(sample)
    # And the answers come back, as right or wrong.
    given = audit["given_label"]
    choice = {"type": "choices", "value": {"choices": [audit["suggested_label"][1]]}}
    kept = {"type": "choices", "value": {"choices": [given[0]]}}
    content = [{**task, "annotations": [{"result": [c]}]} for task, c in zip(tasks, (kept, choice), strict=False)]
    assert [c.wrong for c in read_annotations(saved(tmp_path, content))] == [False, True]
    for tags, wrong in ((["keep"], False), (["accept"], None)):  # there is nothing to accept
        (found,) = read_annotations(saved(tmp_path, {"samples": [{**sample, "tags": tags}]}))
        assert found.wrong is wrong


def test_pictures_that_are_gone_are_left_out_and_the_root_is_above_them_all(audit, tmp_path):
    places = [tmp_path / "a" / "x.png", tmp_path / "lists" / ".." / "b" / "y.png"]
    for name in ("a", "b", "lists"):
        (tmp_path / name).mkdir()
    for place in places:
        place.write_bytes(b"picture")
    paths = dict(zip(audit["id"], [*places, tmp_path / "b" / "gone.png"], strict=False))
    pictures = Pictures(paths)
    rows = pictures.there(audit, np.array([2, 1, 4]))
    assert rows.tolist() == [1]  # of the fifth nothing is known
    assert pictures.root == tmp_path
    (task,) = to_label_studio(audit, rows, pictures)
    assert task["data"]["image"] == f"{LOCAL}{tmp_path.name}/b/y.png"
    with pytest.raises(FileNotFoundError, match=r"gone\.png"):
        pictures.there(audit, np.array([2]))


def test_a_class_that_xml_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="holds a control character"):
        labelling_configuration(["a", "b\x00"], images=False)


def test_what_people_chose_comes_back(audit, tmp_path):
    tasks = to_label_studio(audit, np.arange(5))
    given, suggested = audit["given_label"], audit["suggested_label"]
    content = [
        annotated(tasks[0], given[0]),
        annotated(tasks[1], suggested[1]),
        annotated(tasks[2], NAMES[1]),  # given the third, suggested the first
        annotated(tasks[3], cancelled=True),
        annotated(tasks[4]),
    ]
    assert read_annotations(saved(tmp_path, content)) == [
        Correction("x0", given[0], "keep", given[0]),
        Correction("x1", given[1], "accept", suggested[1]),
        Correction("x2", given[2], "change", NAMES[1]),
        Correction("x3", given[3], "unsure", given[3]),
    ]


def test_people_who_disagree_are_unsure_and_those_who_agree_are_one(audit, tmp_path):
    tasks = to_label_studio(audit, np.arange(2))
    content = [annotated(tasks[0], NAMES[0], NAMES[1]), annotated(tasks[1], NAMES[2], NAMES[2])]
    assert [c.decision for c in read_annotations(saved(tmp_path, content))] == ["unsure", "accept"]


# FiftyOne


def test_samples_have_truth_prediction_and_quality(audit, pictures):
    dataset = to_fiftyone(audit, audit.worst(), pictures, "mine")
    assert set(dataset) >= {"name", "media_type", "sample_fields", "samples"}
    sample = dataset["samples"][0]
    assert sample["ground_truth"] == {"_cls": "Classification", "tags": [], "label": NAMES[2]}
    assert sample["prediction"]["confidence"] == pytest.approx(0.95 / 2)
    assert sample["label_quality"] == 0.05
    assert Path(sample["filepath"]).is_absolute()
    assert set(dataset["sample_fields"]) <= set(sample)


def test_tags_and_changed_truth_come_back(audit, pictures, tmp_path):
    dataset = to_fiftyone(audit, np.arange(5), pictures, "mine")
    samples = dataset["samples"]
    given, suggested = audit["given_label"], audit["suggested_label"]
    samples[0]["tags"] = ["keep", "my own"]
    samples[1]["tags"] = ["accept"]
    samples[2]["ground_truth"]["label"] = NAMES[1]
    samples[3]["tags"] = ["unsure"]
    samples[3]["_id"] = {"$oid": "64b0c3a1e5f6a7b8c9d0e1f2"}  # as FiftyOne adds
    assert read_annotations(saved(tmp_path, dataset)) == [
        Correction("x0", given[0], "keep", given[0]),
        Correction("x1", given[1], "accept", suggested[1]),
        Correction("x2", given[2], "change", NAMES[1]),
        Correction("x3", given[3], "unsure", given[3]),
    ]


def test_tags_that_contradict_each_other_or_the_truth_are_unsure(audit, pictures, tmp_path):
    dataset = to_fiftyone(audit, np.arange(3), pictures, "mine")
    dataset["samples"][0]["tags"] = ["keep", "accept"]
    dataset["samples"][1]["tags"] = ["keep"]
    dataset["samples"][1]["ground_truth"]["label"] = NAMES[2]
    dataset["samples"][2]["tags"] = ["accept"]
    dataset["samples"][2]["ground_truth"]["label"] = NAMES[0]  # which is the suggestion: no contradiction
    assert [c.decision for c in read_annotations(saved(tmp_path, dataset))] == ["unsure", "unsure", "accept"]


def test_nothing_to_see_nothing_to_export(audit, tmp_path):
    with pytest.raises(ValueError, match="these examples are not image files"):
        export("fiftyone", audit, np.arange(2), tmp_path / "f.json")
    with pytest.raises(ValueError, match="example 'x0' has no image file"):
        export("fiftyone", audit, np.arange(2), tmp_path / "f.json", Pictures({}))
    assert list(tmp_path.iterdir()) == []


# Files


@pytest.mark.parametrize("kind", ["label-studio", "fiftyone"])
def test_what_was_exported_and_not_looked_at_is_no_decision(kind, audit, pictures, tmp_path):
    files = export(kind, audit, np.arange(5), tmp_path / "deep" / "tasks.json", pictures)
    assert all(path.is_file() for path in files)
    content = json.loads(files[0].read_text())
    if kind == "label-studio":
        content = [{**task, "annotations": []} for task in content]
    assert read_decisions(saved(tmp_path, content)) == []


@pytest.mark.parametrize("name", ["tasks.json", "tasks.xml"])
def test_existing_files_are_not_replaced(audit, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(FileExistsError, match=f"{name} exists already"):
        export("label-studio", audit, np.arange(5), tmp_path / "tasks.json")
    assert (tmp_path / name).read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [("labelbox", "a.json", "cannot export to 'labelbox'"), ("fiftyone", "a.csv", "must end in .json")],
)
def test_an_export_that_cannot_be_is_refused(audit, tmp_path, kind, name, message):
    with pytest.raises(ValueError, match=message):
        export(kind, audit, np.arange(5), tmp_path / name)


TASK = {"data": {"example_id": "1", "given_label": "a", "suggested_label": "b"}, "annotations": []}
SAMPLE = {
    "example_id": "1",
    "given_label": "a",
    "prediction": {"label": "b"},
    "ground_truth": {"label": "a"},
    "tags": [],
}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{k: v for k, v in TASK.items() if k != "annotations"}], "item 1 of .* has no annotations"),
        ([TASK, {"image": "x.png", "label": "a"}], "item 2 of .* has no data"),  # JSON_MIN
        ([{**TASK, "data": {"given_label": "a"}}], "item 1 of .* has no example_id"),
        ([{**TASK, "data": {**TASK["data"], "given_label": 3}}], "item 1 of .* has no given_label"),
        ([{**TASK, "annotations": [{"result": [{"type": "choices", "value": {}}]}]}], "item 1 of .* has no choices"),
        (["text"], "item 1 of .* has another form than expected"),
        ({"samples": [{**SAMPLE, "prediction": {}}]}, "item 1 of .* has no label"),
        ({"samples": [SAMPLE, {"filepath": "x.png"}]}, "item 2 of .* has no example_id"),
        ({"samples": 3}, "neither a list of Label Studio tasks nor a FiftyOne dataset"),
        ({"version": 3}, "neither a list of Label Studio tasks nor a FiftyOne dataset"),
        (3, "neither a list of Label Studio tasks nor a FiftyOne dataset"),
    ],
)
def test_what_is_missing_is_named(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_annotations(saved(tmp_path, content))


def test_two_tasks_about_one_example_must_agree(audit, tmp_path):
    task = to_label_studio(audit, np.array([0]))[0]
    same = saved(tmp_path, [annotated(task, NAMES[0]), annotated(task, NAMES[0])])
    assert len(read_annotations(same)) == 1
    other = saved(tmp_path, [annotated(task, NAMES[0]), annotated(task, NAMES[1])])
    with pytest.raises(ValueError, match="decides twice about id 'x0'"):
        read_annotations(other)


def test_broken_json_is_one_line(tmp_path):
    (tmp_path / "broken.json").write_text('[{"data"')
    with pytest.raises(ValueError, match=r"broken.json is not valid JSON"):
        read_annotations(tmp_path / "broken.json")
    with pytest.raises(FileNotFoundError, match=r"nowhere.json does not exist"):
        read_annotations(tmp_path / "nowhere.json")
