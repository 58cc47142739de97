import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from elr.data import DataConfig, from_arrays, from_dataset, load, load_unlabelled
from elr.data.augment import ImageTransform, VectorTransform
from elr.data.stream import Stream, TrainData
from elr.noise import NoiseConfig
from elr.parts.clock import Clock


def train_data(data, batch_size=16):
    part = data.train
    return TrainData(
        part.inputs,
        torch.from_numpy(part.y),
        data.num_classes,
        data.transform,
        ids=part.keys,
        batch_size=batch_size,
        device=torch.device("cpu"),
    )


def test_digits_have_the_documented_sizes_and_range():
    data = load(DataConfig())
    assert (len(data.train), len(data.val), len(data.test)) == (1293, 144, 360)
    assert data.shape == data.train.inputs.shape == (1, 8, 8)
    assert data.classes == tuple("0123456789")
    x = data.train.inputs.fetch(torch.arange(1293))
    assert x.dtype == torch.uint8
    assert (x.min(), x.max()) == (0, 255)
    assert data.train.y_true is None
    assert data.noise is None
    assert np.bincount(data.test.y).min() >= 34
    assert abs(data.transform(x, torch.arange(1293), None).mean()) < 0.02


def test_digits_ids_name_the_rows_of_scikit_learn():
    from sklearn.datasets import load_digits

    bunch = load_digits()
    data = load(DataConfig(subset=300), NoiseConfig("symmetric", 0.4), seed=3)
    for part in (data.train, data.val, data.test):
        truth = part.y if part.y_true is None else part.y_true
        assert np.array_equal(bunch.target[part.ids], truth)
        x = part.inputs.fetch(torch.arange(len(part)))[:, 0].numpy()
        assert np.array_equal(x, np.rint(bunch.images[part.ids] * 255 / 16))
    ids = np.concatenate([part.ids for part in (data.train, data.val, data.test)])
    assert len(np.unique(ids)) == len(ids) == 300 + 144 + 360


def test_the_test_part_of_digits_is_the_same_for_every_seed():
    first, second = (load(DataConfig(), seed=seed) for seed in (0, 1))
    assert np.array_equal(first.test.ids, second.test.ids)
    assert not np.array_equal(first.val.ids, second.val.ids)


def test_data_seed_fixes_the_split_whatever_the_run_seed():
    first, second = (load(DataConfig(seed=5, subset=500), seed=seed) for seed in (0, 1))
    assert np.array_equal(first.train.ids, second.train.ids)


def test_digits_are_shifted_and_never_flipped_unless_told():
    assert load(DataConfig()).transform == ImageTransform((0.3053,), (0.376,), pad=1, flip=False)
    assert load(DataConfig(augment=False)).transform.pad == 0
    told = load(DataConfig(pad=2, flip=True, padding="reflect")).transform
    assert (told.pad, told.flip, told.padding) == (2, True, "reflect")


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((40, 7), (7,)),
        ((40, 8, 6), (1, 8, 6)),
        ((40, 8, 8, 3), (3, 8, 8)),
        ((40, 3, 8, 8), (3, 8, 8)),
        ((40, 8, 6, 3), (3, 8, 6)),
        ((40, 3, 8, 6), (3, 8, 6)),
        ((40, 64, 7, 7), (64, 7, 7)),
        ((40, 5, 5, 12), (12, 5, 5)),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float64, np.int32])
def test_arrays_of_every_layout(shape, expected, dtype):
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    data = from_arrays(x, np.tile([0, 1], 20), config=DataConfig(val_fraction=0.25))
    assert data.shape == expected
    got = data.train.inputs.fetch(torch.tensor([0]))
    wide = dtype == np.float64 and len(shape) == 2
    expected_dtype = torch.float64 if wide else torch.float32
    assert got.dtype == (torch.uint8 if dtype == np.uint8 and len(shape) > 2 else expected_dtype)
    if shape == (40, 8, 6, 3):
        assert np.array_equal(got[0].permute(1, 2, 0), x[data.train.ids[0]])


@pytest.mark.parametrize("kind", [int, float, str])
def test_two_classes_may_be_called_by_a_sign(blobs, kind):
    x, y = blobs
    signs = np.where(y == 0, -1, 1)
    data = from_arrays(x, signs.astype(kind))
    assert data.classes == ("-1", "1")
    assert data.numbered == (kind is int)
    assert np.array_equal(data.train.y, (signs[data.train.ids] == 1).astype(int))


def test_arrays_feed_a_training_pass(blobs):
    x, y = blobs
    data = from_arrays(x, y, noise=NoiseConfig("symmetric_exclusive", 0.5))
    batches = list(train_data(data).batches(Stream(), Clock(0)))
    assert torch.equal(torch.cat([b.index for b in batches]).sort().values, torch.arange(54))
    for batch in batches:
        rows = batch.index.numpy()
        expected = (x[data.train.ids[rows]] - np.array(data.transform.mean)) / np.array(data.transform.std)
        np.testing.assert_allclose(batch.x.numpy(), expected, rtol=1e-4, atol=1e-5)
        assert np.array_equal(batch.y.numpy(), data.train.y[rows])


def test_vectors_are_standardised_by_the_training_part_only(blobs):
    x, y = blobs
    x = x.copy()
    data = from_arrays(x, y)
    x[data.val.ids] += 100
    again = from_arrays(x, y)
    assert data.transform == again.transform
    assert from_arrays(x, y, config=DataConfig(standardize=False)).transform == VectorTransform()


def test_tensors_and_arrays_give_the_same_data(blobs):
    x, y = blobs
    rows = torch.arange(54)
    first = from_arrays(x, y)
    second = from_arrays(torch.from_numpy(x), torch.from_numpy(y))
    assert torch.equal(first.train.inputs.fetch(rows), second.train.inputs.fetch(rows))
    assert np.array_equal(first.train.y, second.train.y)


def test_label_strings_are_kept_and_sorted(blobs):
    x, y = blobs
    assert from_arrays(x, np.array(["pear", "apple", "fig"])[y]).classes == ("apple", "fig", "pear")
    numbers = from_arrays(x, np.array(["10", "9", "100"])[y])
    assert numbers.classes == ("9", "10", "100")
    assert from_arrays(x, np.array([10, 9, 100])[y]).classes == ("9", "10", "100")
    assert from_arrays(x, y.astype(float)).classes == ("0", "1", "2")
    assert from_arrays(x, y > 0).classes == ("False", "True")
    named = from_arrays(x, y, classes=("a", "b", "c"))
    assert named.classes == ("a", "b", "c")
    assert np.array_equal(named.train.y, y[named.train.ids])


def test_ids_follow_their_examples_through_split_subset_and_noise(blobs):
    x, y = blobs
    ids = np.array([f"row-{number}" for number in range(60)])
    data = from_arrays(x, y, ids=ids, config=DataConfig(subset=30), noise=NoiseConfig("pair", 0.3), seed=9)
    for part in (data.train, data.val):
        rows = np.array([int(name.split("-")[1]) for name in part.ids])
        assert np.array_equal(part.y_true, y[rows])
        np.testing.assert_allclose(part.inputs.fetch(torch.arange(len(part))), x[rows].astype(np.float32))
    assert len(data.train) == 30
    assert np.bincount(data.train.y_true).tolist() == [10, 10, 10]


def test_keys_depend_on_the_id_alone(blobs):
    x, y = blobs
    ids = np.array([f"row-{number}" for number in range(60)])
    keys = {}
    for seed in (0, 1):
        part = from_arrays(x, y, ids=ids, seed=seed).train
        for name, key in zip(part.ids, part.keys.tolist(), strict=True):
            assert keys.setdefault(str(name), key) == key
    assert len(set(keys.values())) == len(keys)


def test_validation_is_a_stratified_tenth(blobs):
    x, y = blobs
    data = from_arrays(x, y)
    assert np.bincount(data.val.y).tolist() == [2, 2, 2]
    assert from_arrays(x, y, config=DataConfig(val_fraction=0)).val is None


def test_true_labels_exist_only_where_they_are_known(blobs):
    x, y = blobs
    assert from_arrays(x, y).train.y_true is None
    wrong = (y + 1) % 3
    data = from_arrays(x, wrong, y_true=y)
    assert np.array_equal(data.train.y_true, y[data.train.ids])
    noisy = from_arrays(x, wrong, y_true=y, noise=NoiseConfig("pair", 1.0))
    assert np.array_equal(noisy.train.y_true, y[noisy.train.ids])  # not the labels the noise started from
    assert np.array_equal(noisy.train.y, (y[noisy.train.ids] + 2) % 3)


def test_npz_round_trip(tmp_path, blobs):
    x, y = blobs
    names = np.array(["a", "b", "c"])[y]
    np.savez(tmp_path / "d.npz", x=x, y=names, y_true=names, x_test=x[:9], y_test=names[:9], id=np.arange(60) + 1000)
    data = load(DataConfig(str(tmp_path / "d.npz")))
    assert (len(data.train), len(data.val), len(data.test)) == (54, 6, 9)
    assert data.classes == ("a", "b", "c")
    assert np.array_equal(data.train.y_true, y[data.train.ids - 1000])
    assert data.name == "d.npz"


def test_npz_accepts_train_names_and_class_names(tmp_path, blobs):
    x, y = blobs
    np.savez(tmp_path / "d.npz", x_train=x, y_train=y.astype(np.uint8), classes=["low", "mid", "high"])
    data = load(DataConfig(str(tmp_path / "d.npz")))
    assert data.classes == ("low", "mid", "high")
    assert np.array_equal(data.train.y, y[data.train.ids])


def test_a_dataset_gives_the_same_as_its_arrays(blobs):
    x, y = blobs
    dataset = TensorDataset(torch.from_numpy(x).float(), torch.from_numpy(y))
    data = from_dataset(dataset, test=dataset)
    arrays = from_arrays(x.astype(np.float32), y)
    assert np.array_equal(data.train.ids, arrays.train.ids)
    rows = torch.tensor([3, 0, 5])
    assert torch.equal(data.train.inputs.fetch(rows), arrays.train.inputs.fetch(rows))
    assert data.transform == VectorTransform()  # a dataset's numbers are ready
    assert len(data.test) == 60
    assert len(list(train_data(data).batches(Stream(), Clock(0)))) == 4


def test_a_dataset_of_pictures_is_augmented_as_images():
    items = [(Image.new("RGB", (16, 16), (10 * i, 0, 0)), "cat" if i % 2 else "dog") for i in range(20)]
    data = from_dataset(items)
    assert data.shape == (3, 16, 16)
    assert data.train.inputs.fetch(torch.tensor([0])).dtype == torch.uint8
    assert (data.transform.pad, data.transform.flip) == (2, False)
    assert data.classes == ("cat", "dog")


def test_a_dataset_keeps_its_own_randomness():
    class Jitter:
        reads = 0

        def __len__(self):
            return 20

        def __getitem__(self, row):
            Jitter.reads += 1
            return torch.full((3,), float(Jitter.reads)), row % 2

    inputs = from_dataset(Jitter()).train.inputs
    assert not torch.equal(inputs.fetch(torch.tensor([0])), inputs.fetch(torch.tensor([0])))


def test_classes_of_a_trained_model_fix_the_order(blobs):
    x, y = blobs
    names = np.array(["a", "b", "c"])[y]
    data = from_arrays(x, names, classes=("c", "z", "a", "b"))
    assert data.classes == ("c", "z", "a", "b")
    assert np.array_equal(data.train.y, np.array([2, 3, 0])[y[data.train.ids]])
    other = load(DataConfig(), classes=tuple("9876543210"))
    plain = load(DataConfig())
    assert np.array_equal(other.test.y, 9 - plain.test.y)


ERRORS = {
    "lengths": ({"x": np.zeros((60, 2)), "y": np.zeros(59)}, "60 inputs and 59 labels"),
    "ids": ({"ids": np.arange(59)}, "lengths differ: 60 inputs, 60 labels, 59 ids"),
    "double id": ({"ids": np.zeros(60, int)}, "id 0 occurs more than once"),
    "true labels": ({"y_true": np.zeros(3, int)}, "3 true labels"),
    "nan": ({"x": np.where(np.eye(60, 5, -7) > 0, np.nan, 1.0)}, "x holds NaN, infinity .* in row 7"),
    "overflow": ({"x": np.full((60, 2), 1e300)}, "beyond float32 in row 0"),
    "one class": ({"y": np.full(60, 4)}, "1 class only, '4'"),
    "empty": ({"x": np.zeros((0, 5)), "y": np.zeros(0)}, "the train part of arrays is empty"),
    "shape": ({"x": np.zeros(60)}, r"must have shape .* got \(60,\)"),
    "no features": ({"x": np.zeros((60, 0))}, r"got \(60, 0\)"),
    "text": ({"x": np.full((60, 2), "a")}, "must hold numbers"),
    "negative": ({"y": np.tile([-1, 0, 1], 20)}, "label -1 .* is negative"),
    "fraction": ({"y": np.tile([0.5, 1], 30)}, "class names or integers, got 0.5"),
    "nan label": ({"y": np.tile([np.nan, 1], 30)}, "class names or integers, got nan"),
    "no label": ({"y": np.tile(["", "a"], 30)}, "row 0 of .* has no label"),
    "none label": ({"y": np.array([None, "a"] * 30, dtype=object)}, "row 0 of .* has no label"),
    "two columns": ({"y": np.zeros((60, 2))}, r"one per example, got shape \(60, 2\)"),
    "outside": ({"classes": ("a", "b")}, "label '2' of the train part of arrays is outside the 2 classes: a, b"),
    "below": ({"y": np.tile([-1, 1], 30), "classes": ("a", "b")}, "label '-1' of .* is outside the 2 classes: a, b"),
    "two of a name": ({"classes": ("a", "b", "a")}, "arrays has two classes called 'a'"),
    "negative text": ({"y": np.tile(["-1", "2"], 30)}, "label -1 .* is negative"),
    "test label": ({"x_test": np.zeros((2, 5)), "y_test": [0, 7]}, "label '7' of the test part of arrays is outside"),
    "test shape": (
        {"x_test": np.zeros((2, 4)), "y_test": [0, 1]},
        r"examples of x have shape \(5,\), of x_test \(4,\)",
    ),
    "test empty": ({"x_test": np.zeros((0, 5)), "y_test": []}, "the test part of arrays is empty"),
    "test alone": ({"x_test": np.zeros((2, 5))}, "x_test and y_test belong together"),
    "true outside": ({"y_true": np.full(60, 8)}, "label '8' of y_true of the train part"),
    "tiny": ({"config": DataConfig(val_fraction=0.001)}, "the val part of arrays is empty: 0.001 of 60"),
    "reflect": (
        {"x": np.zeros((60, 4, 4)), "config": DataConfig(pad=4, padding="reflect")},
        "cannot reflect 4 pixels of an image of 4 x 4; lower data.pad",
    ),
    "subset of one class": (
        {"y": (np.arange(60) == 0).astype(int), "config": DataConfig(subset=2)},
        "the train part of arrays has 1 class only, '0'",
    ),
    "subset": ({"config": DataConfig(subset=55)}, "data.subset 55 exceeds the 54 training examples"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_bad_arrays_get_one_clear_line(blobs, case):
    changes, message = ERRORS[case]
    arguments = {"x": blobs[0], "y": blobs[1], **changes}
    with pytest.raises(ValueError, match=message) as caught:
        from_arrays(arguments.pop("x"), arguments.pop("y"), **arguments)
    assert "\n" not in str(caught.value)


def test_bad_datasets_get_one_clear_line():
    with pytest.raises(ValueError, match="an iterable dataset has no index"):
        from_dataset(iter([]))
    with pytest.raises(ValueError, match="the dataset is empty"):
        from_dataset([])
    with pytest.raises(ValueError, match=r"item 0 of the dataset must be \(x, y\), got dict"):
        from_dataset([{"x": 1}])
    with pytest.raises(ValueError, match=r"item 1 of the dataset is \(3,\) torch.float32, the first \(2,\)"):
        from_dataset([(torch.zeros(2), 0), (torch.zeros(3), 1)])
    with pytest.raises(ValueError, match="item 1 of the dataset: holds NaN"):
        from_dataset([(torch.zeros(2), 0), (torch.full((2,), torch.nan), 1)])


def test_bad_npz_files_get_one_clear_line(tmp_path, blobs):
    path = tmp_path / "d.npz"

    def message():
        with pytest.raises(ValueError, match=r"d\.npz") as caught:
            load(DataConfig(str(path)))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    np.savez(path, X=blobs[0])
    assert "has no array 'x', only X" in message()
    np.savez(path, x=blobs[0], y=blobs[1])
    path.write_bytes(path.read_bytes()[:-200])
    assert "cannot read" in message()
    path.write_bytes(b"")
    assert "cannot read" in message()
    path.write_bytes(b"not an archive")
    assert "cannot read" in message()
    np.savez(path, x=blobs[0], y=np.array([{}] * 60, dtype=object))
    assert "cannot read" in message()


def test_unknown_sources_name_the_nearest(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no data source and no path 'cifar-10'; did you mean 'cifar10'\?"):
        load(DataConfig("cifar-10"))
    with pytest.raises(FileNotFoundError, match=r"give digits, cifar10, cifar100, clothing1m, .* or a path"):
        load(DataConfig("/nowhere/at/all"))
    (tmp_path / "d.docx").write_text("")
    with pytest.raises(ValueError, match=r"cannot tell what .*docx is; expected a folder"):
        load(DataConfig(str(tmp_path / "d.docx")))


BAD_CONFIGS = [
    ({"source": ""}, "data.source is empty"),
    ({"val_fraction": 1.0}, r"data.val_fraction must lie in \[0, 1\), got 1.0"),
    ({"val_fraction": float("nan")}, "data.val_fraction must lie"),
    ({"subset": 1}, "data.subset must be at least 2, got 1"),
    ({"pad": -1}, "data.pad must be at least 0, got -1"),
    ({"image_size": 0}, "data.image_size must be at least 1, got 0"),
    ({"on_bad_file": "ignore"}, "data.on_bad_file must be one of stop, skip, got 'ignore'"),
    ({"cache": "tape"}, "data.cache must be one of none, ram, disk"),
    ({"padding": "wrap"}, "data.padding must be one of zeros, reflect"),
    ({"cache": "disk"}, "belong together"),
    ({"labels_column": "a"}, "data.labels_column needs data.labels"),
]


@pytest.mark.parametrize(("options", "message"), BAD_CONFIGS)
def test_bad_configurations_get_one_clear_line(options, message):
    with pytest.raises(ValueError, match=message):
        DataConfig(**options)


def test_every_option_has_a_help_text():
    from dataclasses import fields

    assert all(option.metadata["help"] for table in (DataConfig, NoiseConfig) for option in fields(table))


def test_inputs_without_labels_can_be_predicted_on(tmp_path, blobs):
    np.savez(tmp_path / "d.npz", x=blobs[0])
    inputs, ids, _ = load_unlabelled(DataConfig(str(tmp_path / "d.npz")))
    assert len(inputs) == len(ids) == 60
    inputs, ids, _ = load_unlabelled(DataConfig("digits"))
    assert len(inputs) == len(ids) == 360
    np.savez(tmp_path / "d.npz", x=blobs[0], id=np.arange(59))
    with pytest.raises(ValueError, match=r"d\.npz: there are 60 inputs, and ids of shape \(59,\)"):
        load_unlabelled(DataConfig(str(tmp_path / "d.npz")))


def test_a_time_stamp_keeps_its_digits():
    seconds = 1.7e9 + np.arange(100.0)[:, None]
    data = from_arrays(seconds, np.arange(100) % 2)
    x = data.transform(data.train.inputs.fetch(torch.arange(len(data.train))), data.train.keys, None)
    assert len(x.unique()) == len(data.train)
    assert x.std() == pytest.approx(1.0, abs=0.05)
