"""Losses that tolerate wrong labels: vectors, gradients in closed form, oracles, and what they do on digits."""

import math
from functools import partial

import pytest
import torch
from contract import test_every_loss as contract
from on_digits import digits, taught
from reference import bootstrap, dmi, gce, gce_truncated, imae, mae, pointwise, sl
from reference.tiny import FEATURES, tiny_job
from reference.watch import OPTIM, assert_same, watch
from torch.nn.functional import one_hot

from elr.engine.train import train
from elr.losses import (
    bootstrap_hard_loss,
    bootstrap_soft_loss,
    cross_entropy,
    dmi_loss,
    gce_loss,
    imae_loss,
    mae_loss,
    sl_loss,
    truncated_gce_loss,
)
from elr.losses.gce import gce_threshold
from elr.methods import METHODS

LOG_1E4 = math.log(1e-4)

# One example: p = (.1, .2, .3, .4), label 1.
Z = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64).log()
Y = torch.tensor([1])
CE_GRADIENT = (0.1, -0.8, 0.3, 0.4)


def times(weight):
    return tuple(weight * g for g in CE_GRADIENT)


VECTORS = {
    "ce": (cross_entropy, 1.6094379, CE_GRADIENT),
    "bootstrap_soft": (bootstrap_soft_loss, 1.5929587, (0.1001137, -0.7567042, 0.2838618, 0.3727287)),
    "bootstrap_hard": (bootstrap_hard_loss, 1.4708085, (0.1, -0.6, 0.3, 0.2)),
    "gce": (gce_loss, 0.9655267, times(0.3241313)),
    "gce of q 1": (partial(gce_loss, q=1.0), 0.8, times(0.2)),
    "gce of q 1e-6": (partial(gce_loss, q=1e-6), 1.6094366, times(0.9999984)),
    "truncated gce, kept": (lambda z, y: truncated_gce_loss(z, y, torch.ones(1)), 0.4163441, times(0.3241313)),
    "truncated gce, pruned": (lambda z, y: truncated_gce_loss(z, y, torch.zeros(1)), 0.0, times(0.0)),
    "sl": (partial(sl_loss, A=-4.0), 3.3609438, times(0.9)),
    "sl for CIFAR-100": (partial(sl_loss, alpha=6.0, beta=0.1, A=-4.0), 9.9766275, times(6.08)),
    "sl of the code": (partial(sl_loss, A=LOG_1E4), 7.5292161, times(1.9420681)),
    "sl of the code for CIFAR-100": (
        partial(sl_loss, alpha=6.0, beta=0.1, A=LOG_1E4),
        10.3934547,
        times(6.1842068),
    ),
    "reverse cross entropy": (partial(sl_loss, alpha=0.0, A=-4.0), 3.2, times(0.8)),
    "reverse cross entropy of the code": (partial(sl_loss, alpha=0.0, A=LOG_1E4), 7.3682723, times(1.8420681)),
    "mae": (mae_loss, 1.6, times(0.4)),
    "imae": (imae_loss, 3.6178551, (0.2247900, -1.7983199, 0.6743699, 0.8991599)),
    "imae of T 0": (partial(imae_loss, T=0.0), 1.0058987, times(0.625)),
}

# Weight w(p_y) of losses that depend on the label's probability only: the gradient is w (p - y).
WEIGHTS = {
    "ce": (cross_entropy, lambda p: 1.0),
    "gce": (gce_loss, lambda p: p**0.7),
    "gce of q .2": (partial(gce_loss, q=0.2), lambda p: p**0.2),
    "sl": (partial(sl_loss, A=-4.0), lambda p: 0.1 + 4.0 * p),
    "sl of the code for CIFAR-100": (partial(sl_loss, alpha=6.0, beta=0.1, A=LOG_1E4), lambda p: 6 - 0.1 * LOG_1E4 * p),
    "mae": (mae_loss, lambda p: 2.0 * p),
    "imae": (imae_loss, lambda p: math.exp(8.0 * p * (1 - p)) / (2 * (1 - p))),
    "imae of T 16": (partial(imae_loss, T=16.0), lambda p: math.exp(16.0 * p * (1 - p)) / (2 * (1 - p))),
}


def gradient(loss, z, *rest):
    z = z.detach().clone().requires_grad_()
    return torch.autograd.grad(loss(z, *rest).sum(), z)[0]


def some(g, num_classes, rows=30, scale=2.0):
    z = scale * torch.randn(rows, num_classes, generator=g, dtype=torch.float64)
    return z, torch.randint(num_classes, (rows,), generator=g)


# Values and gradients


@pytest.mark.parametrize(("loss", "value", "slope"), VECTORS.values(), ids=VECTORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_worked_example(loss, value, slope, dtype):
    assert loss(Z.to(dtype), Y).item() == pytest.approx(value, rel=1e-6, abs=1e-7)
    assert gradient(loss, Z.to(dtype), Y)[0].tolist() == pytest.approx(slope, rel=1e-6, abs=1e-7)


def test_gce_of_a_uniform_prediction_and_of_the_threshold():
    assert gce_loss(torch.zeros(1, 10), torch.tensor([3])).item() == pytest.approx(1.1435340, abs=1e-6)
    assert gce_threshold(0.7, 0.5) == pytest.approx(0.5491826, abs=1e-7)


@pytest.mark.parametrize(("loss", "weight"), WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize("num_classes", [2, 4, 100])
def test_gradient_is_that_of_cross_entropy_times_a_weight_of_the_labels_probability(g, loss, weight, num_classes):
    z, y = some(g, num_classes)
    p = z.softmax(dim=1)
    slope = gradient(loss, z, y)
    for i in range(len(z)):
        expected = weight(p[i, y[i]].item()) * (p[i] - one_hot(y[i], num_classes))
        torch.testing.assert_close(slope[i], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("loss", [v[0] for v in VECTORS.values()], ids=VECTORS)
def test_gradients_sum_to_zero_over_classes(g, loss):
    z, y = some(g, 7, rows=1)
    assert gradient(loss, z, y).sum().item() == pytest.approx(0.0, abs=1e-12)


# Bootstrapping


def test_soft_bootstrapping_differentiates_the_prediction_in_the_label(g):
    """With a detached prediction the method would be cross entropy at beta times the learning rate."""
    z, y = some(g, 5)
    p = z.softmax(dim=1)
    entropy = -(p * p.log()).sum(dim=1, keepdim=True)
    ce = p - one_hot(y, 5)
    torch.testing.assert_close(
        gradient(bootstrap_soft_loss, z, y), 0.95 * ce - 0.05 * p * (p.log() + entropy), rtol=1e-10, atol=1e-12
    )
    assert (gradient(bootstrap_soft_loss, z, y) - 0.95 * ce).abs().max() > 1e-3


def test_hard_bootstrapping_is_cross_entropy_where_the_label_is_predicted(g):
    z, y = some(g, 5, rows=200)
    right = z.argmax(dim=1) == y
    hard, ce = bootstrap_hard_loss(z, y), cross_entropy(z, y)
    assert 10 < right.sum() < 190
    assert torch.equal(hard[right], ce[right])
    assert (hard[~right] < ce[~right]).all()


def test_of_equally_likely_classes_hard_bootstrapping_predicts_the_first():
    z = torch.zeros(1, 4, dtype=torch.float64)
    assert gradient(bootstrap_hard_loss, z, torch.tensor([2]))[0].tolist() == pytest.approx([0.05, 0.25, -0.55, 0.25])


@pytest.mark.parametrize("loss", [bootstrap_soft_loss, bootstrap_hard_loss])
def test_bootstrapping_with_beta_1_is_cross_entropy(g, loss):
    z, y = some(g, 5)
    assert torch.equal(loss(z, y, 1.0), cross_entropy(z, y))


# Relations between the losses


@pytest.mark.parametrize("num_classes", [2, 4, 10])
def test_mean_absolute_error_is_symmetric(g, num_classes):
    z, _ = some(g, num_classes, rows=8)
    total = sum(mae_loss(z, torch.full((8,), c)) for c in range(num_classes))
    torch.testing.assert_close(total, torch.full((8,), 2.0 * (num_classes - 1), dtype=torch.float64))


def test_losses_meet_where_they_should(g):
    z, y = some(g, 6)
    close = partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
    close(gce_loss(z, y, 1.0), mae_loss(z, y) / 2)
    close(sl_loss(z, y, 0.0, 1.0, -4.0), 2.0 * mae_loss(z, y))
    close(sl_loss(z, y, 1.0, 0.0), cross_entropy(z, y))
    torch.testing.assert_close(gce_loss(z, y, 1e-9), cross_entropy(z, y), rtol=1e-6, atol=1e-6)


def test_reverse_cross_entropy_of_a_soft_label_is_its_definition(g):
    z, _ = some(g, 3, rows=1)
    label = torch.tensor([[0.7, 0.299, 0.001]], dtype=torch.float64)  # the last one is below exp(-4)
    p = z.softmax(dim=1)[0]
    expected = -(p[0] * math.log(0.7) + p[1] * math.log(0.299) + p[2] * -4.0)
    assert sl_loss(z, label, alpha=0.0, A=-4.0).item() == pytest.approx(expected.item(), rel=1e-12)


def test_gce_keeps_its_slope_finite_where_the_probability_underflows():
    z = torch.tensor([[0.0, -200.0]], requires_grad=True)
    gce_loss(z, torch.tensor([1])).sum().backward()
    assert z.grad.isfinite().all()


# IMAE: its value is no potential of its gradient, so finite differences do not apply; all else that losses promise does


@pytest.mark.parametrize("T", [0.0, 8.0, 16.0])
def test_norm_of_the_imae_gradient(g, T):
    z, y = some(g, 6)
    p_y = z.softmax(dim=1).gather(1, y[:, None]).squeeze(1)
    norm = gradient(partial(imae_loss, T=T), z, y).abs().sum(dim=1)
    torch.testing.assert_close(norm, torch.exp(T * p_y * (1 - p_y)), rtol=1e-10, atol=0)


def test_imae_worked_example():
    norm = gradient(imae_loss, Z, Y).abs().sum().item()
    assert norm == pytest.approx(3.5966397, abs=1e-7)
    weight = imae_loss(Z, Y) / cross_entropy(Z, Y)
    assert weight.item() == pytest.approx(2.2478998, abs=1e-7)


@pytest.mark.parametrize(("T", "peak"), [(8.0, 7.389056), (16.0, 54.598150)])
def test_imae_weighs_most_where_the_label_has_probability_one_half(T, peak):
    slope = gradient(partial(imae_loss, T=T), torch.zeros(1, 2, dtype=torch.float64), torch.tensor([0]))
    assert slope.abs().sum().item() == pytest.approx(peak, rel=1e-6)


@pytest.mark.parametrize("margin", [5.0, 15.0, 30.0, 80.0])
def test_an_example_fitted_perfectly_keeps_an_imae_gradient_of_norm_1_in_float32(margin):
    z = torch.tensor([[margin, 0.0, -1.0]])
    slope = gradient(imae_loss, z, torch.tensor([0]))[0]
    others = torch.tensor([0.0, -1.0]).softmax(dim=0)
    rest = torch.sigmoid(math.log(1.0 + math.exp(-1.0)) - torch.tensor(margin))  # 1 - p_y
    expected = torch.tensor([-1.0, *others]) / 2 * torch.exp(8.0 * rest * (1.0 - rest))
    torch.testing.assert_close(slope, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("kind", contract.KINDS)
@pytest.mark.parametrize("num_classes", contract.SIZES)
def test_imae_keeps_what_losses_promise(request, g, num_classes, kind):
    def loss(z, y, t):
        return imae_loss(z, y)

    contract.test_one_value_per_example(g, loss, num_classes, kind)
    contract.test_values_do_not_depend_on_the_order_of_classes(g, loss, kind)
    contract.test_a_constant_added_to_the_logits_changes_nothing(g, loss, kind)
    contract.test_class_ids_are_one_hot_probabilities(g, loss, num_classes)
    contract.test_logits_of_10000_give_finite_values_and_gradients(request, g, loss, num_classes, kind)
    contract.test_autocast_changes_nothing_after_the_logits(g, loss, kind)


# DMI


def dmi_of(p, y):
    return dmi_loss(torch.tensor(p, dtype=torch.float64).log(), torch.tensor(y))


def test_dmi_worked_examples():
    sure, unsure = 1.0 - 1e-12, 1e-12
    assert dmi_of([[0.5, 0.5]] * 4, [0, 0, 1, 1]).item() == pytest.approx(6.9077553, abs=1e-6)
    perfect = dmi_of([[sure, unsure]] * 2 + [[unsure, sure]] * 2, [0, 0, 1, 1])
    assert perfect.item() == pytest.approx(-1.3865443, abs=1e-6)
    p = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.2, 0.8]]
    assert dmi_of(p, [0, 0, 1, 1]).item() == pytest.approx(-0.8758853, abs=1e-6)
    swapped = [row[::-1] for row in p]
    assert dmi_of(swapped, [0, 0, 1, 1]).item() == pytest.approx(-0.8758853, abs=1e-6)


@pytest.mark.parametrize("num_classes", [2, 3, 5])
def test_dmi_is_that_of_the_determinant_written_out(g, num_classes):
    z, _ = some(g, num_classes)
    y = torch.arange(30) % num_classes
    torch.testing.assert_close(dmi_loss(z, y), dmi.loss(z, y.tolist()), rtol=1e-10, atol=1e-10)
    expected = gradient(lambda z: dmi.loss(z, y.tolist()), z)
    torch.testing.assert_close(gradient(dmi_loss, z, y), expected, rtol=1e-8, atol=1e-10)
    assert torch.autograd.gradcheck(lambda z: dmi_loss(z, y), z.requires_grad_())
    hard = one_hot(y, num_classes).double()
    torch.testing.assert_close(dmi_loss(z, hard), dmi_loss(z, y), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_a_class_missing_from_the_batch_gives_no_dmi_gradient(g, num_classes, dtype):
    z = torch.randn(20, num_classes, generator=g, dtype=dtype)
    y = torch.randint(num_classes - 1, (20,), generator=g)
    assert dmi_loss(z, y).item() == pytest.approx(6.9077553, abs=1e-5)
    assert torch.equal(gradient(dmi_loss, z, y), torch.zeros_like(z))


def test_noise_that_depends_on_the_class_adds_a_constant_to_dmi(g):
    """det(T' U) = det T det U: with labels replaced by their distribution under T, the gradient stays the same."""
    y = one_hot(torch.arange(200) % 4, 4).double()
    z = some(g, 4, rows=200)[0] + 3.0 * y  # a network that knows something: epsilon is nothing to the determinant
    T = torch.eye(4, dtype=torch.float64).lerp(torch.rand(4, 4, generator=g, dtype=torch.float64).softmax(dim=1), 0.6)
    constant = -math.log(abs(torch.linalg.det(T).item()))
    assert (dmi_loss(z, y @ T) - dmi_loss(z, y)).item() == pytest.approx(constant, abs=1e-6)
    torch.testing.assert_close(gradient(dmi_loss, z, y @ T), gradient(dmi_loss, z, y), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("num_classes", [2, 10, 300])
def test_dmi_is_finite_for_many_classes_and_for_logits_of_10000(g, num_classes):
    y = torch.arange(3 * num_classes) % num_classes
    for z in (
        torch.randn(len(y), num_classes, generator=g),
        torch.where(torch.rand(len(y), num_classes, generator=g) < 0.5, 1e4, -1e4),
        2e4 * one_hot(y, num_classes).float() - 1e4,
        torch.zeros(len(y), num_classes),
    ):
        assert dmi_loss(z, y).isfinite()
        assert gradient(dmi_loss, z, y).isfinite().all()


@pytest.mark.parametrize("gap", [20, 30, 80, *range(88, 108), 400, 700, 710, 740, 800])
@pytest.mark.parametrize("num_classes", [2, 3])
def test_dmi_of_a_class_that_is_all_but_impossible_is_that_of_the_determinant_written_out(g, num_classes, gap):
    """Its p leaves the normal numbers of float32 at a gap of 87 and all of them at 104; in float64 at 708 and 745."""
    z, y = torch.randn(64, num_classes, generator=g), torch.arange(64) % num_classes
    z[:, 0] -= gap
    assert dmi_loss(z, y).item() == pytest.approx(dmi.loss(z.double(), y.tolist()).item(), rel=1e-6)
    expected = gradient(lambda z: dmi.loss(z, y.tolist()), z.double())
    torch.testing.assert_close(gradient(dmi_loss, z, y).double(), expected, rtol=1e-4, atol=1e-15)


@pytest.mark.parametrize("gap", [80, 95, 120])
def test_an_impossible_class_is_pulled_up_where_the_others_make_the_determinant_large(g, gap):
    y = torch.arange(1600) % 40
    z = torch.randn(1600, 40, generator=g) + 15.0 * one_hot(y, 40)
    z[:, 0] -= gap
    slope = gradient(dmi_loss, z, y)
    torch.testing.assert_close(slope.double(), gradient(dmi_loss, z.double(), y), rtol=1e-4, atol=1e-7)
    assert slope[y == 0, 0].sum().item() == pytest.approx(-1.0, abs=0.1)  # of -log U_00, as U is nearly diagonal


def test_dmi_of_half_precision_logits_is_that_of_the_same_logits_in_float32(g):
    low = torch.randn(64, 10, generator=g).bfloat16()
    y = torch.arange(64) % 10
    expected = dmi_loss(low.float(), y)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(dmi_loss(low, y), expected)
    assert expected.dtype == torch.float32


# Oracles: fifty steps in the product's engine against the formulas as printed

ORACLES = {
    "bootstrap_soft": ({}, lambda z, y: bootstrap.soft(z, y, 0.95)),
    "bootstrap_soft, half": ({"beta": 0.5}, lambda z, y: bootstrap.soft(z, y, 0.5)),
    "bootstrap_hard": ({}, lambda z, y: bootstrap.hard(z, y, 0.8)),
    "gce": ({}, lambda z, y: gce.loss(z, y, 0.7)),
    "gce, less": ({"q": 0.3}, lambda z, y: gce.loss(z, y, 0.3)),
    "sl": ({}, lambda z, y: sl.loss(z, y, 0.1, 1.0, -9.2103)),
    "sl, CIFAR-100": ({"alpha": 6.0, "beta": 0.1, "A": LOG_1E4}, lambda z, y: sl.loss(z, y, 6.0, 0.1, LOG_1E4)),
    "mae": ({}, mae.loss),
    "imae": ({"T": 2.0}, lambda z, y: imae.loss(z, y, 2.0)),
}


@pytest.mark.parametrize("name", ORACLES)
def test_method_follows_its_oracle(name):
    settings, loss_of = ORACLES[name]
    run = watch(METHODS[name.partition(",")[0]](**settings))
    oracle = pointwise.train(loss_of, run.start[0], run.x, run.y, run.batches, **OPTIM)
    assert_same(run.trajectory, oracle, rtol=1e-9, names=("weights",))


def test_imae_follows_its_oracle_at_the_temperature_of_its_authors():
    """Weights of up to 7 and gradients that never vanish magnify rounding; the first steps agree all the same."""
    run = watch(METHODS["imae"]())
    oracle = pointwise.train(lambda z, y: imae.loss(z, y, 8.0), run.start[0], run.x, run.y, run.batches, **OPTIM)
    assert_same(run.trajectory, oracle, rtol=1e-6, names=("weights",))


@pytest.mark.parametrize(
    ("settings", "prunings"),
    [
        ({"start": 4, "every": 3}, {4, 7, 10}),
        ({}, {4, 5, 6, 7, 8, 9, 10, 11, 12}),
        ({"k": 0.9, "start": 6}, {*range(6, 13)}),
    ],
    ids=["epochs", "fractions", "hard to please"],
)
def test_truncated_gce_follows_algorithm_1(settings, prunings):
    run = watch(METHODS["gce_truncated"](**settings))
    epochs = [[rows.tolist() for rows, _ in batches] for batches in run.passes]
    oracle = gce_truncated.train(
        run.start[0], run.x, run.y, epochs, q=0.7, k=settings.get("k", 0.5), prunings=prunings, **OPTIM
    )
    assert_same(run.trajectory, oracle, rtol=1e-9, names=("weights", "targets"))
    assert 0 < run.trajectory.targets[-1][0].mean() < 1


@pytest.mark.parametrize("lr_scale", [1e-5, 0.05])
def test_dmi_follows_its_oracle(lr_scale):
    run = watch(METHODS["dmi"](lr_scale=lr_scale))
    stages = [
        [rows.tolist() for batches in run.passes for rows, clock in batches if clock.stage == stage] for stage in (0, 1)
    ]
    assert all(len(batches) >= 20 for batches in stages)
    oracle = dmi.train(run.start[0], run.x, run.y, stages, 3, lr_scale=lr_scale, **OPTIM)
    assert_same(run.trajectory, oracle, rtol=1e-8, names=("weights",))


# What only one method has


def test_pruning_starts_a_third_into_the_run_and_comes_back():
    method = METHODS["gce_truncated"]()
    assert [e for e in range(120) if method.prunes(e, 120)] == [40, 50, 60, 70, 80, 90, 100, 110]
    assert [e for e in range(60) if method.prunes(e, 60)] == [20, 25, 30, 35, 40, 45, 50, 55]
    assert [e for e in range(2) if method.prunes(e, 2)] == [1]
    assert not any(method.prunes(e, 1) for e in range(1))
    assert [e for e in range(30) if METHODS["gce_truncated"](start=5, every=10).prunes(e, 30)] == [5, 15, 25]
    assert method.cost == pytest.approx(1 + 8 / 360)


def test_a_pruning_that_would_leave_nothing_is_not_done():
    job = tiny_job(METHODS["gce_truncated"](k=0.999999, start=0.0, every=0.0), epochs=3)
    outcome = train(job)
    assert job.method.prunes(1, 3)
    assert (job.method.kept.values == 1).all()
    assert outcome.records[-1]["kept"] == 1.0


def test_truncation_at_0_is_gce():
    """k = 0 never prunes, and what is left differs by a constant."""
    plain, truncated = tiny_job(METHODS["gce"](), epochs=3), tiny_job(METHODS["gce_truncated"](k=0.0), epochs=3)
    train(plain)
    train(truncated)
    for ours, theirs in zip(truncated.method.nets.parameters(), plain.method.nets.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


class Certain(torch.nn.Module):
    """Gives class 0 a lead of 60: other labels have a loss of 1/q to the last digit of float32, as if p were 0."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(FEATURES, 3)

    def forward(self, x):
        return self.linear(x) + torch.tensor([60.0, 0.0, 0.0])


def test_truncation_at_0_prunes_no_label_however_unlikely():
    method = METHODS["gce_truncated"](k=0.0, start=0.0, every=0.0)
    job = tiny_job(method, make_model=Certain, epochs=3)
    train(job)
    assert (job.method.kept.values == 1).all()
    assert method.cost == 1.0


def test_dmi_goes_on_from_the_selected_network():
    first, second = METHODS["dmi"]().plan(220)
    assert (first.epochs, second.epochs) == (120, 100)
    assert first.keep == "selected"
    job = tiny_job(METHODS["dmi"](pretrain=4, lr_scale=0.0), epochs=6)
    outcome = train(job)
    curve = [record["val_smoothed"] for record in outcome.records[:4]]
    chosen = curve.index(max(curve))
    # With a rate of zero the weights stay those of the chosen epoch; batch norm may move a little in training mode.
    twin = tiny_job(METHODS["ce"](), epochs=chosen + 1)
    train(twin)
    for ours, theirs in zip(job.method.nets.parameters(), twin.method.nets.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_dmi_has_a_constant_rate_whatever_the_schedule_of_the_run():
    records = train(tiny_job(METHODS["dmi"](pretrain=3, lr_scale=0.01), epochs=6)).records
    assert [record["lr"] for record in records] == pytest.approx([0.1, 0.0775, 0.0325, 0.001, 0.001, 0.001])


def test_dmi_says_how_many_batches_miss_a_class():
    outcome = train(tiny_job(METHODS["dmi"](), epochs=4, batch_size=3))
    assert 0.5 < outcome.records[-1]["class_missing"] <= 1.0
    assert "class_missing" not in outcome.records[0]


BAD = {
    "bootstrap_soft": {"beta": 1.5},
    "bootstrap_hard": {"beta": -0.1},
    "gce": {"q": 0.0},
    "gce_truncated": {"k": 1.0},
    "sl": {"A": 1.0},
    "imae": {"T": float("nan")},
    "dmi": {"lr_scale": 2.0},
}


@pytest.mark.parametrize("name", BAD)
def test_a_hyperparameter_out_of_range_is_one_clear_line(name):
    ((argument, value),) = BAD[name].items()
    with pytest.raises(ValueError, match=rf"^{argument} must lie in \[.*, got {value}$"):
        METHODS[name](**BAD[name])


# Digits, 40 % of the labels replaced

together = pytest.mark.xdist_group("robust losses on digits")  # one process trains what several tests look at
EPOCHS = 16  # in which cross entropy memorises a third of the wrong labels


def learn(name, **arguments):
    return taught(name, EPOCHS, test_every=1, **arguments)


# The authors' rate moves the weights of a run this short by nothing; at this one L_DMI falls by more than 1.
MOVING = {"lr_scale": 1e-3}


@together
@pytest.mark.parametrize("name", ["gce", "gce_truncated", "sl", "mae", "imae", "dmi"])
def test_less_than_half_as_many_wrong_labels_are_memorised_as_by_cross_entropy(name):
    _, ce = learn("ce")
    _, records = learn(name, **(MOVING if name == "dmi" else {}))
    assert ce[-1]["wrong_memorized"] > 0.2
    assert records[-1]["wrong_memorized"] < 0.5 * ce[-1]["wrong_memorized"]
    assert records[-1]["test_accuracy"] > ce[-1]["test_accuracy"]


@together
def test_bootstrapping_hardly_helps():
    """As in the paper's Table 1, where it is within a point of cross entropy at 40 % noise."""
    _, ce = learn("ce")
    _, records = learn("bootstrap_hard")
    assert records[-1]["wrong_memorized"] > 0.5 * ce[-1]["wrong_memorized"]


@together
def test_the_examples_that_truncated_gce_keeps_are_cleaner_than_the_data():
    method, _ = learn("gce_truncated")
    clean = torch.from_numpy(digits().train.y == digits().train.y_true)
    kept = method.kept.values.squeeze(1).bool()
    assert 0.6 < clean.float().mean() < 0.68
    assert clean[kept].float().mean() > 0.95
    assert kept[clean].float().mean() > 0.95
    assert kept[~clean].float().mean() < 0.1


@together
def test_dmi_falls_and_keeps_what_the_chosen_epoch_of_cross_entropy_knew():
    _, records = learn("dmi", **MOVING)
    _, still = learn("dmi", lr_scale=0.0)
    assert records[-1]["loss"] < still[-1]["loss"] - 1.0  # in the same batches
    first = [record for record in records if record["stage"] == 0]
    best = max(first, key=lambda record: record["val_smoothed"])
    assert abs(records[-1]["test_accuracy"] - best["test_accuracy"]) < 0.02
