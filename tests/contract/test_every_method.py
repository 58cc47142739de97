"""What every method in the registry promises; a new one is picked up by its line there."""

import inspect
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from reference.resume import EPOCHS
from reference.tiny import FEATURES, TinyNet, blobs, tiny_data, tiny_job
from torch import nn

import elr
from elr.data import DataConfig, from_arrays
from elr.engine.checkpoint import checkpoints, read_tensors
from elr.engine.train import train
from elr.methods import METHODS

every_method = pytest.mark.parametrize("name", METHODS)


def same(a, b):
    """Two state dicts, bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def planned(name, epochs):
    """Epochs that a run of this length has: one that is shorter than the stages of its method is lengthened."""
    return sum(stage.epochs for stage in METHODS[name]().plan(epochs))


def trained(name, **settings):
    job = tiny_job(METHODS[name](), **settings)
    return job, train(job)


@every_method
def test_two_epochs_leave_finite_records_and_predictions_on_the_simplex(name):
    job, outcome = trained(name, data=tiny_data(71))  # 64 for training
    assert [record["epoch"] for record in outcome.records] == list(range(1, planned(name, 2) + 1))
    for record in outcome.records:
        assert {"loss", "lr", "val_accuracy", "test_accuracy", "clean_correct", "wrong_memorized"} <= record.keys()
        assert all(isinstance(value, int | float) and math.isfinite(value) for value in record.values())
    x = 100.0 * torch.randn(9, FEATURES)
    p = job.method.eval().predict(x)
    assert p.shape == (9, 3)
    assert (p >= 0).all()
    torch.testing.assert_close(p.sum(dim=1), torch.ones(9))
    assert all(value.isfinite().all() for value in job.method.state_dict().values())


@every_method
def test_same_seed_same_weights_and_other_seed_other_weights(name):
    first, a = trained(name, seed=5)
    torch.manual_seed(123)  # what the caller has drawn does not matter
    second, b = trained(name, seed=5)
    other, _ = trained(name, seed=6)
    assert same(first.method.state_dict(), second.method.state_dict())
    assert a.records == b.records
    start = dict(first.method.nets.named_parameters())
    assert all(not torch.equal(start[key], value) for key, value in other.method.nets.named_parameters())


@every_method
def test_training_leaves_the_callers_generators_and_threads_alone(name):
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    numpy_before = np.random.get_state()[1].copy()  # noqa: NPY002 (the global generator is what must not change)
    trained(name)
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(numpy_before, np.random.get_state()[1])  # noqa: NPY002
    assert threads == torch.get_num_threads()


@every_method
def test_state_round_trip(name):
    job, _ = trained(name)
    twin = METHODS[name]()
    twin.build(lambda k=0: TinyNet(3), len(job.data.train), 3)
    assert not same(twin.state_dict(), job.method.state_dict())
    twin.load_state_dict(job.method.state_dict())
    assert same(twin.state_dict(), job.method.state_dict())
    x = torch.randn(5, FEATURES)
    assert torch.equal(twin.eval().predict(x), job.method.eval().predict(x))


@every_method
@pytest.mark.parametrize(
    ("n", "batch_size"), [(50, 16), (33, 32), (20, 64)], ids=["ragged", "one left over", "one batch"]
)
def test_any_number_of_examples_trains(name, n, batch_size):
    data = tiny_data(n, val_fraction=0.0)
    _, outcome = trained(name, data=data, batch_size=batch_size, make_model=lambda: nn.Linear(FEATURES, 3))
    assert math.isfinite(outcome.records[-1]["loss"])
    assert outcome.selected_epoch is None


@every_method
def test_one_example_left_over_trains_a_network_with_batch_norm(name):
    """Batch norm cannot normalise one vector; a user does not choose the remainder of n by the batch size."""
    _, outcome = trained(name, data=tiny_data(33, val_fraction=0.0), batch_size=16)
    assert math.isfinite(outcome.records[-1]["loss"])


@every_method
def test_two_classes_train(name):
    job, outcome = trained(name, data=tiny_data(60, 2))
    assert math.isfinite(outcome.records[-1]["loss"])
    assert job.method.eval().predict(torch.randn(4, FEATURES)).shape == (4, 2)


@every_method
def test_batches_of_one_class_train(name):
    x, _, _ = blobs(48, 2)
    y = np.zeros(48, dtype=np.int64)
    y[7] = 1  # two of three batches hold class 0 only
    job, outcome = trained(name, data=from_arrays(x, y, config=DataConfig(val_fraction=0.0)))
    assert math.isfinite(outcome.records[-1]["loss"])
    assert all(value.isfinite().all() for value in job.method.state_dict().values())


@every_method
def test_training_learns(name):
    _, outcome = trained(name, data=tiny_data(150), epochs=8)
    assert outcome.records[-1]["test_accuracy"] > 0.8


@every_method
def test_hyperparameters_live_in_the_signature_and_are_stored_by_name(name):
    parameters = inspect.signature(METHODS[name]).parameters
    method = METHODS[name]()
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue  # nn.Module's own, of a method without hyperparameters
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert getattr(method, parameter.name) == parameter.default


@every_method
def test_an_infinite_setting_is_refused_or_trains(name):
    for parameter in inspect.signature(METHODS[name]).parameters.values():
        if "float" not in str(parameter.annotation):
            continue
        try:
            method = METHODS[name](**{parameter.name: math.inf})
        except ValueError:
            continue
        assert math.isfinite(train(tiny_job(method)).records[-1]["loss"])


@every_method
def test_no_state_is_float64(name):
    """MPS has none."""
    method = METHODS[name]()
    method.build(lambda k=0: TinyNet(3), 9, 3)
    assert all(value.dtype != torch.float64 for value in method.state_dict().values())


@every_method
@pytest.mark.parametrize("epochs", [1, 2, 3, 7, 60, 300])
def test_a_plan_lasts_as_long_as_it_is_told_to(name, epochs):
    stages = METHODS[name]().plan(epochs)
    assert all(stage.epochs >= 1 for stage in stages)
    assert sum(stage.epochs for stage in stages) == max(epochs, len(stages))


@every_method
def test_the_registry_can_be_read_by_a_user(name):
    method = METHODS[name]
    assert method.__doc__
    assert method.reference
    assert method.equation
    assert method.passes
    assert method.published
    assert method.per_example
    assert method.keeps in ("last", "selected")
    assert method().cost >= 1.0


def test_mixup_couples_the_examples_of_a_batch():
    assert METHODS["elr_plus"].batch_coupled
    assert not METHODS["elr"].batch_coupled


@every_method
def test_a_diverging_run_stops_with_one_clear_line(name):
    class Broken(nn.Linear):
        def forward(self, x):
            return super().forward(x) * float("nan")

    with pytest.raises(FloatingPointError, match="the loss became nan in epoch 1"):
        trained(name, make_model=lambda: Broken(FEATURES, 3))


# Interrupted runs. Each is cut by Ctrl-C, and all are finished by one new process.

PLACES = {"first epoch": (1, 2), "middle of an epoch": (3, 2), "between epochs": (2, None)}


class Interrupt:
    """Raises KeyboardInterrupt after a batch of an epoch, or after the epoch."""

    def __init__(self, epoch, batch):
        self.place = epoch, batch

    def batch(self, epoch, done, total):
        if (epoch, done) == self.place:
            raise KeyboardInterrupt

    def epoch(self, record, seconds):
        if (record["epoch"], None) == self.place:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """(method, place) -> (folder of the run without a break, folder of the interrupted and resumed one)."""
    root = tmp_path_factory.mktemp("runs")
    folders = {}
    for name in METHODS:
        whole = root / name
        whole.mkdir()
        train(tiny_job(METHODS[name](), epochs=EPOCHS, out=whole))
        for place, (epoch, batch) in PLACES.items():
            cut = root / f"{name} {place}"
            cut.mkdir()
            with pytest.raises(KeyboardInterrupt):
                train(tiny_job(METHODS[name](), epochs=EPOCHS, out=cut, progress=Interrupt(epoch, batch)))
            assert not (cut / "checkpoint" / f"epoch-{planned(name, EPOCHS):06d}.safetensors").exists()
            folders[name, place] = whole, cut
    command = [sys.executable, "-m", "reference.resume", *(f"{name}={cut}" for (name, _), (_, cut) in folders.items())]
    path = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(elr.__file__).parents[1])])
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})
    return folders


@every_method
@pytest.mark.parametrize("place", PLACES)
def test_resume_in_a_new_process_equals_the_run_without_a_break(resumed, name, place):
    whole, cut = resumed[name, place]
    assert (cut / "records.jsonl").read_bytes() == (whole / "records.jsonl").read_bytes()
    ours, theirs = checkpoints(whole / "checkpoint"), checkpoints(cut / "checkpoint")
    assert [path.name for path in theirs] == [path.name for path in ours]
    for path, other in zip(ours, theirs, strict=True):  # weights, momentum, targets, averaged copies
        assert path.read_bytes() == other.read_bytes()
    assert (cut / "selected.safetensors").read_bytes() == (whole / "selected.safetensors").read_bytes()


@every_method
def test_a_finished_run_is_left_as_it_is(resumed, name):
    whole, _ = resumed[name, "first epoch"]
    before = {path: path.read_bytes() for path in sorted(whole.rglob("*.*")) if path.name != "timing.jsonl"}
    outcome = train(tiny_job(METHODS[name](), epochs=EPOCHS, out=whole))
    assert len(outcome.records) == planned(name, EPOCHS)
    assert {path: path.read_bytes() for path in before} == before


@every_method
def test_a_checkpoint_of_another_configuration_is_refused(tmp_path, name):
    train(tiny_job(METHODS[name](), epochs=1, out=tmp_path, identity={"config": "a"}))
    with pytest.raises(ValueError, match="belongs to another run: its config is a, this one's is b"):
        train(tiny_job(METHODS[name](), epochs=1, out=tmp_path, identity={"config": "b"}))


@every_method
def test_checkpoint_holds_momentum_and_all_state(tmp_path, name):
    job = tiny_job(METHODS[name](), epochs=1, out=tmp_path)
    train(job)
    tensors, metadata = read_tensors(checkpoints(tmp_path / "checkpoint")[-1])
    assert metadata["epoch"] == planned(name, 1)
    assert {
        key.removeprefix("method.") for key in tensors if key.startswith("method.")
    } == job.method.state_dict().keys()
    trainable = [p for p in job.method.parameters() if p.requires_grad]
    assert sum(key.startswith("momentum.") for key in tensors) == len(trainable)


@every_method
def test_progress_counts_every_batch_of_the_epoch_up_to_the_total(name):
    class Count:
        def __init__(self):
            self.seen = []

        def batch(self, epoch, done, total):
            self.seen = [*(self.seen if done > 1 else []), (done, total)]  # those of one epoch

        def epoch(self, record, seconds):
            pass

    count = Count()
    trained(name, epochs=1, progress=count)
    assert [done for done, _ in count.seen] == list(range(1, len(count.seen) + 1))
    assert count.seen[-1][0] == count.seen[-1][1]
