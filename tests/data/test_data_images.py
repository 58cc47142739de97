import csv
import errno
import io
import os
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from elr.data import DataConfig, load, load_unlabelled
from elr.data.augment import ImageTransform
from elr.data.images import decode, watched
from elr.noise import NoiseConfig


def write_csv(path, rows, delimiter=","):
    with open(path, "w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    return str(path)


def pixels(part):
    return part.inputs.fetch(torch.arange(len(part)))


def test_a_folder_a_class(photos):
    data = load(DataConfig(str(photos), val_fraction=0.34))
    assert data.classes == ("cat", "dog")
    assert (len(data.train), len(data.val), data.test) == (8, 4, None)
    assert data.name == "photos"
    assert data.shape == (3, 30, 30)  # the median shorter side, no blow-up to 224
    assert data.train.y_true is None
    for part in (data.train, data.val):
        x = pixels(part)
        assert x.dtype == torch.uint8
        for name, label, image in zip(part.ids, part.y, x, strict=True):
            assert name.startswith(data.classes[label] + "/")
            channel = 0 if data.classes[label] == "cat" else 2
            assert abs(int(image[channel, 15, 15]) - 200 - int(name[4])) <= 2


def test_folders_of_splits(photos, tmp_path):
    for split in ("train", "valid", "test"):
        shutil.copytree(photos, tmp_path / "all" / split)
    data = load(DataConfig(str(tmp_path / "all")))
    assert [len(part) for part in (data.train, data.val, data.test)] == [12, 12, 12]
    assert data.val.ids[0] == "valid/cat/0.jpg"


def test_folders_of_splits_may_have_capitals(photos, tmp_path):
    for split in ("Train", "TEST"):
        shutil.copytree(photos, tmp_path / "all" / split)
    data = load(DataConfig(str(tmp_path / "all"), val_fraction=0))
    assert data.classes == ("cat", "dog")
    assert (len(data.train), len(data.test)) == (12, 12)


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        (("train", "test", "extra"), "has a part 'test' with folders inside, but 'extra' beside it is neither"),
        (("Test", "val"), "has a part 'Test' with folders inside, but no part 'train'"),
    ],
)
def test_a_folder_beside_splits_that_is_none_is_named(photos, tmp_path, folders, message):
    for name in folders:
        shutil.copytree(photos, tmp_path / "all" / name)
    with pytest.raises(ValueError, match=message):
        load(DataConfig(str(tmp_path / "all")))


def test_a_class_may_be_called_like_a_split(photos):
    (photos / "dog").rename(photos / "test")
    assert load(DataConfig(str(photos), val_fraction=0)).classes == ("cat", "test")


def test_other_files_are_no_classes_and_no_images(photos):
    (photos / "notes.txt").write_text("hello")
    (photos / "cat" / "Thumbs.db").write_bytes(b"x")
    (photos / "cat" / ".hidden.jpg").write_bytes(b"x")
    (photos / ".git").mkdir()
    assert len(load(DataConfig(str(photos), val_fraction=0)).train) == 12


def test_image_files_get_imagenet_constants_crops_and_flips(photos):
    expected = ImageTransform((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), pad=3, flip=True, padding="reflect")
    assert load(DataConfig(str(photos))).transform == expected


@pytest.mark.parametrize("cache", ["none", "ram", "disk"])
def test_every_cache_gives_the_same_pixels(photos, tmp_path, cache):
    plain = load(DataConfig(str(photos), image_size=16))
    options = {"cache_dir": str(tmp_path / "cache")} if cache == "disk" else {}
    for _ in range(2):  # the second time the disk cache is found, not made
        cached = load(DataConfig(str(photos), image_size=16, cache=cache, **options))
        assert torch.equal(pixels(cached.train), pixels(plain.train))
        assert np.array_equal(cached.train.ids, plain.train.ids)
    if cache == "disk":
        assert sorted(path.suffix for path in (tmp_path / "cache").iterdir()) == [".json", ".npy"]


def test_the_disk_cache_notices_a_changed_file(photos, tmp_path, paint):
    config = DataConfig(str(photos), image_size=8, val_fraction=0, cache="disk", cache_dir=str(tmp_path / "cache"))
    before = pixels(load(config).train)
    paint(photos / "cat" / "0.jpg", (0, 255, 0), size=(50, 50))
    after = pixels(load(config).train)
    assert not torch.equal(before[0], after[0])
    assert torch.equal(before[1:], after[1:])


def test_a_full_disk_is_an_error_and_leaves_nothing_behind(photos, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    config = DataConfig(str(photos), image_size=8, cache="disk", cache_dir=str(tmp_path / "cache"))
    with pytest.raises(OSError, match=r"no room for 2,432 bytes of decoded images in .*cache: No space left"):
        load(config)
    assert list((tmp_path / "cache").iterdir()) == []


def test_two_processes_may_make_the_same_disk_cache(photos, tmp_path, monkeypatch):
    moved = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda old, new: (moved.append(old.name), replace(old, new)))
    load(DataConfig(str(photos), image_size=8, cache="disk", cache_dir=str(tmp_path / "cache")))
    assert len(set(moved)) == 2
    assert all(f".{os.getpid()}." in name for name in moved)


@pytest.mark.parametrize(("cache", "title"), [("none", "checking image files"), ("ram", "decoding image files")])
def test_whoever_watches_hears_how_far_the_reading_is(photos, cache, title):
    told = []
    with watched(lambda *what: told.append(what)):
        data = load(DataConfig(str(photos), cache=cache))
    assert told == [("sizes of image files", 12, 12), (title, 12, 12)]
    pixels(data.train)
    load(DataConfig(str(photos), cache=cache))
    assert len(told) == 2  # neither of training nor after the end


@pytest.mark.parametrize("cache", ["none", "ram", "disk"])
@pytest.mark.parametrize("damage", ["empty", "garbage", "truncated jpeg", "truncated png", "missing pixels"])
def test_a_bad_file_stops_by_name_or_is_skipped_and_listed(photos, tmp_path, cache, damage):
    rng = np.random.default_rng(0)
    picture = Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8))
    kind = "png" if damage in ("truncated png", "missing pixels") else "jpeg"
    buffer = io.BytesIO()
    picture.save(buffer, kind)
    content = buffer.getvalue()
    bad = photos / "cat" / "3.jpg"
    bad.write_bytes(
        {"empty": b"", "garbage": b"no image", "missing pixels": content[:200]}.get(
            damage, content[: len(content) // 2]
        )
    )
    options = {"cache_dir": str(tmp_path / "cache")} if cache == "disk" else {}
    config = {"source": str(photos), "image_size": 8, "cache": cache, "val_fraction": 0, **options}
    with pytest.raises(ValueError, match=r"cannot decode .*photos/cat/3\.jpg: .*data.on_bad_file skip") as caught:
        load(DataConfig(**config))
    assert "\n" not in str(caught.value)
    for _ in range(2):
        data = load(DataConfig(**config, on_bad_file="skip"))
        assert list(data.skipped) == [str(bad)]
        assert data.skipped[str(bad)]
        expected = [f"cat/{n}.jpg" for n in (0, 1, 2, 4, 5)] + [f"dog/{n}.png" for n in range(6)]
        assert data.train.ids.tolist() == expected
        for name, image in zip(data.train.ids, pixels(data.train), strict=True):
            assert np.array_equal(image, decode(photos / name, 8))  # nobody else's picture


def test_several_bad_files_are_counted(photos):
    for name in ("cat/1.jpg", "dog/2.png"):
        (photos / name).write_bytes(b"")
    with pytest.raises(ValueError, match=r"cat/1\.jpg: .* \(and 1 more\)"):
        load(DataConfig(str(photos)))


def test_a_file_that_breaks_during_training_is_named(photos):
    data = load(DataConfig(str(photos), val_fraction=0))
    os.remove(photos / "dog" / "5.png")
    with pytest.raises(ValueError, match=r"cannot decode .*dog/5\.png.*it was readable before training"):
        pixels(data.train)


def test_pictures_keep_aspect_and_centre(tmp_path):
    image = Image.new("RGB", (90, 30), (0, 0, 0))
    image.paste((255, 255, 255), (30, 0, 60, 30))  # the white middle third is what a square crop keeps
    image.save(tmp_path / "wide.png")
    assert decode(tmp_path / "wide.png", 30).min() == 255
    assert decode(tmp_path / "wide.png", 10)[:, 2:8, 2:8].min() == 255


def test_every_kind_of_picture_becomes_upright_rgb(tmp_path):
    gradient = np.tile(np.arange(64, dtype=np.uint8) * 4, (64, 1))
    grey = Image.fromarray(gradient)
    for name, image in {
        "grey": grey,
        "palette": grey.convert("P"),
        "alpha": grey.convert("RGBA"),
        "grey_alpha": grey.convert("LA"),
        "deep": Image.fromarray(gradient.astype(np.uint16) * 257),
        "bits": grey.convert("1", dither=Image.Dither.NONE),
    }.items():
        image.save(tmp_path / f"{name}.png")
        x = decode(tmp_path / f"{name}.png", 64)
        assert x.shape == (3, 64, 64)
        assert (x[0] == x[1]).mean() > 0.9
        tolerance = 128 if name == "bits" else 12
        assert np.abs(x[0].astype(int) - gradient).max() <= tolerance, name
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate a quarter clockwise to be upright
    grey.save(tmp_path / "turned.jpg", exif=exif, quality=95)
    x = decode(tmp_path / "turned.jpg", 64)[0].astype(int)
    assert np.abs(x - np.rot90(gradient, -1)).max() < 12


def test_large_pictures_default_to_224(tmp_path, paint):
    for label in "ab":
        for number in range(2):
            paint(tmp_path / "big" / label / f"{number}.jpg", (9, 9, 9), size=(300, 400))
    assert load(DataConfig(str(tmp_path / "big"), val_fraction=0)).shape == (3, 224, 224)


def test_empty_folders_get_one_clear_line(tmp_path, paint):
    with pytest.raises(ValueError, match="holds no images; expected a folder for each class"):
        load(DataConfig(str(tmp_path)))
    paint(tmp_path / "only" / "1.png", (0, 0, 0))
    with pytest.raises(ValueError, match="1 class only, 'only'"):
        load(DataConfig(str(tmp_path)))


def test_a_split_whose_files_are_all_bad_is_an_empty_split(photos, tmp_path):
    shutil.copytree(photos, tmp_path / "all" / "train")
    (tmp_path / "all" / "test" / "cat").mkdir(parents=True)
    (tmp_path / "all" / "test" / "cat" / "1.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match="the test part of all is empty"):
        load(DataConfig(str(tmp_path / "all"), on_bad_file="skip"))


def test_a_test_class_nobody_trains_on_is_outside_the_classes(photos, tmp_path, paint):
    shutil.copytree(photos, tmp_path / "all" / "train")
    paint(tmp_path / "all" / "test" / "fox" / "1.png", (0, 0, 0))
    with pytest.raises(ValueError, match="label 'fox' of the test part of all is outside the 2 classes: cat, dog"):
        load(DataConfig(str(tmp_path / "all")))


ROWS = [(f"{label}/{n}.{end}", label) for label, end in (("cat", "jpg"), ("dog", "png")) for n in range(6)]


def table(extra=False):
    """path, label and optionally split and id: the last picture of each class is for testing."""
    header = ("path", "label", "split", "id") if extra else ("path", "label")
    more = [("test" if "/5." in path else "train", f"n{n}") if extra else () for n, (path, _) in enumerate(ROWS)]
    return [header, *[(*row, *rest) for row, rest in zip(ROWS, more, strict=True)]]


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
def test_manifests_of_every_kind(photos, kind):
    path = photos / f"all.{kind}"
    rows = table(extra=True)
    if kind == "parquet":
        import pyarrow
        import pyarrow.parquet

        columns = dict(zip(rows[0], map(list, zip(*rows[1:], strict=True)), strict=True))
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    else:
        write_csv(path, rows, "\t" if kind == "tsv" else ",")
    data = load(DataConfig(str(path), val_fraction=0))
    assert data.train.ids.tolist() == [f"n{n}" for n in (0, 1, 2, 3, 4, 6, 7, 8, 9, 10)]
    assert data.test.ids.tolist() == ["n5", "n11"]
    assert data.classes == ("cat", "dog")
    folder = load(DataConfig(str(photos), val_fraction=0))
    assert torch.equal(pixels(data.test), pixels(folder.train)[[5, 11]])


def test_columns_by_any_name_and_images_elsewhere(photos, tmp_path):
    rows = [("file", "species", "part", "key"), *table(extra=True)[1:]]
    path = write_csv(tmp_path / "m.csv", rows)
    names = {"path_column": "file", "label_column": "species", "split_column": "part", "id_column": "key"}
    data = load(DataConfig(path, root=str(photos), **names))
    assert (len(data.train) + len(data.val), len(data.test)) == (10, 2)
    plain = load(DataConfig(write_csv(photos / "m.csv", table())))
    assert sorted([*plain.train.ids, *plain.val.ids]) == sorted(name for name, _ in ROWS)


MANIFEST_ERRORS = [
    ([("path", "labels"), *ROWS], "has no column 'label', only path, labels; set data.label_column"),
    ([("a", "b"), *ROWS], "has no column 'path', only a, b; set data.path_column"),
    ([("path", "label")], "has no rows"),
    ([], "has no column 'path', only none"),
    ([("path", "label"), ("cat/1.jpg",)], "line 2 of .* has 1 values, the header 2"),
    ([("path", "label"), ("cat/1.jpg", "")], "row 1 of .* has no label"),
    ([("path", "label"), ("", "cat")], "row 1 of .* has no path"),
    ([("path", "label"), ("cat/1.jpg", "-1"), ("dog/1.png", "0")], "label -1 of .* is negative"),
    ([("path", "path"), ("", "cat")], "names a column twice"),
    ([("path", "label"), *ROWS, ROWS[0]], "id 'cat/0.jpg' occurs more than once"),
    ([("path", "label", "split"), ("cat/1.jpg", "cat", "training")], "split 'training' in row 1"),
    ([("path", "label"), ("cat/9.jpg", "cat"), ("dog/1.png", "dog")], "cannot decode .*cat/9.jpg"),
]


@pytest.mark.parametrize(("rows", "message"), MANIFEST_ERRORS)
def test_bad_manifests_get_one_clear_line(photos, rows, message):
    with pytest.raises(ValueError, match=message) as caught:
        load(DataConfig(write_csv(photos / "m.csv", rows)))
    assert "\n" not in str(caught.value)


def test_unreadable_tables_get_one_clear_line(photos):
    for name, content in {"m.csv": b"\xff\xfe\x00", "m.parquet": b"no table"}.items():
        (photos / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"cannot read .*{name}"):
            load(DataConfig(str(photos / name)))
    with pytest.raises(ValueError, match="has no column 'key'"):
        load(DataConfig(write_csv(photos / "k.csv", table()), id_column="key"))


def test_noise_that_depends_on_the_input_reads_files(photos):
    data = load(DataConfig(str(photos), val_fraction=0), NoiseConfig("instance", 0.5))
    assert np.array_equal(data.train.y_true, [0] * 6 + [1] * 6)
    assert data.noise.flip_rate == np.mean(data.train.y != data.train.y_true)


def test_pictures_without_labels_can_be_predicted_on(photos):
    inputs, ids, _ = load_unlabelled(DataConfig(str(photos), image_size=8))
    assert ids.tolist() == [name for name, _ in ROWS]
    assert inputs.shape == (3, 8, 8)
    path = write_csv(photos / "m.csv", [("path",), ("dog/1.png",), ("cat/1.jpg",)])
    inputs, ids, _ = load_unlabelled(DataConfig(path, image_size=8))
    assert ids.tolist() == ["dog/1.png", "cat/1.jpg"]
    (photos / "cat" / "1.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match="cannot decode"):
        load_unlabelled(DataConfig(path, image_size=8))
    inputs, ids, skipped = load_unlabelled(DataConfig(path, image_size=8, on_bad_file="skip"))
    assert (ids.tolist(), len(inputs)) == (["dog/1.png"], 1)
    assert list(skipped) == [str(photos / "cat" / "1.jpg")]
