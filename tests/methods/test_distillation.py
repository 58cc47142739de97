"""ELR, then posteriors: in the same network, or in a new one."""

import pytest
import torch
from reference import elr_distill, elr_posterior
from reference.watch import OPTIM, assert_same, watch

from elr.config import resolve
from elr.data import load
from elr.demo import SETTINGS
from elr.engine.train import Job, train
from elr.methods import METHODS
from elr.parts.clock import Clock
from elr.parts.posterior import noise_matrix, posteriors


def test_posteriors_by_hand():
    t = torch.tensor([[0.5, 0.5], [0.9, 0.1]])
    T = torch.tensor([[0.8, 0.2], [0.3, 0.7]])
    q = posteriors(t, torch.tensor([0, 1]), T)
    # A coin flip labelled 0: .5 * .8 against .5 * .3; a sure 0 labelled 1: .9 * .2 against .1 * .7.
    torch.testing.assert_close(q, torch.tensor([[8 / 11, 3 / 11], [0.72, 0.28]]))


def test_a_row_that_no_class_explains_keeps_its_target():
    t = torch.tensor([[1.0, 0.0]])
    q = posteriors(t, torch.tensor([1]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    torch.testing.assert_close(q, t)


def test_noise_matrix_counts_rows_by_how_likely_they_are_of_a_class():
    t = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    y = torch.tensor([0, 1, 0, 1])
    torch.testing.assert_close(noise_matrix(t, y, 0.0), torch.tensor([[1.5 / 2.5, 1 / 2.5], [0.5 / 1.5, 1 / 1.5]]))
    torch.testing.assert_close(noise_matrix(t, y, 2.0), torch.tensor([[2.5 / 4.5, 2 / 4.5], [1.5 / 3.5, 2 / 3.5]]))
    assert noise_matrix(torch.zeros(1, 3), torch.tensor([0]), 0.0).isfinite().all()


def test_elr_distill_follows_its_oracle():
    method = METHODS["elr_distill"](first=8.0)
    run = watch(method)
    stages = {}
    for batches in run.passes:
        stages.setdefault(batches[0][1].stage, []).append([rows.tolist() for rows, _ in batches])
    assert [len(epochs) for epochs in stages.values()] == [8, 5]
    values = {"prior": 1.0, "lam": 3.0, "beta": 0.7, "floor": 1e-4, "clamp_penalty": False}
    oracle = elr_distill.train(run.start, run.x, run.y, list(stages.values()), 3, **values, **OPTIM)
    assert_same(run.trajectory, oracle, rtol=1e-5, names=("weights",))
    expected = elr_distill.posterior(method.criterion.targets.values, run.y, 1.0)
    torch.testing.assert_close(method.posterior.values, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("strong", [False, True])
def test_only_the_new_network_sees_strong_views(strong):
    method = METHODS["elr_distill"](strong=strong)
    views = [next(method.epoch(None, Clock(0, stage=stage))).stream.strong for stage in (0, 1)]
    assert views == [False, strong]


def test_elr_posterior_follows_its_oracle():
    run = watch(METHODS["elr_posterior"](first=8.0))
    epochs = [[rows.tolist() for rows, _ in batches] for batches in run.passes]
    values = {"first": 8, "prior": 1.0, "lam": 3.0, "beta": 0.7, "floor": 1e-4}
    oracle = elr_posterior.train(run.start[0], run.x, run.y, epochs, 3, **values, **OPTIM)
    assert_same(run.trajectory, oracle, rtol=1e-5, names=("weights", "targets"))
    penalised = [loss < 0 for loss in run.trajectory.loss]
    assert any(penalised[: 8 * len(epochs[0])])
    assert not any(penalised[8 * len(epochs[0]) :])


def test_elr_posterior_is_elr_until_its_time_has_come():
    ours, theirs = watch(METHODS["elr_posterior"](first=13.0)), watch(METHODS["elr"]())
    assert ours.trajectory.loss == theirs.trajectory.loss


def test_posteriors_are_more_often_true_than_labels_and_than_targets_on_digits():
    config = resolve({**SETTINGS, "method.name": "elr_distill", "method.first": 12.0, "epochs": 13, "optim.lr": 0.1})
    data = load(config.data, config.noise, 0)
    method = config.make_method()
    make = config.model_maker(data.shape, data.num_classes)
    train(Job(method, make, data, config.epochs, config.optim, config.make_schedule(), config.evaluate))
    true = torch.from_numpy(data.train.y_true)
    right = {
        "labels": (torch.from_numpy(data.train.y) == true).float().mean().item(),
        "targets": (method.criterion.targets.values.argmax(dim=1) == true).float().mean().item(),
        "posteriors": (method.belief().argmax(dim=1) == true).float().mean().item(),
    }
    assert right["posteriors"] > right["labels"] + 0.2
    assert right["posteriors"] >= right["targets"]


@pytest.mark.parametrize("name", ["elr_distill", "elr_posterior"])
@pytest.mark.parametrize("bad", [{"first": -1.0}, {"prior": -0.1}, {"beta": 1.0}])
def test_bad_values_are_refused(name, bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        METHODS[name](**bad)
