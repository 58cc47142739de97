"""Bad input gets one clear line that names the thing, exit code 2, and leaves every file as it was."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import elr
from elr.cli import main
from elr.engine.device import private_randomness

X = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
Y = np.arange(40) % 2


def write_arrays(folder: Path) -> None:
    nan = X.copy()
    nan[3, 1] = np.nan
    files: dict[str, dict[str, object]] = {
        "fine": {"x": X, "y": Y},
        "nan": {"x": nan, "y": Y},
        "infinite": {"x": X, "y": Y, "x_test": X.astype(np.float64) * 1e300, "y_test": Y},
        "short": {"x": X, "y": Y[:30]},
        "short_truth": {"x": X, "y": Y, "y_true": Y[:5]},
        "one_class": {"x": X, "y": Y * 0},
        "empty": {"x": X[:0], "y": Y[:0]},
        "empty_test": {"x": X, "y": Y, "x_test": X[:0], "y_test": Y[:0]},
        "outside": {"x": X, "y": Y, "x_test": X, "y_test": Y + 5, "classes": np.array(["cat", "dog"])},
        "negative": {"x": X, "y": Y - 1},
        "half_labels": {"x": X, "y": Y + 0.5},
        "no_labels": {"x": X},
        "objects": {"x": np.array([None] * 4), "y": Y[:4]},
        "five_axes": {"x": np.zeros((4, 2, 2, 2, 2)), "y": Y[:4]},
        "other_shape": {"x": X[:, :2], "y": Y},
    }
    for name, arrays in files.items():
        np.savez(folder / f"{name}.npz", **arrays)
    content = (folder / "fine.npz").read_bytes()
    (folder / "truncated.npz").write_bytes(content[: len(content) // 2])
    (folder / "nothing.npz").write_bytes(b"")


def write_texts(folder: Path) -> None:
    texts = {
        "unknown_key.toml": '[method]\nname = "elr"\nlamb = 3\n',
        "unknown_table.toml": "[optm]\nlr = 0.1\n",
        "unknown_top.toml": "epoch = 3\n",
        "truncated.toml": '[method\nname = "el',
        "bool_as_text.toml": '[data]\naugment = "perhaps"\n',
        "text_as_number.toml": '[optim]\nlr = "fast"\n',
        "bool_as_number.toml": "epochs = true\n",
        "deep.toml": "[method.name]\nx = 1\n",
        "missing_image.csv": "path,label\nphotos/a/0.png,a\nphotos/b/nowhere.png,b\n",
        "other_columns.csv": "file,label\nphotos/a/0.png,a\n",
        "ragged.csv": "path,label\nphotos/a/0.png\n",
        "few.csv": "id,label\n0,1\n",
        "strange.csv": "id,label\n" + "".join(f"{row},7\n" for row in range(40)),
        "no_rates.csv": "1,0\n0.5,0.6\n",
        "three.csv": "1,0,0\n0,1,0\n0,0,1\n",
        "what.foo": "hello",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "binary.toml").write_bytes(b"\xff\xfe\x00")


def write_images(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for label in "ab":
        (folder / "photos" / label).mkdir(parents=True)
        for row in range(4):
            pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / label / f"{row}.png")
    shutil.copytree(folder / "photos", folder / "photos_truncated")
    broken = folder / "photos_truncated" / "a" / "3.png"
    broken.write_bytes(broken.read_bytes()[:60])
    (folder / "flat").mkdir()
    shutil.copy(folder / "photos" / "a" / "0.png", folder / "flat")
    (folder / "bare").mkdir()
    cifar = folder / "cifar-10-batches-bin"
    cifar.mkdir()
    names = "airplane automobile bird cat deer dog frog horse ship truck".split()  # noqa: SIM905
    (cifar / "batches.meta.txt").write_text("\n".join(names))
    (cifar / "data_batch_1.bin").write_bytes(bytes(5000))


def write_runs(folder: Path) -> None:
    words = ["train", "fine.npz", "--model", "linear", "--noise", "symmetric", "--noise.rate", "0.2", "--quiet"]
    assert main([*words, "--epochs", "1", "--out", "run"]) == 0
    assert main([*words, "--epochs", "3", "--out", "half"]) == 0
    assert main([*words, "--epochs", "3", "--method.lam", "1", "--out", "other"]) == 0
    for name in ("summary.json", "model.safetensors"):
        (folder / "half" / name).unlink()
    shutil.copytree("half", "half_other")
    shutil.copy("other/checkpoint/epoch-000003.safetensors", "half_other/checkpoint")
    shutil.copytree("half", "half_damaged")
    shutil.copytree("half", "half_noise")
    for path in [
        *Path("half_damaged/checkpoint").iterdir(),
        Path(shutil.copytree("run", "run_truncated")) / "model.safetensors",
        Path(shutil.copytree("run", "noise_truncated")) / "noise.npz",
        Path(shutil.copytree("run", "config_truncated")) / "config.toml",
        Path(shutil.copytree("run", "classes_truncated")) / "classes.json",
    ]:
        content = path.read_bytes()
        path.write_bytes(content[: min(50, len(content) // 2)])
    header = Path(shutil.copytree("run", "noise_changed")) / "noise.json"
    header.write_text(header.read_text().replace('"symmetric"', '"pair"'))
    (folder / "foreign").mkdir()
    (folder / "foreign" / "thesis.txt").write_text("mine")
    (folder / "notes" / "ce").mkdir(parents=True)
    (folder / "notes" / "ce" / "notes.txt").write_text("mine")
    (folder / "file").write_text("mine")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with bad input of every kind; tests run inside."""
    place = tmp_path_factory.mktemp("bad")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.delenv("ELR_DATA", raising=False)
        write_arrays(place)
        write_texts(place)
        write_images(place)
        write_runs(place)
        yield place


def state(folder: Path) -> dict[str, str]:
    """Every file and folder with its content."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in folder.rglob("*")
    }


# Every `train` is given --quiet, and --out new unless it says where to write.
TRAIN = "train fine.npz --model linear "
CASES = {
    # a name that does not exist, with the nearest that does
    "flag": (TRAIN + "--methox elr", "unknown flag '--methox'; did you mean '--method'?"),
    "flag of a table": (TRAIN + "--method.lamb 3", "unknown flag '--method.lamb'; did you mean '--method.lam'?"),
    "flag without its table": (TRAIN + "--lam 3", "unknown flag '--lam'; did you mean '--method.lam'?"),
    "learning rate without its table": (TRAIN + "--lr 3", "unknown flag '--lr'; did you mean '--optim.lr'?"),
    "device without its table": (TRAIN + "--device cpu", "did you mean '--runtime.device'?"),
    "argument of another model": (TRAIN + "--model.width 3", "unknown flag '--model.width'; model 'linear' has bias"),
    "argument of another method": (TRAIN + "--method ce --method.lam 3", "method 'ce' has no options"),
    "argument of another schedule": (TRAIN + "--schedule cosine --schedule.factor 3", "'cosine' has period, min_lr"),
    "abbreviated flag": (TRAIN + "--resu", "unknown flag '--resu'; did you mean '--resume'?"),
    "command": ("trainn fine.npz", "unknown command 'trainn'; did you mean 'train'?"),
    "method": (TRAIN + "--method erl", "unknown method 'erl'; did you mean 'elr'?"),
    "model": ("train fine.npz --model small_cn", "unknown model 'small_cn'; did you mean 'small_cnn'?"),
    "library model": ("train photos --model torchvision:resnet19", "did you mean torchvision:resnet18"),
    "schedule": (TRAIN + "--schedule cosin", "unknown schedule 'cosin'; did you mean 'cosine'?"),
    "noise": (TRAIN + "--noise symmetrik", "unknown noise 'symmetrik'; did you mean 'symmetric'?"),
    "optimizer": (TRAIN + "--optim adagrad", "optim.name must be one of sgd, adam, muon, got 'adagrad'"),
    "key in TOML": (TRAIN + "--config unknown_key.toml", "unknown option 'method.lamb'; did you mean 'method.lam'?"),
    "table in TOML": (TRAIN + "--config unknown_table.toml", "'optm.lr'; did you mean 'optim.lr'?"),
    "top key in TOML": (TRAIN + "--config unknown_top.toml", "unknown option 'epoch'; did you mean 'epochs'?"),
    "method to explain": ("methods elrplus", "unknown method 'elrplus'; did you mean 'elr_plus'?"),
    "model to explain": ("models resnet35", "unknown model 'resnet35'; did you mean 'resnet34'?"),
    "flag of predict": ("predict run fine.npz --whch last", "unknown flag '--whch'; did you mean '--which'?"),
    "flag of demo": ("demo --sed 3", "unknown flag '--sed'; did you mean '--seed'?"),
    # a value out of range
    "rate above one": (TRAIN + "--noise symmetric --noise.rate 1.5", "noise.rate must lie in [0, 1], got 1.5"),
    "rate below zero": (TRAIN + "--noise symmetric --noise.rate -0.1", "noise.rate must lie in [0, 1], got -0.1"),
    "rate not a number": (TRAIN + "--noise symmetric --noise.rate nan", "noise.rate must lie in [0, 1], got nan"),
    "rate without noise": (TRAIN + "--noise.rate 0.4", "noise.rate 0.4 has no meaning for noise 'none'"),
    "beta of one": (TRAIN + "--method.beta 1", "beta must lie in [0, 1), got 1.0"),
    "beta above one": (TRAIN + "--method.beta 1.5", "beta must lie in [0, 1), got 1.5"),
    "negative lambda": (TRAIN + "--method.lam -1", "lam must be a finite number of at least 0, got -1.0"),
    "gamma of one": (TRAIN + "--method elr_plus --method.gamma 1", "gamma must lie in [0, 1), got 1.0"),
    "three networks": (TRAIN + "--method elr_plus --method.networks 3", "method.networks must be one of 1, 2, got '3'"),
    "negative epochs": (TRAIN + "--epochs -3", "epochs must be at least 1, got -3"),
    "no epochs": (TRAIN + "--epochs 0", "epochs must be at least 1, got 0"),
    "half an epoch": (TRAIN + "--epochs 2.5", "epochs must be a whole number, got '2.5'"),
    "learning rate of zero": (TRAIN + "--optim.lr 0", "optim.lr must be positive, got 0.0"),
    "momentum of one": (TRAIN + "--optim.momentum 1", "optim.momentum must lie in [0, 1), got 1.0"),
    "batch of nothing": (TRAIN + "--optim.batch_size 0", "optim.batch_size must be at least 1, got 0"),
    "milestones out of order": (TRAIN + "--schedule.milestones 5,3", "schedule.milestones must be increasing"),
    "all for validation": (TRAIN + "--data.val_fraction 1", "data.val_fraction must lie in [0, 1), got 1.0"),
    "subset too large": (TRAIN + "--data.subset 1000", "data.subset 1,000 exceeds the 36 training examples"),
    "no threads": (TRAIN + "--runtime.threads 0", "runtime.threads must be at least 1, got 0"),
    # a value of another type
    "text for a number": (TRAIN + "--seed x", "seed must be a whole number, got 'x'"),
    "text for numbers": (TRAIN + "--schedule.milestones a,b", "schedule.milestones must be whole numbers separated by"),
    "text for a truth value": (TRAIN + "--data.augment perhaps", "data.augment must be true or false, got 'perhaps'"),
    "choice": (TRAIN + "--runtime.precision float16", "must be one of float32, bfloat16, got 'float16'"),
    "text for a truth value in TOML": (TRAIN + "--config bool_as_text.toml", "data.augment must be true or false"),
    "text for a number in TOML": (TRAIN + "--config text_as_number.toml", "optim.lr must be a number, got 'fast'"),
    "truth value for a number in TOML": (TRAIN + "--config bool_as_number.toml", "epochs must be a whole number, got"),
    "table for a value in TOML": (TRAIN + "--config deep.toml", "deep.toml: method.name must be a value, not a table"),
    "flag without its value": (TRAIN + "--epochs", "argument --epochs: expected one argument"),
    # data
    "no such data": ("train nowhere", "no data source and no path 'nowhere'"),
    "misspelt data": ("train digit", "'digit'; did you mean 'digits'?"),
    "data twice": ("train fine.npz --data digits", "data are given twice: 'fine.npz' and --data 'digits'"),
    "one argument too many": ("train fine.npz digits", "unexpected argument 'digits'"),
    "file of no known kind": ("train what.foo", "cannot tell what what.foo is"),
    "label outside the classes": ("train outside.npz", "'5' of the test part of outside.npz is outside"),
    "negative label": ("train negative.npz", "label -1 of the train part of negative.npz is negative"),
    "label between two classes": ("train half_labels.npz", "half_labels.npz must be class names or"),
    "one class only": ("train one_class.npz", "one_class.npz has 1 class only, '0'"),
    "no examples": ("train empty.npz", "the train part of empty.npz is empty"),
    "empty test split": ("train empty_test.npz", "the test part of empty_test.npz is empty"),
    "empty validation split": (TRAIN + "--data.val_fraction 0.001", "the val part of fine.npz is empty"),
    "NaN": ("train nan.npz", "nan.npz: x holds NaN, infinity or a value beyond float32 in row 3"),
    "infinity": ("train infinite.npz", "infinite.npz: x_test holds NaN, infinity"),
    "fewer labels than inputs": ("train short.npz", "short.npz has 40 inputs and 30 labels"),
    "fewer true labels": ("train short_truth.npz", "5 true labels"),
    "no labels": ("train no_labels.npz", "no_labels.npz has no array 'y', only x"),
    "pickled objects": ("train objects.npz", "cannot read objects.npz"),
    "five axes": ("train five_axes.npz", "five_axes.npz: x must have shape"),
    "truncated npz": ("train truncated.npz", "cannot read truncated.npz"),
    "npz of no bytes": ("train nothing.npz", "cannot read nothing.npz"),
    "truncated image": ("train photos_truncated", "cannot decode photos_truncated/a/3.png"),
    "missing image": ("train missing_image.csv", "cannot decode photos/b/nowhere.png"),
    "folder without classes": ("train flat", "flat holds no images; expected a folder for each class"),
    "folder without images": ("train bare", "bare holds no images"),
    "manifest without the column": ("train other_columns.csv", "has no column 'path'"),
    "ragged manifest": ("train ragged.csv", "line 2 of ragged.csv has 1 values, the header 2"),
    "missing CIFAR": ("train cifar10", "set --data.root DIR or $ELR_DATA to the folder that holds"),
    "missing CIFAR in a folder": ("train cifar100 --data.root bare", "CIFAR-100 not found: put into bare"),
    "truncated CIFAR": ("train cifar10 --data.root .", "data_batch_1.bin is truncated"),
    "labels for other ids": (TRAIN + "--data.labels few.csv", "ids of label file few.csv do not match"),
    "labels outside the classes": (TRAIN + "--data.labels strange.csv", "label '7' of label file strange.csv is"),
    "missing labels": (TRAIN + "--data.labels nowhere.csv", "nowhere.csv does not exist"),
    # noise
    "asymmetric noise without CIFAR": (TRAIN + "--noise asymmetric --noise.rate 0.4", "cifar10 and cifar100 only"),
    "matrix that is none": (TRAIN + "--noise matrix --noise.matrix no_rates.csv", "must be non-negative and sum"),
    "matrix for other classes": (TRAIN + "--noise matrix --noise.matrix three.csv", "needs a 2 x 2 matrix"),
    "truncated noise": (TRAIN + "--noise file --noise.file noise_truncated", "noise saved in noise_truncated"),
    "changed noise": (TRAIN + "--noise file --noise.file noise_changed", "noise_changed: noise.json and noise.npz do"),
    "missing noise": (TRAIN + "--noise file --noise.file nowhere", "noise file nowhere.json does not exist"),
    "noise of other data": ("train digits --noise file --noise.file run", "made for other classes"),
    "noise without a rate": (TRAIN + "--noise symmetric", "noise 'symmetric' needs noise.rate"),
    "negative seed": (TRAIN + "--seed -1", "seed must be 0 or more, got -1"),
    "negative seed of noise": (TRAIN + "--noise.seed -2", "noise.seed must be 0 or more, got -2"),
    "cosine that rises": (
        TRAIN + "--schedule cosine --schedule.min_lr 0.1 --optim.lr 0.01", "schedule.min_lr 0.1 is above optim.lr 0.01"
    ),
    # configuration files
    "truncated TOML": (TRAIN + "--config truncated.toml", "configuration truncated.toml cannot be read"),
    "TOML that is not text": (TRAIN + "--config binary.toml", "configuration binary.toml cannot be read"),
    "missing TOML": (TRAIN + "--config nowhere.toml", "configuration nowhere.toml does not exist"),
    "folder for a TOML": (TRAIN + "--config bare", "configuration bare cannot be read"),
    # network and device
    "network for images": ("train fine.npz --model small_cnn", "small_cnn needs images of at least 4x4"),
    "dropout above one": ("train photos --model.dropout 1.5", "dropout"),
    "network from Python": (TRAIN + "--model custom:Mine", "model 'custom:Mine' was given from Python"),
    "device that does not exist": (TRAIN + "--runtime gpu", "runtime.device 'gpu' cannot be used here"),
    "network of no width": ("train photos --model resnet18 --model.width -1", "needs a width of at least 1, got -1"),
    "device without numbers": (TRAIN + "--runtime meta", "runtime.device 'meta' holds no numbers"),
    "device that is not there": (TRAIN + "--runtime cuda:99", "runtime.device 'cuda:99' cannot be used here"),
    # output
    "another run": ("train fine.npz --out run", "run already holds a run; go on with --resume"),
    "foreign files": ("train fine.npz --out foreign", "foreign is not empty and not a run"),
    "a file for a folder": ("train fine.npz --out file", "file is a file, not a folder"),
    "a file on the way": ("train fine.npz --out file/new", "file is a file, not a folder"),
    "demo among foreign files": ("demo --out foreign", "foreign holds more than a demo (thesis.txt)"),
    "demo in place of foreign files": ("demo --force --out foreign", "holds more than a demo (thesis.txt)"),
    "demo in place of another's folder": ("demo --force --out notes", "notes/ce is not of a demo; choose another"),
    "no seeds of a figure": ("reproduce figA1 --seeds -3 --out new", "--seeds must be at least 1, got -3"),
    "nothing to compare by": (
        "bench fine.npz --model mlp --data.val_fraction 0 --out new", "nothing to compare methods by"
    ),
    "demo in place of a file": ("demo --force --out file", "file is a file, not a folder"),
    "predictions over a file": ("predict run fine.npz --out what.foo", "what.foo exists already"),
    # resume
    "resume without a run": ("train --out nowhere --resume", "nowhere holds no run to go on with"),
    "resume with other epochs": ("train --out half --resume --epochs 5", "its epochs is 3, here it is 5"),
    "resume with another batch size": ("train --out half --resume --optim.batch_size 7", "its optim.batch_size is 128"),
    "resume with another seed": ("train --out half --resume --seed 1", "half holds another run: its seed is 0, here"),
    "resume with another method": ("train --out half --resume --method ce", "its method.name is 'elr', here it is"),
    "resume with other data": ("train digits --out half --resume", "its data.source is 'fine.npz', here it is"),
    "resume a finished run with other epochs": ("train --out run --resume --epochs 5", "its epochs is 1, here it is 5"),
    "checkpoint of another run": (
        "train --out half_other --resume", "epoch-000003.safetensors belongs to another run: its config is"
    ),
    "no readable checkpoint": (
        "train --out half_damaged --resume", "epoch-000003.safetensors is not a readable safetensors file"
    ),
    "truncated settings of a run": ("train --out config_truncated --resume", "config_truncated/config.toml cannot be"),
    # using a run
    "no run": ("predict nowhere fine.npz", "nowhere is not a run: it has no config.toml"),
    "run without weights": ("predict half fine.npz", "half is not finished: go on with `elr train --out half"),
    "truncated weights": ("predict run_truncated fine.npz", "run_truncated/model.safetensors is not a readable"),
    "truncated class names": ("predict classes_truncated fine.npz", "classes_truncated/classes.json is not valid JSON"),
    "nothing to predict": ("predict run", "the following arguments are required: INPUT"),
    "inputs of another shape": ("predict run other_shape.npz", "inputs have shape (2,), the run was trained on (4,)"),
    "inputs of another kind": ("predict run photos", "inputs have shape (3, 16, 16), the run was trained on (4,)"),
    "inputs with NaN": ("predict run nan.npz", "nan.npz: x holds NaN"),
    "no such inputs": ("predict run nowhere", "no data source and no path 'nowhere'"),
    "unknown weights": ("predict run fine.npz --which best", "--which: invalid choice: 'best'"),
    "no test part": ("evaluate run", "fine.npz has no test part; choose another --split"),
    "labels of other classes": ("evaluate run digits", "is outside the 2 classes: 0, 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_one_clear_line_and_changes_nothing(
    case: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command, message = CASES[case]
    words = command.split()
    if words[0] == "train":
        words += ["--quiet", *(() if "--out" in words else ("--out", "new"))]
    before = state(folder)
    code = main(words)
    out, err = capfd.readouterr()
    assert code == 2
    assert out == ""
    assert err.startswith("elr: ")
    assert len(err.splitlines()) == 1
    assert message in err
    assert state(folder) == before


def test_the_plan_is_shown_before_a_network_that_does_not_fit(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "fine.npz", "--out", "new"]) == 2
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith("fine.npz: 36 train, 4 val; 2 classes")
    assert lines[-1].startswith("elr: small_cnn needs images")
    assert not (folder / "new").exists()


def test_data_that_changed_since_the_start_are_refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.copytree("half", "half_changed")
    config = folder / "half_changed" / "config.toml"
    config.write_text(config.read_text().replace("fine.npz", "changing.npz"))
    for arrays, name in (({"x": X, "y": 1 - Y}, "sha256"), ({"x": X + 1, "y": Y}, "transform")):
        np.savez("changing.npz", **arrays)
        saved = folder / "half_changed" / "data.json"
        saved.write_text(saved.read_text().replace("fine.npz", "changing.npz"))
        before = state(folder)
        assert main(["train", "--out", "half_changed", "--resume", "--quiet"]) == 2
        assert f"half_changed holds a run on other data: {name} has changed" in capfd.readouterr().err
        assert state(folder) == before


def test_a_loss_that_is_not_finite_is_a_failure_not_bad_input(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = f"train digits --data.subset 64 --method ce --optim.lr 1e30 --epochs 3 --quiet --out {tmp_path}/run"
    assert main(words.split()) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("elr: the loss became ")
    assert "lower optim.lr" in line


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(4, 3), r"the network gives \(1, 3\) for one input, expected \(1, 2\)"),
        (nn.Linear(5, 2), r"the network cannot take inputs of shape \(4,\)"),
        ({"name": "mlp", "dropout": "much"}, "model.dropout must be a number, got 'much'"),
        ({"name": "mlp", "dropuot": 0.1}, "unknown option 'model.dropuot'; did you mean 'model.dropout'"),
    ],
)
def test_fit_refuses_a_network_that_does_not_fit(model: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        elr.fit(model, (X, Y), epochs=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_fit_leaves_the_generators_of_the_caller_alone(tmp_path: Path) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    elr.fit("mlp", (X, Y), epochs=1, out=tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), before)


def test_on_an_apple_gpu_its_generator_is_given_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none here, so that its two functions are stood in for."""
    state = [torch.tensor([1])]
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: state[0])
    monkeypatch.setattr(torch.mps, "set_rng_state", lambda value: state.__setitem__(0, value))
    with private_randomness(torch.device("mps")):
        state[0] = torch.tensor([2])
    assert state[0].item() == 1
