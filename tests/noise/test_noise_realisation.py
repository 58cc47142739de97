"""Noise as a run meets it: configured, injected into both parts, saved, reloaded."""

import json

import numpy as np
import pytest

from elr.data import DataConfig, from_arrays, load
from elr.noise import NoiseConfig, NoiseManifest, read_matrix, transition


@pytest.fixture
def blobs():
    y = np.repeat([0, 1, 2], 40)
    return np.random.default_rng(0).normal(size=(120, 4)), y


def test_validation_is_exactly_as_noisy_as_training():
    data = load(DataConfig(), NoiseConfig("symmetric_exclusive", 0.4))
    for part in (data.train, data.val):
        assert np.sum(part.y != part.y_true) == round(0.4 * len(part))
    assert np.array_equal(data.test.y, load(DataConfig()).test.y)
    assert data.test.y_true is None


def test_noise_seed_is_the_run_seed_unless_given():
    by_run, by_config, other = (
        load(DataConfig(seed=0), NoiseConfig("symmetric", 0.4, seed=noise_seed), seed=seed).train.y
        for noise_seed, seed in ((None, 3), (3, 8), (None, 4))
    )
    assert np.array_equal(by_run, by_config)
    assert not np.array_equal(by_run, other)


def test_requested_and_real_rate_are_both_reported(tmp_path):
    data = load(DataConfig(), NoiseConfig("symmetric", 0.4), seed=1)
    data.noise.save(tmp_path)
    header = json.loads((tmp_path / "noise.json").read_text())
    old, new = (np.concatenate([getattr(part, name) for part in (data.train, data.val)]) for name in ("y_true", "y"))
    assert header["rate"] == 0.4
    assert header["flip_rate"] == np.mean(old != new) == data.noise.flip_rate
    assert 0.33 < header["flip_rate"] < 0.39
    assert header["examples"] == 1437
    assert header["changed"] == np.sum(old != new)
    assert (header["kind"], header["seed"], header["classes"]) == ("symmetric", 1, list("0123456789"))
    np.testing.assert_allclose(header["class_flip_rates"], 1 - np.diag(transition(old, new, 10)))
    with np.load(tmp_path / "noise.npz") as arrays:
        assert sorted(arrays.files) == ["id", "new", "old"]
        assert np.array_equal(arrays["id"], np.concatenate([data.train.ids, data.val.ids]))


@pytest.mark.parametrize("text_ids", [False, True])
def test_a_realisation_comes_back_bit_for_bit(tmp_path, blobs, text_ids):
    x, y = blobs
    ids = np.array([f"é {n}\n" for n in range(120)]) if text_ids else None
    first = from_arrays(x, y, ids=ids, noise=NoiseConfig("instance", 0.4), seed=7)
    first.noise.save(tmp_path / "a")
    for path in (tmp_path / "a", tmp_path / "a" / "noise.json", tmp_path / "a" / "noise.npz"):
        again = from_arrays(x, y, ids=ids, noise=NoiseConfig("file", file=str(path)), seed=7)
        for part in ("train", "val"):
            assert np.array_equal(getattr(first, part).y, getattr(again, part).y)
            assert np.array_equal(getattr(first, part).y_true, getattr(again, part).y_true)
    again.noise.save(tmp_path / "b")
    for name in ("noise.json", "noise.npz"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["noise.json", "noise.npz"]


def test_a_realisation_goes_by_id_whatever_the_split(tmp_path, blobs):
    x, y = blobs
    first = from_arrays(x, y, noise=NoiseConfig("symmetric", 0.5), seed=0)
    first.noise.save(tmp_path)
    label = dict(zip(first.noise.ids.tolist(), first.noise.new.tolist(), strict=True))
    config = DataConfig(val_fraction=0.3, subset=50)
    other = from_arrays(x, y, config=config, noise=NoiseConfig("file", file=str(tmp_path)), seed=5)
    for part in (other.train, other.val):
        assert part.y.tolist() == [label[row] for row in part.ids.tolist()]
    assert len(other.noise.ids) == 50 + 36
    assert (other.noise.kind, other.noise.rate, other.noise.seed) == ("symmetric", 0.5, 0)


@pytest.mark.parametrize("target", ["label", "id", "rate", "class", "hash", "count", "truncated", "garbage"])
def test_a_changed_file_is_refused(tmp_path, blobs, target):
    x, y = blobs
    from_arrays(x, y, noise=NoiseConfig("symmetric", 0.5)).noise.save(tmp_path)
    header = json.loads((tmp_path / "noise.json").read_text())
    with np.load(tmp_path / "noise.npz") as arrays:
        content = dict(arrays)
    if target == "label":
        content["new"][3] = (content["new"][3] + 1) % 3
    elif target == "id":
        content["id"][[0, 1]] = content["id"][[1, 0]]
    elif target == "rate":
        header["rate"] = 0.6
    elif target == "class":
        header["classes"][0] = "zero"
    elif target == "hash":
        header["sha256"] = "0" * 64
    elif target == "count":
        header["changed"] += 1
    np.savez(tmp_path / "noise.npz", **content)
    (tmp_path / "noise.json").write_text(json.dumps(header))
    if target == "truncated":
        (tmp_path / "noise.npz").write_bytes((tmp_path / "noise.npz").read_bytes()[:-50])
    if target == "garbage":
        (tmp_path / "noise.json").write_text("{")
    with pytest.raises(ValueError, match=r"cannot read the noise|do not match their hash") as caught:
        NoiseManifest.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_any_damaged_byte_is_one_line(tmp_path, blobs):
    x, y = blobs
    from_arrays(x, y, noise=NoiseConfig("symmetric", 0.5)).noise.save(tmp_path)
    intact = (tmp_path / "noise.npz").read_bytes()
    said = []
    for place in range(0, len(intact), 3):
        damaged = bytearray(intact)
        damaged[place] ^= 0xFF
        (tmp_path / "noise.npz").write_bytes(damaged)
        try:
            NoiseManifest.load(tmp_path)  # some bytes of an archive mean nothing
        except ValueError as error:
            said.append(str(error))
    assert len(said) > len(intact) / 6
    assert not any("\n" in line for line in said)


def test_rewritten_but_unchanged_files_are_accepted(tmp_path, blobs):
    x, y = blobs
    manifest = from_arrays(x, y, noise=NoiseConfig("symmetric", 0.5)).noise
    manifest.save(tmp_path)
    np.savez(tmp_path / "noise.npz", id=manifest.ids, old=manifest.old, new=manifest.new)
    assert NoiseManifest.load(tmp_path).sha256 == manifest.sha256


def test_a_realisation_of_other_data_is_refused(tmp_path, blobs):
    x, y = blobs
    from_arrays(x, y, noise=NoiseConfig("symmetric", 0.5)).noise.save(tmp_path)
    noise = NoiseConfig("file", file=str(tmp_path))
    with pytest.raises(ValueError, match="was made for other classes"):
        from_arrays(x, y + 1, noise=noise)
    with pytest.raises(ValueError, match="was made from other labels: example"):
        from_arrays(x, (y + 1) % 3, noise=noise)
    with pytest.raises(ValueError, match="has no label for example 5"):
        from_arrays(x, y, ids=np.arange(120) + 500, noise=noise)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        from_arrays(x, y, noise=NoiseConfig("file", file=str(tmp_path / "nowhere")))


def test_a_transition_matrix_from_any_file(tmp_path, blobs):
    x, y = blobs
    table = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    np.save(tmp_path / "t.npy", table)
    (tmp_path / "t.json").write_text(json.dumps(table))
    (tmp_path / "t.csv").write_text("\n".join(",".join(map(str, row)) for row in table))
    for name in ("t.npy", "t.json", "t.csv"):
        data = from_arrays(x, y, noise=NoiseConfig("matrix", matrix=str(tmp_path / name)))
        assert np.array_equal(data.train.y, (data.train.y_true + 1) % 3)
        assert data.noise.rate == 1.0  # what the matrix implies


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[[0.5, 0.5], [0.5, 0.4]]", "must be non-negative and sum to 1"),
        ("[[1.5, -0.5], [0, 1]]", "must be non-negative and sum to 1"),
        ("[[NaN, 1], [0, 1]]", "must be non-negative and sum to 1"),
        ("[[0.5, 0.5]]", r"must be square, .* has shape \(1, 2\)"),
        ("[0.5, 0.5]", "must be square"),
        ("[[0.5], [1, 2]]", "cannot read a matrix of numbers"),
        ("hello", "cannot read a matrix of numbers"),
    ],
)
def test_bad_matrices_get_one_clear_line(tmp_path, content, message):
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_matrix(tmp_path / "t.json")


def test_a_matrix_of_the_wrong_size_or_place_is_refused(tmp_path, blobs):
    np.save(tmp_path / "t.npy", np.eye(4))
    with pytest.raises(ValueError, match=r"needs a 3 x 3 matrix for these classes, got \(4, 4\)"):
        from_arrays(*blobs, noise=NoiseConfig("matrix", matrix=str(tmp_path / "t.npy")))
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_matrix(tmp_path / "nowhere.npy")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "symmetrical"}, "unknown noise 'symmetrical'; did you mean 'symmetric'?"),
        ({"kind": "xyz"}, "unknown noise 'xyz'; choose one of none, file, symmetric"),
        ({"kind": "symmetric", "rate": 1.1}, r"noise.rate must lie in \[0, 1\], got 1.1"),
        ({"kind": "symmetric", "rate": -0.1}, r"noise.rate must lie in \[0, 1\], got -0.1"),
        ({"kind": "symmetric", "rate": float("nan")}, "noise.rate must lie"),
        ({"rate": 0.4}, "noise.rate 0.4 has no meaning for noise 'none'"),
        ({"kind": "matrix", "rate": 0.4, "matrix": "t.npy"}, "has no meaning for noise 'matrix'"),
        ({"kind": "file"}, "noise.file and noise 'file' belong together"),
        ({"kind": "symmetric", "matrix": "t.npy"}, "noise.matrix and noise 'matrix' belong together"),
    ],
)
def test_bad_configurations_get_one_clear_line(options, message):
    with pytest.raises(ValueError, match=message):
        NoiseConfig(**options)


def test_hyphens_are_accepted():
    assert NoiseConfig("symmetric-exclusive", 0.2).kind == "symmetric_exclusive"
