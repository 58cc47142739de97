"""Clothing1M, mini-WebVision and ILSVRC12 in their published layouts: small trees with real pictures."""

import hashlib
import json
import shutil

import numpy as np
import pytest
import torch
from web_trees import CATEGORIES, SYNSETS, clothing1m, ilsvrc, webvision

from elr.cli import main
from elr.config import LATER, resolve
from elr.data import CropTransform, DataConfig, describe, from_description, load, load_unlabelled
from elr.data.images import decode
from elr.noise import NoiseConfig
from elr.report.metrics import top_k


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """All three below one folder, as --data.root wants them."""
    base = tmp_path_factory.mktemp("data")
    clothing1m(base / "clothing1m")
    webvision(base / "webvision")
    ilsvrc(base / "ilsvrc12", "list")
    return base


def small(source, root, **options):
    return DataConfig(source, root=str(root), image_size=32, **options)


def test_clothing1m_trains_on_noisy_keys_and_holds_out_clean_ones(root):
    data = load(small("clothing1m", root))
    assert data.classes == CATEGORIES
    assert [len(part) for part in (data.train, data.val, data.test)] == [30, 14, 14]
    assert data.clean_val
    assert data.train.y_true is None
    for part in (data.train, data.val, data.test):
        for row, key in enumerate(part.ids):
            shown = int(key.rpartition(",")[2].removesuffix(".jpg"))  # what the picture shows stands in its name
            noisy = "noisy_train" in key and int(key.partition("noisy_train")[2].partition(",")[0]) % 5 == 0
            assert part.y[row] == ((shown + 2) % 14 if noisy else shown)
            assert key.startswith("images/")
    image = data.val.inputs.fetch(torch.tensor([3]))[0].numpy()
    assert np.array_equal(image, decode(root / "clothing1m" / data.val.ids[3], 32))


def test_a_path_to_the_folder_is_as_good_as_the_name(root):
    for name, folder in (("clothing1m", "clothing1m"), ("mini_webvision", "webvision")):
        by_name, by_path = load(small(name, root)), load(small(str(root / folder), root))
        assert by_path.name == by_name.name == name
        assert np.array_equal(by_path.train.ids, by_name.train.ids)


def test_noise_on_top_makes_validation_noisy(root):
    assert not load(small("clothing1m", root), NoiseConfig("symmetric", 0.5)).clean_val


def test_mini_webvision_is_the_google_part_of_the_first_fifty_classes(root):
    data = load(small("mini_webvision", root, val_fraction=0))
    assert data.classes == SYNSETS[:50]
    assert (len(data.train), data.val, len(data.test)) == (100, None, 50)
    assert data.train.ids[:3].tolist() == ["google/q0001/0.jpg", "google/q0001/1.jpg", "google/q0002/0.jpg"]
    assert np.array_equal(data.train.y, np.repeat(np.arange(50), 2))
    assert np.array_equal(data.test.y, np.arange(50))
    assert not data.clean_val


@pytest.mark.parametrize(
    ("google", "held_out"), [("train_images_256", "val_images"), ("google_resized_256", "val_images_256")]
)
def test_other_releases_of_webvision_are_found(tmp_path, google, held_out):
    webvision(tmp_path, google=google, held_out=held_out)
    assert len(load(small("mini_webvision", tmp_path, val_fraction=0)).train) == 100


def test_networks_see_the_papers_crops():
    """Line 1142 of the paper: anywhere in training, and mirrored half of the time; the centre otherwise."""
    place = torch.arange(256, dtype=torch.uint8)  # the first channel counts rows, the second one columns
    x = torch.stack([place[:, None].expand(256, 256), place.expand(256, 256)]).expand(300, 2, 256, 256).contiguous()
    ids = torch.arange(300)
    for size in (224, 227):
        transform = CropTransform((0.0, 0.0), (1 / 255, 1 / 255), flip=True, size=size)
        first = (256 - size) // 2
        centre = x[:, :, first : first + size, first : first + size].float()
        assert torch.allclose(transform(x, ids, None), centre, atol=1e-3)
        seen = transform(x, ids, 7).round()
        assert seen.shape == (300, 2, size, size)
        flipped = seen[:, 1, 0, 0] > seen[:, 1, 0, -1]
        assert 100 < flipped.sum() < 200
        seen[flipped] = seen[flipped].flip(-1)
        tops, lefts = seen[:, 0, 0, 0], seen[:, 1, 0, 0]
        whole = torch.arange(size)
        assert torch.equal(seen[:, 0], (tops[:, None] + whole)[:, :, None].expand_as(seen[:, 0]))
        assert torch.equal(seen[:, 1], (lefts[:, None] + whole)[:, None].expand_as(seen[:, 1]))
        for corner in (tops, lefts):
            assert sorted(set(corner.tolist())) == list(range(256 - size + 1))  # every place that there is
        assert from_description(json.loads(json.dumps(describe(transform)))) == transform


def test_published_sources_have_the_authors_transforms(root):
    whole = {"clothing1m": 224, "mini_webvision": 227}
    constants = {
        "clothing1m": ((0.6959, 0.6537, 0.6371), (0.3113, 0.3192, 0.3214)),
        "mini_webvision": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    }
    for name, size in whole.items():
        data = load(DataConfig(name, root=str(root)))
        assert data.train.inputs.shape == (3, 256, 256)
        assert data.shape == (3, size, size)
        assert data.transform == CropTransform(*constants[name], flip=True, size=size)
        plain = load(DataConfig(name, root=str(root), augment=False)).transform
        raw = data.train.inputs.fetch(torch.arange(2))
        assert torch.equal(plain(raw, torch.arange(2), 5), plain(raw, torch.arange(2), None))


def test_a_strong_view_has_the_size_of_the_others(root):
    data = load(small("clothing1m", root))
    raw, ids = data.train.inputs.fetch(torch.arange(3)), torch.arange(3)
    strong = data.transform(raw, ids, 1, strong=True)
    assert strong.shape == (3, 3, 28, 28)
    assert not torch.equal(strong, data.transform(raw, ids, 1))
    with pytest.raises(ValueError, match="cannot crop 28 pixels out of an image of 20 x 20"):
        data.transform(raw[..., :20, :20], ids, 1)


@pytest.mark.parametrize("layout", ["sorted", "list", "devkit"])
def test_ilsvrc_is_matched_by_synset_in_every_layout(root, tmp_path, layout):
    ilsvrc(tmp_path / "ilsvrc12", layout)
    if layout == "list":
        shutil.copy(root / "webvision" / "info" / "synsets.txt", tmp_path / "ilsvrc12")
    classes = SYNSETS[:50]
    by_name = load(small("ilsvrc12", tmp_path, val_fraction=0), classes=classes)
    by_path = load(small(str(tmp_path / "ilsvrc12"), root, val_fraction=0), classes=classes)
    for data in (by_name, by_path):
        assert len(data.test) == 50
        numbers = [int(name.rpartition("_")[2].removesuffix(".JPEG")) for name in data.test.ids]
        assert data.test.y.tolist() == [60 - number for number in numbers]  # the tree counts down


def test_a_list_of_ilsvrc_is_read_with_webvisions_synsets(root):
    data = load(small("ilsvrc12", root, val_fraction=0), classes=SYNSETS[:50])
    assert sorted(data.test.y) == list(range(50))


def test_ilsvrc_is_there_to_be_tested_on_only(root):
    with pytest.raises(ValueError, match="ilsvrc12 is a test set: use it as `elr evaluate RUN ilsvrc12`"):
        load(small("ilsvrc12", root))
    inputs, ids, _ = load_unlabelled(small("ilsvrc12", root))
    assert (len(inputs), len(ids)) == (60, 60)


def test_a_folder_of_synsets_is_still_trained_on_like_any_other(tmp_path):
    ilsvrc(tmp_path, "sorted")
    data = load(small(str(tmp_path / "val"), tmp_path, val_fraction=0))
    assert (data.name, data.num_classes, data.test) == ("val", 60, None)


def gone(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


MISSING = [
    ("clothing1m", "clothing1m/images", "lacks images/;"),
    ("clothing1m", "clothing1m/clean_val_key_list.txt", "lacks clean_val_key_list.txt;"),
    ("clothing1m", "clothing1m", "lacks category_names_eng.txt, noisy_train_key_list.txt, .*images/;"),
    ("mini_webvision", "webvision/google", "lacks google/;"),
    ("mini_webvision", "webvision/val_images_256", "lacks val_images_256/ or val_images/;"),
    ("mini_webvision", "webvision/info", "lacks info/train_filelist_google.txt, .*info/synsets.txt;"),
    ("ilsvrc12", "ilsvrc12/val", "lacks ILSVRC2012_val_.*JPEG or a folder a synset"),
    ("ilsvrc12", "ilsvrc12/val.txt", "no ILSVRC2012_validation_ground_truth.txt .with meta.mat. and no val.txt"),
    ("ilsvrc12", "webvision/info/synsets.txt", "val.txt needs a synsets.txt beside it"),
]


@pytest.mark.parametrize(("source", "part", "message"), MISSING)
def test_what_is_missing_is_said_in_one_line(root, tmp_path, source, part, message):
    shutil.copytree(root, tmp_path / "all")
    gone(tmp_path / "all" / part)
    with pytest.raises(FileNotFoundError, match=message) as caught:
        load(small(source, tmp_path / "all"), classes=SYNSETS[:50] if source == "ilsvrc12" else None)
    assert "\n" not in str(caught.value)


def test_ground_truth_without_the_devkits_names_is_refused(tmp_path):
    ilsvrc(tmp_path, "devkit")
    (tmp_path / "ILSVRC2012_devkit_t12" / "data" / "meta.mat").unlink()
    with pytest.raises(FileNotFoundError, match=r"numbers classes by meta\.mat of the devkit"):
        load(small("ilsvrc12", tmp_path), classes=SYNSETS[:50])


@pytest.mark.parametrize("source", ["clothing1m", "mini_webvision", "ilsvrc12"])
def test_without_the_data_the_command_ends_with_two_and_no_number(source, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("ELR_DATA", raising=False)
    assert main(["train", source, "--out", str(tmp_path / "run")]) == 2
    assert main(["train", source, "--data.root", str(tmp_path / "nowhere"), "--out", str(tmp_path / "run")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert "not found: set --data.root DIR or $ELR_DATA" in first
    assert f"not found: no folder {tmp_path / 'nowhere'}" in second
    assert not (tmp_path / "run").exists()


def replaced(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


BROKEN = [
    ("clothing1m", "clothing1m/noisy_label_kv.txt", ".jpg 0", ".jpg 14", "line .* not a name and a label below 14"),
    ("clothing1m", "clothing1m/noisy_label_kv.txt", ".jpg 0", ".jpg", "line .* not a name and a label below 14"),
    ("clothing1m", "clothing1m/clean_label_kv.txt", "clean_val3", "other", "clean_val3,3.jpg has no label in clean_l"),
    ("clothing1m", "clothing1m/clean_test_key_list.txt", "clean_test3", "clean_val3", "twice, for val and test"),
    ("mini_webvision", "webvision/info/val_filelist.txt", "jpg 3", "jpg three", "line 4 of .*val_filelist.txt"),
    ("mini_webvision", "webvision/info/synsets.txt", "", "\x00", None),
    ("mini_webvision", "webvision/info/train_filelist_google.txt", "/0.jpg", "/9.jpg", "cannot decode .*q0001/9.jpg"),
    ("ilsvrc12", "ilsvrc12/val.txt", "JPEG 59", "JPEG 60", "line 1 of .*val.txt .* label below 60"),
]


@pytest.mark.parametrize(("source", "file", "old", "new", "message"), BROKEN)
def test_broken_lists_stop_by_name_and_line(root, tmp_path, source, file, old, new, message):
    shutil.copytree(root, tmp_path / "all")
    if message is None:
        (tmp_path / "all" / file).write_text("n01440764 tench\n")
        message = "synsets.txt is damaged: 1 of 1,000 synsets"
    else:
        replaced(tmp_path / "all" / file, old, new)
    with pytest.raises(ValueError, match=message) as caught:
        load(small(source, tmp_path / "all"), classes=SYNSETS[:50] if source == "ilsvrc12" else None)
    assert "\n" not in str(caught.value)


def test_broken_pictures_stop_or_are_skipped_and_listed(root, tmp_path):
    shutil.copytree(root / "clothing1m", tmp_path / "clothing1m")
    keys = (tmp_path / "clothing1m" / "noisy_train_key_list.txt").read_text().split()
    whole = tmp_path / "clothing1m" / keys[4]
    whole.write_bytes(whole.read_bytes()[:700])
    (tmp_path / "clothing1m" / keys[7]).unlink()
    with pytest.raises(ValueError, match=rf"cannot decode .*{keys[4]}.*and 1 more.*data.on_bad_file skip"):
        load(small("clothing1m", tmp_path))
    data = load(small("clothing1m", tmp_path, on_bad_file="skip"))
    assert (len(data.train), len(data.skipped)) == (28, 2)
    assert keys[4] not in data.train.ids


def test_a_list_that_is_no_text_and_a_broken_devkit_get_one_line(root, tmp_path):
    shutil.copytree(root / "clothing1m", tmp_path / "clothing1m")
    (tmp_path / "clothing1m" / "category_names_eng.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"category_names_eng\.txt is damaged: it is no text"):
        load(small("clothing1m", tmp_path))
    ilsvrc(tmp_path / "ilsvrc12", "devkit")
    meta = tmp_path / "ilsvrc12" / "ILSVRC2012_devkit_t12" / "data" / "meta.mat"
    meta.write_bytes(meta.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"cannot read .*meta\.mat"):
        load(small("ilsvrc12", tmp_path), classes=SYNSETS[:50])


SETTINGS = "--data.image_size 32 --model small_cnn --model.width 4 --optim.batch_size 8 --epochs 2 --quiet".split()  # noqa: SIM905


def test_a_run_on_clothing1m_says_that_validation_is_clean(root, tmp_path, capsys):
    words = ["clothing1m", "--data.root", str(root), "--data.balanced_batches", "3", *SETTINGS]
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert "validation accuracy, clean labels" in printed
    assert "clean validation labels" in printed
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["chosen_by"] == "clean validation labels"
    assert summary["selected_epoch"] in (1, 2)
    assert summary["test_accuracy"] <= summary["test_top5"] <= 1
    assert summary["selected_test_top5"] is not None
    assert json.loads((tmp_path / "run" / "data.json").read_text())["val_labels"] == "clean"
    records = [json.loads(line) for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    assert [record["gradients"] for record in records] == [pytest.approx(3 * 8 / 30)] * 2
    assert main(["train", *words, "--out", str(tmp_path / "run"), "--resume", "--data.balanced_batches", "4"]) == 2
    assert "its data.balanced_batches is 3" in capsys.readouterr().err
    assert main(["train", *words, "--dry-run"]) == 0
    assert "steps             3 a pass" in capsys.readouterr().out


@pytest.mark.parametrize("method", ["elr", "elr_plus"])
def test_a_balanced_run_that_was_cut_is_resumed_bit_for_bit(root, tmp_path, method):
    words = ["clothing1m", "--data.root", str(root), "--data.balanced_batches", "3", "--method", method, *SETTINGS]
    for name in ("whole", "cut"):
        assert main(["train", *words, "--out", str(tmp_path / name)]) == 0
    cut = tmp_path / "cut"
    for file in ("summary.json", "model.safetensors", "selected.safetensors"):
        (cut / file).unlink()
    newest = max((cut / "checkpoint").iterdir(), key=lambda path: path.name)
    newest.unlink()  # back to the end of the first epoch
    assert main(["train", *words, "--out", str(cut), "--resume"]) == 0
    for file in ("model.safetensors", "records.jsonl"):
        assert (cut / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_a_run_on_webvision_is_chosen_by_nothing_and_tested_on_ilsvrc_too(root, tmp_path, capsys):
    words = ["mini_webvision", "--data.root", str(root), "--data.val_fraction", "0", *SETTINGS]
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 0
    assert "nothing: the last epoch" in capsys.readouterr().out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["chosen_by"] == "nothing: the last epoch is the result"
    assert summary["selected_epoch"] is None
    results = {}
    for name, more in (("webvision", []), ("ilsvrc12", ["ilsvrc12"]), ("path", [str(root / "ilsvrc12")])):
        assert main(["evaluate", str(tmp_path / "run"), *more, "--json"]) == 0
        results[name] = json.loads(capsys.readouterr().out)
        assert results[name]["examples"] == 50
    assert results["webvision"]["accuracy"] == summary["test_accuracy"]
    assert results["webvision"]["top5_accuracy"] == summary["test_top5"]
    assert results["path"] == results["ilsvrc12"]
    assert main(["evaluate", str(tmp_path / "run"), "ilsvrc12"]) == 0
    assert "top-5 accuracy " in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path / "run"), str(root / "nowhere")]) == 2


def test_a_run_without_synsets_is_not_tested_on_ilsvrc(root):
    with pytest.raises(ValueError, match="no image of 14 of the run's 14 classes, first 'T-Shirt'"):
        load(small("ilsvrc12", root), classes=CATEGORIES)


def test_top_five_is_counted_in_the_order_of_the_predictions():
    rng = np.random.default_rng(0)
    p, labels = rng.random((200, 12)).astype(np.float32), rng.integers(0, 12, 200)
    p[::3] = np.round(p[::3], 1)  # ties
    order = np.argsort(-p, axis=1, kind="stable")
    for k in (1, 3, 5, 12):
        assert top_k(p, labels, k) == np.mean([label in row[:k] for label, row in zip(labels, order, strict=True)])
    assert top_k(p, labels, 1) == np.mean(p.argmax(axis=1) == labels)
    assert top_k(np.full((4, 10), 0.1), np.array([0, 4, 5, 9])) == 0.5  # knowing nothing is not being right


def test_few_classes_have_no_top_five(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 5
    np.savez(tmp_path / "five.npz", x=x, y=y, x_test=x, y_test=y)
    assert main(["train", str(tmp_path / "five.npz"), "--model", "linear", "--epochs", "1", "--quiet", "--out",
                 str(tmp_path / "run")]) == 0  # fmt: skip
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["test_top5"] is None


def test_options_that_came_later_leave_the_hash_of_a_run_alone():
    config = resolve({"data": "digits", "method": "ce"})
    before = {key: value for key, value in config.identity().items() if key not in LATER}
    assert {"data.balanced_batches", "optim.turn"} <= LATER & config.identity().keys()
    assert config.digest() == hashlib.sha256(json.dumps(before, sort_keys=True).encode()).hexdigest()
    assert resolve({"data": "digits", "method": "ce", "data.balanced_batches": 5}).digest() != config.digest()


def test_the_doctor_says_what_is_missing(root, tmp_path, capsys):
    shutil.copytree(root, tmp_path / "all")
    (tmp_path / "all" / "clothing1m" / "clean_label_kv.txt").unlink()
    assert main(["doctor", "--root", str(tmp_path / "all")]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert "lacks clean_label_kv.txt" in lines["clothing1m"]
    assert lines["mini_webvision"] == f"found in {tmp_path / 'all' / 'webvision'}"
    assert lines["ilsvrc12"] == f"found in {tmp_path / 'all' / 'ilsvrc12'}"
