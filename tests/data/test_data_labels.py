import numpy as np
import pytest

from elr.data import DataConfig, from_arrays, load
from elr.noise import NoiseConfig


def digits_with(path, **options):
    return load(DataConfig(labels=str(path), **options))


@pytest.fixture
def truth():
    from sklearn.datasets import load_digits

    return load_digits().target


def test_labels_by_id_from_csv_in_any_order(tmp_path, truth):
    new = (truth + 1) % 10
    order = np.random.default_rng(0).permutation(len(truth))
    (tmp_path / "l.csv").write_text("id,label\n" + "".join(f"{row},{new[row]}\n" for row in order))
    data = digits_with(tmp_path / "l.csv")
    for part in (data.train, data.val):
        assert np.array_equal(part.y, new[part.ids])
        assert np.array_equal(part.y_true, truth[part.ids])
    assert np.array_equal(data.test.y, truth[data.test.ids])  # the test part is never touched
    assert data.test.y_true is None


def test_labels_by_id_from_npz_and_by_column(tmp_path, truth):
    ids = np.arange(len(truth))[::-1].astype(np.uint16)
    np.savez(tmp_path / "l.npz", id=ids, worst=(truth[ids] + 3) % 10, best=truth[ids])
    data = digits_with(tmp_path / "l.npz", labels_column="worst")
    assert np.array_equal(data.train.y, (truth[data.train.ids] + 3) % 10)


def test_labels_without_ids_are_in_the_order_of_the_data(tmp_path, blobs):
    x, y = blobs
    np.savez(tmp_path / "l.npz", human=(y + 1).astype(np.uint8) % 3)
    data = from_arrays(x, y, config=DataConfig(labels=str(tmp_path / "l.npz")))
    assert np.array_equal(data.train.y, (y[data.train.ids] + 1) % 3)


def test_labels_may_be_names_or_class_numbers(tmp_path, blobs):
    x, y = blobs
    names = np.array(["ant", "bee", "cow"])
    np.savez(tmp_path / "names.npz", label=names[(y + 1) % 3])
    np.savez(tmp_path / "numbers.npz", label=(y + 1) % 3)
    by_name, by_number = (
        from_arrays(x, names[y], config=DataConfig(labels=str(tmp_path / file)))
        for file in ("names.npz", "numbers.npz")
    )
    assert np.array_equal(by_name.train.y, by_number.train.y)
    assert np.array_equal(by_name.train.y, (y[by_name.train.ids] + 1) % 3)


def test_validation_is_stratified_on_the_labels_given(tmp_path, blobs):
    x, y = blobs
    given = (np.arange(60) % 30 == 0).astype(int)
    np.savez(tmp_path / "l.npz", label=given)
    data = from_arrays(x, y, config=DataConfig(labels=str(tmp_path / "l.npz"), val_fraction=0.5))
    assert np.bincount(data.val.y).tolist() == [29, 1]


def test_an_unknown_label_does_not_make_class_numbers_of_names_that_are_numbers(tmp_path, blobs):
    x, y = blobs
    np.savez(tmp_path / "l.npz", label=np.where(y == 2, 0, y + 1))  # 1, 2 and 0
    with pytest.raises(ValueError, match=r"label '0' of label file .*l\.npz is outside the 3 classes: 1, 2, 3"):
        from_arrays(x, y + 1, config=DataConfig(labels=str(tmp_path / "l.npz")))


def test_a_negative_number_is_no_label_in_a_table_either(tmp_path, truth):
    rows = [f"{row},{label}" for row, label in enumerate(truth)]
    (tmp_path / "l.csv").write_text("\n".join(["id,label", *rows[1:], "0,-1"]))
    with pytest.raises(ValueError, match=r"label -1 of .*l\.csv is negative; leave unlabelled examples out"):
        digits_with(tmp_path / "l.csv")


def test_labels_of_a_file_do_not_make_the_labels_of_the_source_the_truth(tmp_path, blobs):
    x, y = blobs
    wrong = (y + 1) % 3
    np.savez(tmp_path / "l.npz", label=y)
    config = DataConfig(labels=str(tmp_path / "l.npz"))
    data = from_arrays(x, wrong, config=config)
    assert np.array_equal(data.train.y, y[data.train.ids])
    assert data.train.y_true is None
    assert data.val.y_true is None
    known = from_arrays(x, wrong, y_true=y, config=config)
    assert np.array_equal(known.train.y_true, y[known.train.ids])
    noisy = from_arrays(x, wrong, config=config, noise=NoiseConfig("pair", 1.0))
    assert np.array_equal(noisy.train.y_true, y[noisy.train.ids])  # what the noise started from


def test_noise_on_top_of_other_labels_keeps_the_first_truth(tmp_path, blobs):
    x, y = blobs
    np.savez(tmp_path / "l.npz", label=(y + 1) % 3)
    config = DataConfig(labels=str(tmp_path / "l.npz"))
    data = from_arrays(x, y, y_true=y, config=config, noise=NoiseConfig("pair", 1.0))
    assert np.array_equal(data.train.y_true, y[data.train.ids])
    assert np.array_equal(data.train.y, (y[data.train.ids] + 2) % 3)
    assert np.array_equal(data.noise.old[: len(data.train)], (y[data.train.ids] + 1) % 3)


def test_a_given_validation_part_is_relabelled_wholly_or_not_at_all(photos, tmp_path):
    import shutil

    for split in ("train", "val"):
        shutil.copytree(photos, tmp_path / "all" / split)
    lines = {
        split: [f"{split}/{label}/{n}.{end},dog" for label, end in (("cat", "jpg"), ("dog", "png")) for n in range(6)]
        for split in ("train", "val")
    }
    lines["train"][0] = "train/cat/0.jpg,cat"

    def relabelled(rows):
        (tmp_path / "l.csv").write_text("\n".join(["id,label", *rows]))
        return load(DataConfig(str(tmp_path / "all"), labels=str(tmp_path / "l.csv")))

    assert relabelled(lines["train"]).val.y.tolist() == [0] * 6 + [1] * 6
    assert relabelled(lines["train"] + lines["val"]).val.y.tolist() == [1] * 12
    with pytest.raises(ValueError, match=r"lacks validation example val/dog/5\.png"):
        relabelled(lines["train"] + lines["val"][:-1])


def test_label_files_that_do_not_fit_get_one_clear_line(tmp_path, truth):
    path = tmp_path / "l.csv"

    def message(content, **options):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"l\.csv") as caught:
            digits_with(path, **options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    rows = [f"{row},{label}" for row, label in enumerate(truth)]
    assert "do not match" in message("\n".join(["id,label", *rows[:-100]]))
    assert "first 0" in message("\n".join(["id,label", *[f"digit-{row}" for row in rows]]))
    assert "label 'ten' of label file" in message("\n".join(["id,label", *rows[1:], "0,ten"]))
    assert "label '10' of label file" in message("\n".join(["id,label", *rows[1:], "0,10"]))
    assert "id 5 occurs more than once" in message("\n".join(["id,label", *rows, "5,1"]))
    assert "has no column 'id', only name, label" in message("\n".join(["name,label", *rows]))
    both = "\n".join(["id,a,b", *[f"{row},1" for row in rows]])
    assert "has no 'label'; set data.labels_column to one of a, b" in message(both)
    assert "has no 'c'" in message(both, labels_column="c")
    np.savez(tmp_path / "l.npz", label=truth[:100])
    with pytest.raises(ValueError, match="has 100 labels and no ids for 1,437 training examples"):
        digits_with(tmp_path / "l.npz")
    np.savez(tmp_path / "l.npz", label=truth, id=np.arange(5))
    with pytest.raises(ValueError, match="has 5 ids and 1,797 labels"):
        digits_with(tmp_path / "l.npz")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        digits_with(tmp_path / "nowhere.csv")
    (tmp_path / "l.txt").write_text("")
    with pytest.raises(ValueError, match=r"expected \.csv, \.tsv or \.parquet"):
        digits_with(tmp_path / "l.txt")


def test_labels_all_of_one_class_are_refused(tmp_path, blobs):
    x, y = blobs
    np.savez(tmp_path / "l.npz", label=np.full(60, 2))
    with pytest.raises(ValueError, match="1 class only, '2'"):
        from_arrays(x, y, config=DataConfig(labels=str(tmp_path / "l.npz")))
