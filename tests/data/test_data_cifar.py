import pickle
import sys

import numpy as np
import pytest
import torch

from elr.data import DataConfig, load
from elr.data.pickled import read_pickle
from elr.noise import NoiseConfig

NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def images(count, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 3072), dtype=np.uint8), np.arange(count) % 10


def cifar10(root, layout):
    """Tiny CIFAR-10 in its official layout: five batches of 20, 20 for testing."""
    folder = root / ("cifar-10-batches-bin" if layout == "binary" else "cifar-10-batches-py")
    folder.mkdir(parents=True)
    for number, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        x, y = images(20, number)
        if layout == "binary":
            np.concatenate([y[:, None].astype(np.uint8), x], axis=1).tofile(folder / f"{name}.bin")
        else:
            content = {"data": x, "labels": y.tolist(), "filenames": ["a.png"] * 20, "batch_label": name}
            (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    if layout == "binary":
        (folder / "batches.meta.txt").write_text("\n".join(NAMES) + "\n\n")
    else:
        (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": NAMES, "num_vis": 3072}, protocol=2))
    return folder


def cifar100(root, layout):
    """Tiny CIFAR-100: six classes whose two superclasses are not consecutive."""
    folder = root / ("cifar-100-binary" if layout == "binary" else "cifar-100-python")
    folder.mkdir(parents=True)
    names = ["apple", "bee", "cup", "dill", "emu", "fern"]
    for name, count in (("train", 60), ("test", 12)):
        x, _ = images(count, count)
        y = np.arange(count) % 6
        coarse = np.array([1, 0, 1, 0, 1, 0])[y]
        if layout == "binary":
            labels = np.stack([coarse, y], axis=1).astype(np.uint8)
            np.concatenate([labels, x], axis=1).tofile(folder / f"{name}.bin")
        else:
            content = {b"data": x, b"fine_labels": y.tolist(), b"coarse_labels": coarse.tolist()}
            (folder / name).write_bytes(pickle.dumps(content, protocol=4))
    if layout == "binary":
        (folder / "fine_label_names.txt").write_text("\n".join(names) + "\n")
    else:
        (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": names, "coarse_label_names": ["a", "b"]}, 2))
    return folder


@pytest.mark.parametrize("layout", ["binary", "python"])
def test_cifar10_in_official_order(tmp_path, layout):
    folder = cifar10(tmp_path, layout)
    expected = np.concatenate([images(20, number)[0] for number in range(5)]).reshape(-1, 3, 32, 32)
    for config in (
        DataConfig("cifar10", root=str(tmp_path)),
        DataConfig("cifar10", root=str(folder)),
        DataConfig(str(folder)),
    ):
        data = load(config)
        assert (data.name, data.classes) == ("cifar10", tuple(NAMES))
        assert (len(data.train), len(data.val), len(data.test)) == (90, 10, 20)
        for part in (data.train, data.val):
            assert np.array_equal(part.inputs.fetch(torch.arange(len(part))), expected[part.ids])
            assert np.array_equal(part.y, part.ids % 10)
        assert data.transform.mean == (0.4914, 0.4822, 0.4465)
        assert data.transform.std == (0.2023, 0.1994, 0.2010)
        assert (data.transform.pad, data.transform.flip, data.transform.padding) == (4, True, "zeros")


@pytest.mark.parametrize("layout", ["binary", "python"])
def test_cifar100_takes_superclasses_from_the_data(tmp_path, layout):
    cifar100(tmp_path, layout)
    data = load(DataConfig("cifar100", root=str(tmp_path), val_fraction=0), NoiseConfig("asymmetric", 1.0))
    assert data.classes == ("apple", "bee", "cup", "dill", "emu", "fern")
    after = np.array([2, 3, 4, 5, 0, 1])  # the next class of the same superclass, cyclically
    assert np.array_equal(data.train.y, after[data.train.y_true])
    assert data.transform.mean == (0.5071, 0.4867, 0.4408)


def test_human_labels_are_judged_by_those_of_cifar(tmp_path):
    cifar10(tmp_path, "binary")
    np.savez(tmp_path / "human.npz", worst=(np.arange(100) + 1) % 10)
    data = load(DataConfig("cifar10", root=str(tmp_path), labels=str(tmp_path / "human.npz")))
    assert np.array_equal(data.train.y, (data.train.ids + 1) % 10)
    assert np.array_equal(data.train.y_true, data.train.ids % 10)


def test_cifar_is_found_through_the_environment(tmp_path, monkeypatch):
    cifar10(tmp_path, "binary")
    monkeypatch.setenv("ELR_DATA", str(tmp_path))
    assert len(load(DataConfig("cifar10")).test) == 20


def test_missing_cifar_says_what_to_put_where(tmp_path, monkeypatch):
    monkeypatch.delenv("ELR_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"CIFAR-10 not found: set --data.root DIR or \$ELR_DATA .*batches-bin"):
        load(DataConfig("cifar10"))
    with pytest.raises(
        FileNotFoundError, match=r"CIFAR-100 not found: put into .* cifar-100-binary or cifar-100-python"
    ):
        load(DataConfig("cifar100", root=str(tmp_path)))


def test_damaged_cifar_files_are_named(tmp_path):
    folder = cifar10(tmp_path, "binary")
    batch = folder / "data_batch_3.bin"
    content = batch.read_bytes()

    def message():
        with pytest.raises((ValueError, FileNotFoundError), match=r"data_batch_3\.bin") as caught:
            load(DataConfig("cifar10", root=str(tmp_path)))
        return str(caught.value)

    batch.write_bytes(content[:-1])
    assert "is truncated" in message()
    batch.write_bytes(b"\x0b" + content[1:])
    assert "label 11 for 10 classes" in message()
    batch.write_bytes(b"")
    assert "no image" in message()
    batch.unlink()
    assert "CIFAR-10 is incomplete" in message()


def test_damaged_python_batches_are_named(tmp_path):
    folder = cifar10(tmp_path, "python")
    batch = folder / "data_batch_2"
    content = batch.read_bytes()

    def message():
        with pytest.raises(ValueError, match="data_batch_2") as caught:
            load(DataConfig("cifar10", root=str(tmp_path)))
        return str(caught.value)

    batch.write_bytes(content[: len(content) // 2])
    assert "cannot read" in message()
    batch.write_bytes(b"")
    assert "cannot read" in message()
    batch.write_bytes(pickle.dumps([1, 2], 2))
    assert "holds a list, expected a dictionary" in message()
    batch.write_bytes(pickle.dumps({"data": np.zeros((2, 3072), np.uint8)}, 2))
    assert "is no CIFAR batch: 'labels'" in message()
    batch.write_bytes(pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, 2))
    assert "2 images and 1 labels" in message()
    batch.write_bytes(pickle.dumps({"data": np.array([{}], dtype=object), "labels": [1]}, 2))
    assert "no plain number" in message()


def python2_batch():
    """A batch byte by byte as Python 2's cPickle wrote the official files: text opcodes, memo, numpy.core."""
    pixels = bytes(range(6))
    return (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b"
        b"\x87Rq\x05(K\x01K\x02K\x03\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89T\x06\x00\x00\x00"
        + pixels
        + b"tbU\x06labelsq\x08]q\x09(K\x07K\x01eU\x05againh\x05u."
    )


def test_python_two_pickles_are_read(tmp_path):
    (tmp_path / "batch").write_bytes(python2_batch())
    content = read_pickle(tmp_path / "batch")
    assert np.array_equal(content["data"], [[0, 1, 2], [3, 4, 5]])
    assert content["labels"] == [7, 1]
    assert content["again"] is content["data"]


@pytest.mark.parametrize("protocol", range(5))
def test_every_pickle_protocol_is_read(tmp_path, protocol):
    content = {
        "data": np.arange(12, dtype=np.uint8).reshape(3, 4),
        "fortran": np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3)),
        "plain": [
            1,
            -300,
            70000,
            2**40,
            1.5,
            True,
            False,
            None,
            (),
            (1,),
            (1, 2),
            (1, 2, 3),
            (1, 2, 3, 4),
            "é",
            b"\xff",
        ],
    }
    (tmp_path / "p").write_bytes(pickle.dumps(content, protocol))
    got = read_pickle(tmp_path / "p")
    assert np.array_equal(got["data"], content["data"])
    assert np.array_equal(got["fortran"], content["fortran"])
    assert got["plain"] == content["plain"]


class Attack:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_runs_code_is_refused_and_does_not_run(tmp_path, protocol):
    mark = tmp_path / "executed"
    for payload, name in (
        (Attack(open, str(mark), "w"), "open"),
        (Attack(exec, f"open({str(mark)!r}, 'w')"), "exec"),
        (Attack(__import__("os").system, f"touch {mark}"), "system"),
        (Attack(np.load, str(mark)), "load"),
    ):
        (tmp_path / "batch").write_bytes(pickle.dumps({"data": payload}, protocol))
        with pytest.raises(ValueError, match=rf"cannot read .*batch: refers to \S+\.{name}, which is not read here"):
            read_pickle(tmp_path / "batch")
        assert not mark.exists()


def test_reading_a_pickle_imports_nothing(tmp_path):
    (tmp_path / "batch").write_bytes(b"\x80\x02}U\x04datacthis_module_is_evil\nrun\n)Rs.")
    before = set(sys.modules)
    with pytest.raises(ValueError, match=r"refers to this_module_is_evil.run"):
        read_pickle(tmp_path / "batch")
    assert set(sys.modules) == before


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (b"\x80\x02}U\x04dataK\x01K\x02Rs.", "calls something that is no name"),
        (b"\x80\x02}U\x04datacnumpy\nndarray\n)Rs.", "calls numpy.ndarray"),
        (b"\x80\x02}U\x04data}K\x01bs.", "sets the state of something that is no array"),
        (b"\x80\x02}U\x04data(cnumpy\ndtype\noU\x01as.", "instruction OBJ"),
        (b"\x80\x02e.", "cannot read"),
        (b"\x80\x02h\x05.", "cannot read"),
        (b"\x80\x02K\x01", "cannot read"),
    ],
)
def test_odd_pickle_programs_are_refused(tmp_path, program, message):
    (tmp_path / "batch").write_bytes(program)
    with pytest.raises(ValueError, match=message):
        read_pickle(tmp_path / "batch")
