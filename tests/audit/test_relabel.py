"""Decisions about labels become a label file that training reads; what does not fit changes nothing."""

import csv
import shlex
from pathlib import Path

import pytest
from PIL import Image

import elr
from elr.audit.corrections import Correction, read_corrections, write_corrections
from elr.audit.relabel import Labels, relabel, run_labels, write_labels
from elr.cli import main
from elr.data import DataConfig, load
from elr.data.labels import read_labels

HOSTILE = ("猫, 小", 'كلب "كبير"', "🦜\nparrot")  # a comma, quotes, a line break, three scripts
NOW = Labels(["1", "2", "3", "4"], ["cat", "dog", "cat", "cat"], ("cat", "dog"))


def write(path: Path, *rows: tuple[str, ...]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "given_label", "decision", "label"), *rows])
    return path


# corrections.csv


def test_corrections_come_back_as_they_were_in_any_script(tmp_path):
    told = [
        Correction("a,1", HOSTILE[0], "keep", HOSTILE[0]),
        Correction('b"2', HOSTILE[1], "accept", HOSTILE[2]),
        Correction("c\n3", HOSTILE[2], "change", HOSTILE[0]),
        Correction("ü 4", HOSTILE[0], "unsure", HOSTILE[0]),
    ]
    write_corrections(tmp_path / "corrections.csv", told)
    assert read_corrections(tmp_path / "corrections.csv") == told
    assert [c.wrong for c in told] == [False, True, True, None]


def test_a_file_of_the_review_page_is_read(tmp_path):
    # As script.js writes it: line feeds, quotes where needed; saved by a spreadsheet it may begin with a mark.
    text = '\ufeffid,given_label,decision,label\n1,cat,accept,dog\n2,dog,keep,dog\n"3",cat,unsure,cat\n'
    (tmp_path / "corrections.csv").write_text(text, encoding="utf-8")
    found = read_corrections(tmp_path / "corrections.csv")
    assert [(c.id, c.decision, c.label) for c in found] == [
        ("1", "accept", "dog"), ("2", "keep", "dog"), ("3", "unsure", "cat"),
    ]  # fmt: skip


def test_a_change_to_the_same_label_is_none_and_the_same_decision_twice_is_one(tmp_path):
    row = ("1", "cat", "change", "cat")
    assert read_corrections(write(tmp_path / "c.csv", row, row)) == [Correction("1", "cat", "keep", "cat")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("1", "cat", "perhaps", "dog"), "decision 'perhaps' in row 1 of .* is none of keep, accept, change, unsure"),
        (("1", "cat", "change", ""), "row 1 of .* says change but has no label"),
        (("1", "cat", "keep", "dog"), "row 1 of .* says keep but has another label, 'dog'"),
        (("1", "cat", "keep"), "line 2 of .* has 3 values, the header 4"),
    ],
)
def test_a_row_that_makes_no_sense_is_named(tmp_path, row, message):
    with pytest.raises(ValueError, match=message):
        read_corrections(write(tmp_path / "c.csv", row))


def test_two_different_decisions_about_one_label_are_refused(tmp_path):
    path = write(tmp_path / "c.csv", ("1", "cat", "accept", "dog"), ("1", "cat", "keep", "cat"))
    with pytest.raises(ValueError, match="decides twice about id '1', and not the same"):
        read_corrections(path)


def test_another_table_is_not_taken_for_corrections(tmp_path):
    (tmp_path / "c.csv").write_text("id,label\n1,cat\n")
    with pytest.raises(ValueError, match="has no column 'given_label'; a corrections file has id, given_label"):
        read_corrections(tmp_path / "c.csv")


# Relabelling


def test_decisions_are_applied_and_counted():
    told = [
        Correction("1", "cat", "accept", "dog"),
        Correction("2", "dog", "keep", "dog"),
        Correction("3", "cat", "change", "dog"),
        Correction("4", "cat", "unsure", "cat"),
    ]
    done = relabel(NOW, told)
    assert done.labels == ["dog", "dog", "dog", "cat"]
    assert done.decisions == {"keep": 1, "accept": 1, "change": 1, "unsure": 1}
    assert done.pairs == [("cat", "dog", 2)]
    assert (done.before, done.after) == ({"cat": 3, "dog": 1}, {"cat": 1, "dog": 3})
    assert done.changed == 2


def test_without_decisions_all_stays():
    done = relabel(NOW, [])
    assert done.labels == NOW.labels
    assert done.changed == 0


def test_an_order_of_decisions_does_not_matter():
    told = [Correction("1", "cat", "accept", "dog"), Correction("3", "cat", "keep", "cat")]
    assert relabel(NOW, told) == relabel(NOW, told[::-1])


@pytest.mark.parametrize(
    ("correction", "message"),
    [
        (Correction("9", "cat", "accept", "dog"), "1 corrections are of ids that the data do not have, first '9'"),
        (Correction("2", "cat", "accept", "dog"), "id '2' was 'cat' when it was looked at, and is 'dog'"),
        (Correction("1", "cat", "change", "cow"), "label 'cow' is outside the 2 classes: cat, dog; allow it with"),
    ],
)
def test_what_does_not_fit_the_labels_of_now_is_refused(correction, message):
    with pytest.raises(ValueError, match=message):
        relabel(NOW, [correction])


def test_a_new_class_is_taken_if_allowed():
    done = relabel(NOW, [Correction("1", "cat", "change", "cow")], new_classes=True)
    assert done.labels[0] == "cow"
    assert done.new == ["cow"]
    assert done.after == {"cat": 2, "dog": 1, "cow": 1}


def test_a_label_file_is_never_replaced(tmp_path):
    write_labels(tmp_path / "deep" / "l.csv", ["1"], ["cat"])
    with pytest.raises(FileExistsError, match=r"l.csv exists already; label files are not replaced"):
        write_labels(tmp_path / "deep" / "l.csv", ["1"], ["dog"])
    assert (tmp_path / "deep" / "l.csv").read_text() == "id,label\n1,cat\n"
    with pytest.raises(ValueError, match=r"a label file ends in \.csv"):
        write_labels(tmp_path / "l.txt", ["1"], ["dog"])


# From the shell


def command(*words, capsys):
    code = main(["relabel", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def test_labels_of_a_run_become_a_file_that_training_reads(run, tmp_path, capsys):
    now = run_labels(run)
    other = {label: now.classes[(k + 1) % 10] for k, label in enumerate(now.classes)}
    rows = [(now.ids[k], now.labels[k], "accept", other[now.labels[k]]) for k in range(50)]
    rows += [(now.ids[50], now.labels[50], "keep", now.labels[50]), (now.ids[51], now.labels[51], "unsure", "")]
    path = write(tmp_path / "corrections.csv", *rows)
    code, out, err = command(run, path, "--out", tmp_path / "labels-v2.csv", capsys=capsys)
    assert (code, err) == (0, "")
    assert "52 decisions: 1 kept, 50 accepted, 0 changed, 1 unsure" in out
    assert "50 of 1,437 labels are different" in out
    assert "train without --noise" in out
    clean = "--noise=none --noise.rate=0"
    again = f"elr train --config {run / 'config.toml'} {clean} --data.labels {tmp_path / 'labels-v2.csv'}"
    assert f"next: {again} --out runs/second" in out
    assert main([*shlex.split(again)[1:], "--epochs", "1", "--quiet", "--out", str(tmp_path / "second")]) == 0
    first, second = elr.Run(run).config, elr.Run(tmp_path / "second").config
    assert (second.model, second.method, second.optim) == (first.model, first.method, first.optim)
    assert second.noise.kind == "none"
    data = load(DataConfig("digits", labels=str(tmp_path / "labels-v2.csv"), val_fraction=0.0))
    wanted = dict(zip(now.ids, now.labels, strict=True)) | {id_: label for id_, _, decision, label in rows if label}
    found = dict(zip(map(str, data.train.ids.tolist()), (data.classes[k] for k in data.train.y), strict=True))
    assert found == wanted


@pytest.fixture
def photos(tmp_path):
    """Pictures of three classes with names that are hard on file formats."""
    names = ["猫, 小", 'كلب "كبير"', "🦜 parrot"]
    for k, name in enumerate(names):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for row in range(4):
            Image.new("RGB", (16, 16), (80 * k, row, 0)).save(tmp_path / "photos" / name / f"{row}.png")
    return tmp_path / "photos"


def test_a_folder_then_its_label_file_with_names_in_other_scripts(photos, tmp_path, capsys):
    cat, dog, parrot = sorted(path.name for path in photos.iterdir())
    path = write(tmp_path / "c.csv", (f"{cat}/0.png", cat, "accept", dog), (f"{parrot}/1.png", parrot, "change", cat))
    code, out, _ = command(photos, path, "--out", tmp_path / "v2.csv", capsys=capsys)
    assert code == 0
    ids, names = read_labels(tmp_path / "v2.csv", None)
    labels = dict(zip(ids.tolist(), names.tolist(), strict=True))
    assert len(labels) == 12
    assert (labels[f"{cat}/0.png"], labels[f"{parrot}/1.png"], labels[f"{dog}/0.png"]) == (dog, cat, dog)
    data = load(DataConfig(str(photos), labels=str(tmp_path / "v2.csv"), val_fraction=0.0))
    assert sorted(data.classes[k] for k in data.train.y) == sorted(labels.values())
    assert data.train.y_true is None  # what a person corrected is not wrong
    more = write(tmp_path / "d.csv", (f"{cat}/0.png", dog, "accept", cat))
    code, out, _ = command(tmp_path / "v2.csv", more, "--out", tmp_path / "v3.csv", capsys=capsys)
    assert code == 0
    assert "1 of 12 labels are different" in out
    assert "next: elr train DATA --data.labels" in out


def test_a_validation_part_of_the_data_is_in_the_file(photos, tmp_path, capsys):
    (photos.parent / "parts").mkdir()
    photos.rename(photos.parent / "parts" / "train")
    cat = "猫, 小"
    (photos.parent / "parts" / "val" / cat).mkdir(parents=True)
    Image.new("RGB", (16, 16)).save(photos.parent / "parts" / "val" / cat / "0.png")
    path = write(tmp_path / "c.csv", (f"val/{cat}/0.png", cat, "change", "🦜 parrot"))
    assert command(photos.parent / "parts", path, "--out", tmp_path / "v2.csv", capsys=capsys)[0] == 0
    data = load(DataConfig(str(photos.parent / "parts"), labels=str(tmp_path / "v2.csv")))
    assert [data.classes[k] for k in data.val.y] == ["🦜 parrot"]


def test_a_manifest_is_data_and_not_a_label_file(photos, tmp_path, capsys):
    names = sorted(str(path.relative_to(tmp_path)) for path in photos.rglob("*.png"))
    with open(tmp_path / "manifest.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "path", "label"), *((f"n{k}", n, "ab"[k % 2]) for k, n in enumerate(names))])
    path = write(tmp_path / "c.csv", ("n0", "a", "accept", "b"))
    assert command(tmp_path / "manifest.csv", path, "--out", tmp_path / "v2.csv", capsys=capsys)[0] == 0
    data = load(DataConfig(str(tmp_path / "manifest.csv"), labels=str(tmp_path / "v2.csv"), val_fraction=0.0))
    assert (data.train.y == 0).sum() == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("RUN c.csv --out c.csv", "c.csv exists already; label files are not replaced: choose another --out"),
        ("RUN c.csv --out new.txt --corrections d.csv", "a label file ends in .csv"),
        ("RUN c.csv --out new.csv --new-classes --corrections c.csv", "c.csv exists already; choose another file"),
        ("RUN c.csv --out new.csv", "label 'cow' is outside the 10 classes"),
        ("RUN nowhere.csv --out new.csv", "nowhere.csv does not exist"),
        ("RUN c.csv --out new.csv --data.root here", "is a run and knows its labels; leave --data.root out"),
        ("RUN c.csv", "the following arguments are required: --out"),
        ("nowhere c.csv --out new.csv", "no data source and no path 'nowhere'"),
        ("bare c.csv --out new.csv", "bare holds no images"),
        ("RUN c.csv --out new.csv --new-clases", "unknown flag '--new-clases'; did you mean '--new-classes'?"),
        ("digits c.csv --out new.csv", "corrections are of other labels than the data have now"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(trained, tmp_path, capsys, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    now = run_labels(trained)
    row = next(k for k, label in enumerate(now.labels) if label != true_label(trained, now.ids[k]))
    write(tmp_path / "c.csv", (now.ids[row], now.labels[row], "change", "cow"))
    (tmp_path / "bare").mkdir()
    before = sorted(tmp_path.iterdir())
    code, out, err = command(*words.replace("RUN", str(trained)).split(), capsys=capsys)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("elr: ")
    assert message in err
    assert sorted(tmp_path.iterdir()) == before


def true_label(run, id_):
    from elr.noise import NoiseManifest

    noise = NoiseManifest.load(run)
    return noise.classes[noise.old[noise.ids.tolist().index(int(id_))]]


def test_a_run_without_rows_says_what_to_give_instead(run, tmp_path, capsys):
    (run / "rows.csv").unlink()
    path = write(tmp_path / "c.csv", ("1", "1", "keep", "1"))
    code, _, err = command(run, path, "--out", tmp_path / "v2.csv", capsys=capsys)
    assert code == 2
    assert "does not say which labels it had (rows.csv): give the data it was trained on" in err
