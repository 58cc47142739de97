"""ELR, then posteriors in a new network."""

import pytest
import torch
from on_digits import digits, teach
from reference import elr_distill
from reference.watch import OPTIM, assert_same, watch

from elr.config import resolve
from elr.data import load
from elr.data.stream import TrainData
from elr.demo import SETTINGS
from elr.engine.train import Job, train
from elr.methods import METHODS
from elr.methods.base import sweep
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


@pytest.mark.parametrize(
    ("rounds", "sharpen", "fresh", "lengths"),
    [(1, 1.0, True, [8, 5]), (2, 1.5, True, [8, 2, 3]), (2, 1.5, False, [8, 2, 3])],
)
def test_elr_distill_follows_its_oracle(rounds, sharpen, fresh, lengths):
    method = METHODS["elr_distill"](first=8.0, rounds=rounds, sharpen=sharpen, fresh=fresh)
    run = watch(method)
    stages = {}
    for batches in run.passes:
        stages.setdefault(batches[0][1].stage, []).append([rows.tolist() for rows, _ in batches])
    assert [len(epochs) for epochs in stages.values()] == lengths
    values = {
        "prior": 1.0,
        "sharpen": sharpen,
        "fresh": fresh,
        "lam": 3.0,
        "beta": 0.7,
        "floor": 1e-4,
        "clamp_penalty": False,
    }
    oracle = elr_distill.train(run.start, run.x, run.y, list(stages.values()), 3, **values, **OPTIM)
    assert_same(run.trajectory, oracle, rtol=1e-5, names=("weights",))


def test_only_the_new_network_sees_strong_views():
    losses = {}
    for strong in (False, True):
        settings = {**SETTINGS, "method.name": "elr_distill", "method.strong": strong, "epochs": 2, "data.subset": 200}
        config = resolve(settings)
        data = load(config.data, config.noise, 0)
        make = config.model_maker(data.shape, data.num_classes)
        job = Job(config.make_method(), make, data, 2, config.optim, config.make_schedule(), config.evaluate)
        losses[strong] = [record["loss"] for record in train(job).records]
    assert losses[False][0] == losses[True][0]
    assert losses[False][1] != losses[True][1]


def test_predictions_are_averaged_over_an_image_and_its_mirror_image():
    x = torch.arange(2 * 3 * 4 * 4.0).view(2, 3, 4, 4)

    class Inputs:
        shape = (3, 4, 4)

        def __len__(self):
            return 2

        def fetch(self, rows):
            return x[rows].clone()

    data = TrainData(
        Inputs(),
        torch.zeros(2, dtype=torch.int64),
        2,
        lambda raw, ids, key, *, strong=False: raw,
        ids=torch.arange(2),
        batch_size=2,
        device=torch.device("cpu"),
        alternate=True,
        sizes=(2, 4),
    )

    def left(images):
        return images[:, 0, 0, :2]

    torch.testing.assert_close(sweep(left, data), x[:, 0, 0, :2])
    torch.testing.assert_close(sweep(left, data, views=2), (x[:, 0, 0, :2] + x[:, 0, 0, 2:].flip(-1)) / 2)


def test_posteriors_are_more_often_true_than_labels_and_than_targets_on_digits():
    method = METHODS["elr_distill"](first=12.0)
    teach(method, 13, **{"optim.lr": 0.1})
    labels = digits().train
    true = torch.from_numpy(labels.y_true)
    right = {
        "labels": (torch.from_numpy(labels.y) == true).float().mean().item(),
        "targets": (method.criterion.targets.values.argmax(dim=1) == true).float().mean().item(),
        "posteriors": (method.belief()[0].argmax(dim=1) == true).float().mean().item(),
    }
    assert right["posteriors"] > right["labels"] + 0.2
    assert right["posteriors"] >= right["targets"]


@pytest.mark.parametrize("bad", [{"first": -1.0}, {"rounds": 0}, {"sharpen": 0.0}, {"prior": -0.1}, {"beta": 1.0}])
def test_bad_values_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        METHODS["elr_distill"](**bad)
