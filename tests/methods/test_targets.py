"""Temporal ensembling, mean teacher, mixup, SOP and SOP+ against their oracles, by hand, and on digits."""

import copy
import math

import numpy as np
import pytest
import torch
from on_digits import digits, taught
from reference import mean_teacher, mixup, sop, sop_plus, temporal_ensembling
from reference.tiny import FEATURES, TinyNet
from reference.watch import OPTIM, assert_same, watch
from sklearn.metrics import roc_auc_score
from torch import nn

from elr.data.stream import JITTER, Batch
from elr.losses import class_balance, prediction_kl, prediction_mse, sop_loss
from elr.methods import METHODS
from elr.methods.mean_teacher import MeanTeacher
from elr.methods.mixup import Mixup
from elr.methods.sop import SOP
from elr.methods.sop_plus import SOPPlus
from elr.methods.temporal_ensembling import TemporalEnsembling
from elr.parts.average import warm_memory
from elr.parts.clock import Clock

# The networks are float64; tables, and some targets, are float32.
RTOL = 1e-5
CANONICAL = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64).log()  # p = (.1, .2, .3, .4)
LABEL = torch.tensor([1])
TARGET = torch.tensor([[0.1, 0.6, 0.2, 0.1]], dtype=torch.float64)


def watch_views(method, **settings):
    """A run as ``watch`` sees it, and (rows, x, views) of every batch; tables as they were before the first."""
    batches, start = [], []
    own = method.step

    def step(batch, clock):
        if not start:
            start.extend(
                copy.deepcopy([table.values for table in (method.u, method.v)] if hasattr(method, "u") else [])
            )
        batches.append((batch.index.tolist(), batch.x.clone(), *(view.clone() for view in batch.views)))
        return own(batch, clock)

    method.step = step
    return watch(method, **settings), batches, start


def by_epoch(run, batches):
    """The same batches, a list an epoch."""
    left = iter(batches)
    return [[next(left) for _ in one] for one in run.passes]


# By hand: value and gradient


def test_squared_distance_at_the_canonical_vector():
    z = CANONICAL.clone().requires_grad_()
    loss = prediction_mse(z, TARGET)
    assert loss.item() == pytest.approx(0.065, abs=1e-12)
    loss.sum().backward()
    assert z.grad[0].tolist() == pytest.approx([-0.0035, -0.047, 0.0045, 0.046], abs=1e-12)


def test_divergence_at_the_canonical_vector():
    z = CANONICAL.clone().requires_grad_()
    loss = prediction_kl(z, TARGET)
    assert loss.item() == pytest.approx(0.4394449, abs=5e-8)
    loss.sum().backward()
    assert z.grad[0].tolist() == pytest.approx([0.0, -0.4, 0.1, 0.3], abs=1e-12)


def test_divergence_is_zero_from_itself_and_finite_for_targets_without_mass():
    assert prediction_kl(CANONICAL, CANONICAL.softmax(dim=1)).item() == pytest.approx(0.0, abs=1e-12)
    sure = torch.tensor([[0.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    assert prediction_kl(CANONICAL, sure).item() == pytest.approx(-math.log(0.2))


def test_sop_at_the_canonical_vector():
    z = CANONICAL.clone().requires_grad_()
    u = torch.tensor([[0.5]], dtype=torch.float64, requires_grad=True)
    v = torch.tensor([[0.3, 0.9, 0.2, 0.4]], dtype=torch.float64, requires_grad=True)
    parts = sop_loss(z, LABEL, u, v)
    torch.testing.assert_close(parts.prediction.detach()[0] * 0.96, torch.tensor([0.01, 0.45, 0.26, 0.24]).double())
    assert parts.ce.item() == pytest.approx(0.7576857, abs=5e-8)
    assert parts.mse.item() == pytest.approx(1.2778, abs=1e-12)
    assert parts.loss.item() == pytest.approx(2.0354857, abs=5e-8)
    parts.loss.sum().backward()
    assert z.grad[0].tolist() == pytest.approx([0.0444444, -0.3555556, 0.1333333, 0.1777778], abs=5e-8)
    assert u.grad[0].tolist() == pytest.approx([-2.6805556], abs=5e-8)
    assert v.grad[0].tolist() == pytest.approx([0.108, 0.0, 0.032, -1.344], abs=1e-9)


def test_sop_without_noise_is_cross_entropy_and_what_the_prediction_misses():
    zero = torch.zeros(1, 4, dtype=torch.float64)
    parts = sop_loss(CANONICAL, LABEL, zero[:, :1], zero)
    assert parts.ce.item() == pytest.approx(math.log(5.0))
    assert parts.mse.item() == pytest.approx(2.0)  # the predicted class is one too many, the given one is missing


def test_a_label_that_noise_explains_pulls_on_the_network_no_more():
    z = torch.tensor([[12.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    one, all_of_it = torch.ones(1, 1).double(), torch.tensor([[1.0, 0.0, 0.0]]).double()
    sop_loss(z, LABEL, one, all_of_it).loss.sum().backward()
    assert z.grad.abs().max() < 1e-4
    before = torch.autograd.grad(sop_loss(z / 4, LABEL, 0 * one, 0 * all_of_it).loss.sum(), z)[0]
    assert before.abs().max() > 0.1


def test_class_balance_by_hand():
    p = torch.tensor([[0.0, 0.4, 0.2, 0.4], [0.2, 0.0, 0.4, 0.4]], dtype=torch.float64)
    assert class_balance(p).item() == pytest.approx(0.1217773, abs=5e-8)  # the mean is (.1, .2, .3, .4)
    assert class_balance(torch.full((3, 5), 0.2)).item() == pytest.approx(0.0, abs=1e-6)
    assert class_balance(torch.tensor([[1.0, 0.0]]), floor=1e-4).item() == pytest.approx(-math.log(2 * 2e-4) / 2)


class Scripted(nn.Module):
    """A network that says what it is told to."""

    def __init__(self, num_classes=2):
        super().__init__()
        self.p = nn.Parameter(torch.full((1, num_classes), 1.0 / num_classes))

    def forward(self, x):
        return self.p.log().expand(len(x), -1)

    def say(self, *p):
        self.p.data = torch.tensor([p])


def test_the_ensemble_is_corrected_for_its_start_at_zero():
    method = TemporalEnsembling(weight=300.0, alpha=0.6)
    method.build(lambda k=0: Scripted(), 1, 2)
    batch = Batch(torch.tensor([0]), torch.zeros(1, 3), torch.tensor([0]))
    targets = []
    for epoch, p in enumerate([0.2, 0.6, 0.8, 0.8]):
        method.nets[0].say(p, 1 - p)
        step = method.step(batch, Clock(0, epoch=epoch, epochs=300))
        gap = step.log["consistency"].sqrt().item()
        targets.append(p - gap)
        assert step.log["weight"] == (0.0 if epoch == 0 else pytest.approx(300 * math.exp(-5 * (1 - epoch / 80) ** 2)))
    assert targets[1:] == pytest.approx([0.2, 0.45, 0.6285714], abs=1e-6)


def test_memory_of_the_teacher_is_that_of_a_mean_at_first():
    assert [warm_memory(step, 0.75) for step in range(4)] == pytest.approx([1 / 2, 2 / 3, 3 / 4, 3 / 4])
    assert warm_memory(0, 0.0) == 0.0


# Against the oracles, step by step in the product's engine


@pytest.mark.parametrize("ramp_length", [80 / 300, 3.0])
def test_temporal_ensembling_follows_its_oracle(ramp_length):
    run = watch(TemporalEnsembling(weight=20.0, alpha=0.6, ramp_length=ramp_length))
    epochs = [[rows.tolist() for rows, _ in one] for one in run.passes]
    length = ramp_length * len(epochs) if ramp_length <= 1 else ramp_length
    oracle = temporal_ensembling.train(
        run.start[0], run.x, run.y, epochs, 3, weight=20.0, alpha=0.6, ramp_epochs=length, **OPTIM
    )
    assert_same(run.trajectory, oracle, rtol=RTOL, names=("weights",))
    at_ends = [run.trajectory.targets[k][0] for k in np.cumsum([len(one) for one in epochs]) - 1]
    for ours, (ensemble, _) in zip(at_ends, oracle.targets, strict=True):
        torch.testing.assert_close(ours, ensemble, rtol=RTOL, atol=RTOL)


@pytest.mark.parametrize(
    ("distance", "weight", "ramp_length"), [("mse", 20.0, 0.5), ("mse", 20.0, 5 / 180), ("kl", 3.0, 4.0)]
)
def test_mean_teacher_follows_its_oracle(distance, weight, ramp_length):
    method = MeanTeacher(weight=weight, gamma=0.9, distance=distance, ramp_length=ramp_length)
    run, batches, _ = watch_views(method)
    epochs = by_epoch(run, batches)
    length = ramp_length * len(epochs) if ramp_length <= 1 else ramp_length
    oracle = mean_teacher.train(
        run.start[0], run.y, epochs, 3, weight=weight, gamma=0.9, kind=distance, ramp_epochs=length, **OPTIM
    )
    assert_same(run.trajectory, oracle, rtol=RTOL, names=("weights", "averages", "statistics"))


@pytest.mark.parametrize(("alpha", "mix_per"), [(1.0, "batch"), (8.0, "batch"), (1.0, "example")])
def test_mixup_follows_its_oracle(alpha, mix_per):
    run = watch(Mixup(alpha=alpha, mix_per=mix_per))
    batches = []
    for rows, clock in (batch for one in run.passes for batch in one):
        rng, size = clock.rng("mixup"), len(rows)  # the same counted draws, made here once more
        ell = np.broadcast_to(rng.beta(alpha, alpha, size=size if mix_per == "example" else None), size)
        batches.append((rows.tolist(), [float(max(a, 1.0 - a)) for a in ell], rng.permutation(size).tolist()))
    oracle = mixup.train(run.start[0], run.x, run.y, batches, 3, **OPTIM)
    assert_same(run.trajectory, oracle, rtol=RTOL, names=("weights",))


@pytest.mark.parametrize("floor", [1e-4, 1e-8])
@pytest.mark.parametrize(("init", "lr_u", "lr_v"), [(0.3, 0.5, 0.5), (0.05, 2.0, 10.0), (0.9, 0.0, 0.1)])
def test_sop_follows_its_oracle(init, lr_u, lr_v, floor):
    rates = {"lr_u": lr_u, "lr_v": lr_v, "floor": floor}
    run, _, (u, v) = watch_views(SOP(init=init, **rates))
    oracle = sop.train(run.start[0], run.x, run.y, run.batches, u, v, **rates, **OPTIM)
    assert_same(run.trajectory, oracle, rtol=RTOL, names=("targets", "weights"))
    assert (run.trajectory.targets[-1][1] - v).abs().max() > 0.1


@pytest.mark.parametrize(("consistency", "balance"), [(0.9, 0.1), (0.0, 2.0), (3.0, 0.0)])
def test_sop_plus_follows_its_oracle(consistency, balance):
    settings = {"lr_u": 0.2, "lr_v": 0.5, "floor": 1e-4, "consistency": consistency, "balance": balance}
    run, batches, (u, v) = watch_views(SOPPlus(init=0.3, **settings))
    oracle = sop_plus.train(run.start[0], run.y, batches, u, v, **settings, **OPTIM)
    assert_same(run.trajectory, oracle, rtol=RTOL, names=("targets", "weights"))


# What the methods are made of


def test_noise_variables_stay_within_one_and_start_from_the_seed():
    method = SOP(init=0.5, lr_u=1e3, lr_v=1e3)
    watch(method, epochs=3)
    for table in (method.u, method.v):
        assert table.values.abs().max() <= 1.0
    starts = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        built = SOP()
        built.build(lambda k=0: TinyNet(3), 50, 3)
        starts.append(built.v.values)
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])
    assert 0.8e-8 < starts[0].std() < 1.2e-8


def test_noise_variables_do_not_depend_on_the_learning_rate_schedule():
    """They have rates of their own, constant, and no momentum: one step moves them by lr times the gradient over B."""
    method = SOP(init=0.3, lr_u=0.7, lr_v=0.3)
    method.build(lambda k=0: TinyNet(3), 8, 3)
    batch = Batch(torch.arange(8), torch.randn(8, FEATURES), torch.arange(8) % 3)
    step = method.step(batch, Clock(0))
    before = method.u.values.clone(), method.v.values.clone()
    step.loss.backward()
    step.then()
    u, v = (table.requires_grad_() for table in (before[0].clone(), before[1].clone()))
    logits = step.seen[1]
    (sop_loss(logits, batch.y, u, v).loss.sum() / 8).backward()
    torch.testing.assert_close(method.u.values, before[0] - 0.7 * u.grad)
    torch.testing.assert_close(method.v.values, before[1] - 0.3 * v.grad)


def test_the_teacher_predicts_with_its_own_weights_and_statistics():
    method = MeanTeacher(gamma=0.9)
    watch(method, epochs=3)
    x = torch.randn(7, FEATURES, dtype=torch.float64)
    method.eval()
    expected = method.averages[0].net(x).softmax(dim=1)
    torch.testing.assert_close(method.predict(x).double(), expected, rtol=1e-6, atol=1e-6)
    assert (method.predict(x) - method.nets[0](x).softmax(dim=1)).abs().max() > 1e-3
    student, teacher = (dict(net.named_buffers()) for net in (method.nets[0], method.averages[0].net))
    assert not torch.equal(student["layers.1.running_mean"], teacher["layers.1.running_mean"])


def test_no_gradient_reaches_the_teacher():
    method = MeanTeacher()
    method.build(lambda k=0: TinyNet(3), 4, 3)
    x = torch.randn(4, FEATURES)
    method.step(Batch(torch.arange(4), x, torch.arange(4) % 3, (x + 1,)), Clock(0)).loss.backward()
    assert all(p.grad is None for p in method.averages.parameters())
    assert all(p.grad is not None for p in method.nets.parameters())


def test_student_and_teacher_see_different_views_of_vectors_too():
    _, batches, _ = watch_views(MeanTeacher(), epochs=1, n=30)
    gaps = torch.cat([view - x for _, x, view in batches])
    assert gaps.std().item() == pytest.approx(JITTER * math.sqrt(2), rel=0.2)


def test_mixup_with_alpha_zero_is_cross_entropy():
    ours, theirs = watch(Mixup(alpha=0.0), epochs=2), watch(METHODS["ce"](), epochs=2)
    for a, b in zip(ours.trajectory.weights[-1], theirs.trajectory.weights[-1], strict=True):
        assert torch.equal(a, b)


def test_a_large_alpha_mixes_in_equal_parts():
    method = Mixup(alpha=1000.0)
    method.build(lambda k=0: TinyNet(3), 4, 3)
    batch = Batch(torch.arange(4), torch.randn(4, FEATURES), torch.arange(4) % 3)
    assert method.step(batch, Clock(0)).log["mix"].item() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        (SOP, {"lr_u": -1.0}, "lr_u must lie in"),
        (SOP, {"lr_v": math.nan}, "lr_v must lie in"),
        (SOP, {"init": 2.0}, "init must lie in"),
        (SOPPlus, {"consistency": -0.1}, "consistency must lie in"),
        (SOPPlus, {"balance": math.inf}, "balance must lie in"),
        (Mixup, {"alpha": -1.0}, "alpha must lie in"),
        (Mixup, {"mix_per": "pair"}, "mix_per must be one of batch, example"),
        (MeanTeacher, {"gamma": 1.0}, "gamma must lie in"),
        (MeanTeacher, {"distance": "l1"}, "distance must be one of mse, kl"),
        (TemporalEnsembling, {"alpha": 1.0}, "alpha must lie in"),
        (TemporalEnsembling, {"ramp_length": -1.0}, "ramp_length must lie in"),
    ],
)
def test_hyperparameters_out_of_range_are_refused(method, settings, message):
    with pytest.raises(ValueError, match=message):
        method(**settings)


# On digits, 40 % of the labels wrong

together = pytest.mark.xdist_group("targets on digits")  # one process trains what several tests look at


def test_below_the_floor_an_example_has_no_gradient():
    z = torch.tensor([[12.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)  # p_y is 6e-6
    zero = torch.zeros(1, 3, dtype=torch.float64)
    above = torch.autograd.grad(sop_loss(z, LABEL, zero[:, :1], zero).loss.sum(), z)[0]
    below = torch.autograd.grad(sop_loss(z, LABEL, zero[:, :1], zero, floor=1e-4).loss.sum(), z)[0]
    assert above.abs().max() > 0.99
    assert below.abs().max() < 1e-4


def wrong_labels():
    train_part = digits().train
    return train_part.y != train_part.y_true


@pytest.mark.parametrize(("name", "epochs"), [("sop", 20), ("sop_plus", 16)])
def test_noise_variables_find_the_wrong_labels_and_the_right_classes(name, epochs):
    method, records = taught(name, epochs)
    wrong, v = wrong_labels(), method.v.values.square().numpy()
    assert roc_auc_score(wrong, v.max(axis=1)) > 0.9
    assert roc_auc_score(wrong, method.u.values.square().numpy()[:, 0]) > 0.9
    assert (v.argmax(axis=1) == digits().train.y_true)[wrong].mean() > 0.8
    assert records[-1]["test_accuracy"] > 0.9


@together
@pytest.mark.parametrize(
    ("name", "settings"),
    [("mixup", (("alpha", 8.0),)), ("mean_teacher", ()), ("temporal_ensembling", ())],
)
def test_less_is_memorised_than_with_cross_entropy(name, settings):
    plain, last = taught("ce", 25)[1][-1], taught(name, 25, **dict(settings))[1][-1]
    assert last["wrong_memorized"] < 0.5 * plain["wrong_memorized"]
    assert last["test_accuracy"] > plain["test_accuracy"] + 0.05


@together
def test_the_ensemble_of_predictions_is_more_accurate_than_the_labels():
    method, _ = taught("temporal_ensembling", 25)
    right = method.ensemble.values.argmax(dim=1).numpy() == digits().train.y_true
    assert right.mean() > 0.85 > 1 - wrong_labels().mean()


@together
def test_the_teacher_is_more_accurate_than_its_student():
    """Of the training examples with a wrong label, where the student is pulled back and forth."""
    method, _ = taught("mean_teacher", 25)
    data, wrong = digits().train, wrong_labels()
    x = digits().transform(data.inputs.fetch(torch.arange(len(data.y))), data.keys, None)
    with torch.no_grad():
        student, teacher = (net(x).argmax(dim=1).numpy() for net in (method.eval().nets[0], method.predict))
    assert (teacher == data.y_true)[wrong].mean() > (student == data.y_true)[wrong].mean() + 0.03


@pytest.mark.parametrize(("num_classes", "weight"), [(2, 12.0), (3, 27.0), (10, 300.0), (100, 3000.0)])
def test_the_pull_towards_the_ensemble_grows_with_the_number_of_classes(num_classes, weight):
    method = TemporalEnsembling()
    method.build(lambda k=0: Scripted(num_classes), 1, num_classes)
    batch = Batch(torch.tensor([0]), torch.zeros(1, 3), torch.tensor([0]))
    assert method.step(batch, Clock(0, epoch=9, epochs=10)).log["weight"] == pytest.approx(weight)
