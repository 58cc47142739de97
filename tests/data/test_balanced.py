"""Class-balanced batches, drawn anew each epoch: a function of (seed, stage, epoch, pass) like every other order."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from elr.data import DataConfig, from_arrays
from elr.data.augment import VectorTransform
from elr.data.inputs import TensorInputs
from elr.data.split import balanced
from elr.data.stream import Batch, Stream, TrainData
from elr.engine.optim import OptimConfig
from elr.engine.schedule import SCHEDULES
from elr.engine.train import Job, train
from elr.methods import METHODS
from elr.methods.base import sweep
from elr.models import make_model
from elr.parts.clock import Clock
from elr.parts.draw import generator

Y = np.repeat(np.arange(4), [60, 25, 10, 5])  # (100,) a large class and a small one
Y.setflags(write=False)


def data(batches=6, size=10):
    x = torch.arange(len(Y), dtype=torch.float32)[:, None]
    y, ids = torch.from_numpy(Y.copy()), torch.arange(len(Y))
    return TrainData(
        TensorInputs(x), y, 4, VectorTransform(), ids=ids, batch_size=size, device=torch.device("cpu"),
        balanced_batches=batches,
    )  # fmt: skip


def drawn(source, clock, stream=None):
    return [batch.index.numpy() for batch in source.batches(stream or Stream(), clock)]


def test_classes_are_balanced_in_an_epoch_and_in_every_batch():
    batches = drawn(data(batches=7), Clock(0))
    assert [len(batch) for batch in batches] == [10] * 7
    counts = np.bincount(Y[np.concatenate(batches)])
    assert counts.max() - counts.min() <= 1
    for batch in batches:
        here = np.bincount(Y[batch], minlength=4)
        assert here.max() - here.min() <= 2


def test_no_row_comes_back_before_the_others_of_its_class():
    rows = balanced(Y, 80, generator(1))
    for label, size in enumerate(np.bincount(Y)):
        own = np.bincount(rows[Y[rows] == label], minlength=100)[label == Y]
        assert own.max() - own.min() <= 1
        assert own.sum() == 20
        assert own.max() == -(-20 // size)


def test_a_class_without_rows_and_gaps_in_the_numbers_are_no_trouble():
    y = np.array([0, 0, 7, 7, 7])
    assert np.bincount(y[balanced(y, 10, generator(0))])[[0, 7]].tolist() == [5, 5]


def test_every_epoch_pass_and_seed_has_a_draw_of_its_own_that_can_be_repeated():
    source = data()
    clocks = [Clock(0), Clock(0, epoch=1), Clock(0, turn=1), Clock(0, stage=1), Clock(1)]
    first = [np.concatenate(drawn(source, clock)).tolist() for clock in clocks]
    again = [np.concatenate(drawn(source, clock)).tolist() for clock in clocks]
    assert first == again
    assert len({tuple(rows) for rows in first}) == len(clocks)
    seen = np.concatenate([drawn(source, Clock(0, epoch=e)) for e in range(40)])
    assert len(np.unique(seen)) == 100  # all rows take part sooner or later: no fixed subset


def test_rows_that_a_method_chose_and_sweeps_are_left_alone():
    source = data()
    chosen = Stream(torch.arange(30))
    assert source.num_batches(chosen) == 3
    assert sorted(np.concatenate(drawn(source, Clock(0), chosen))) == list(range(30))
    assert torch.equal(sweep(lambda x: x, source)[:, 0], torch.arange(100.0))
    assert source.num_batches(Stream()) == 6
    assert source.num_batches(Stream(batch_size=4)) == 6
    assert [len(rows) for rows in drawn(source, Clock(0), Stream(batch_size=4))] == [4] * 6


def test_without_the_setting_nothing_changes():
    source = data(batches=None)
    assert sorted(np.concatenate(drawn(source, Clock(0)))) == list(range(100))
    assert source.num_batches(Stream()) == 10


def job(method, **settings):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 6)).astype(np.float32) + 2 * np.eye(6, dtype=np.float32)[Y]
    config = DataConfig(val_fraction=0, balanced_batches=3)
    loaded = from_arrays(x, Y, config=config)
    maker = lambda: make_model("mlp", loaded.shape, 4, hidden=(8,))  # noqa: E731
    return Job(
        METHODS[method](),
        maker,
        loaded,
        2,
        OptimConfig(batch_size=8),
        SCHEDULES["multistep"](milestones=(100,)),
        **settings,
    )


@pytest.mark.parametrize("method", ["ce", "elr", "elr_plus", "co_teaching", "dividemix", "mean_teacher", "sop"])
def test_methods_train_on_balanced_batches_and_keep_a_row_for_every_example(method):
    this = job(method)
    outcome = train(this)
    assert np.isfinite(outcome.records[-1]["loss"])
    if method in ("ce", "elr"):
        assert outcome.records[0]["gradients"] == pytest.approx(3 * 8 / 100)
    if method == "elr":
        (table,) = (value for key, value in this.method.state_dict().items() if key.endswith("_extra_state"))
        assert table.shape == (100, 4)
        assert 20 <= (table.sum(dim=1) > 0).sum() <= 48  # rows seen in two epochs of 24 draws


def test_joint_optimisation_has_a_label_for_examples_that_no_epoch_came_to():
    this = replace(job("joint_optim"), epochs=8)
    train(this)
    labels = this.method.corrected.values
    torch.testing.assert_close(labels.sum(dim=1), torch.ones(100))
    assert (labels.max(dim=1).values == 1).any()  # the given one
    assert (labels.max(dim=1).values < 1).any()  # the mean of predictions


def test_temporal_ensembling_asks_no_consistency_of_an_example_it_sees_for_the_first_time():
    method = METHODS["temporal_ensembling"]()
    method.build(lambda k=0: torch.nn.Linear(3, 2), 4, 2)
    method.ensemble.values[1] = torch.tensor([0.3, 0.1])  # seen once with alpha .6: .4 p
    clock = Clock(0, epoch=5, epochs=10)
    losses = [
        method.step(Batch(torch.tensor([row]), torch.ones(1, 3), torch.tensor([0])), clock).log["consistency"]
        for row in (0, 1)
    ]
    p = method.nets[0](torch.ones(1, 3)).softmax(dim=1)
    assert losses[0] == 0
    torch.testing.assert_close(losses[1], ((p - torch.tensor([[0.75, 0.25]])) ** 2).mean())


def test_more_epochs_see_the_same_draws_as_fewer():
    short, long = job("elr"), replace(job("elr"), epochs=4)
    first, second = train(short).records, train(long).records
    assert first == second[:2]


@pytest.mark.parametrize("batches", [0, -3])
def test_a_number_of_batches_that_cannot_be_gets_one_clear_line(batches):
    with pytest.raises(ValueError, match=r"data\.balanced_batches must be at least 1"):
        DataConfig(balanced_batches=batches)
