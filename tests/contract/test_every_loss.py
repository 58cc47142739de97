"""What every pure loss promises: one value per example, a right gradient, and finite numbers whatever the logits."""

import pytest
import torch
from torch.nn.functional import one_hot

from elr.losses import (
    bootstrap_hard_loss,
    bootstrap_soft_loss,
    cross_entropy,
    elr_gradient,
    elr_loss,
    elr_penalty,
    gce_loss,
    mae_loss,
    sl_loss,
    target_cross_entropy,
    truncated_gce_loss,
)
from elr.losses.consistency import prediction_kl, prediction_mse
from elr.losses.corrected import corrected_labels
from elr.losses.correction import backward_loss, forward_loss, reweighted_loss
from elr.losses.elr import default_floor, floored
from elr.losses.pencil import reverse_divergence
from elr.losses.semi import negative_entropy
from elr.losses.sop import sop_loss


def confusion(z, rate=0.4):
    """A transition matrix that treats all classes alike."""
    num_classes = z.shape[1]
    return (1 - rate) * torch.eye(num_classes, dtype=torch.float64) + rate / num_classes


# (logits, labels, targets) -> (B,)
LOSSES = {
    "cross_entropy": lambda z, y, t: cross_entropy(z, y),
    "target_cross_entropy": lambda z, y, t: target_cross_entropy(z, t),
    "elr_penalty": lambda z, y, t: elr_penalty(z, t),
    "elr_penalty_clamped": lambda z, y, t: elr_penalty(z, t, clamp=1e-4),
    "elr_loss_lam_0": lambda z, y, t: elr_loss(z, y, t, 0.0).loss,
    "elr_loss_lam_1": lambda z, y, t: elr_loss(z, y, t, 1.0).loss,
    "elr_loss_lam_3": lambda z, y, t: elr_loss(z, y, t, 3.0).loss,
    "elr_loss_lam_10": lambda z, y, t: elr_loss(z, y, t, 10.0).loss,
    "elr_loss_clamped": lambda z, y, t: elr_loss(z, y, t, 3.0, clamp=1e-4).loss,
    "negative_entropy": lambda z, y, t: negative_entropy(z),
    "bootstrap_soft_loss": lambda z, y, t: bootstrap_soft_loss(z, y),
    "bootstrap_hard_loss": lambda z, y, t: bootstrap_hard_loss(z, y),
    "forward_loss": lambda z, y, t: forward_loss(z, y, confusion(z)),
    "backward_loss": lambda z, y, t: backward_loss(z, y, confusion(z).inverse()),
    "backward_loss_clipped": lambda z, y, t: backward_loss(z, y, confusion(z).inverse(), clip=1e-7),
    "reweighted_loss": lambda z, y, t: reweighted_loss(z, y, confusion(z), through_weight=True),
    "gce_loss": lambda z, y, t: gce_loss(z, y),
    "truncated_gce_loss": lambda z, y, t: truncated_gce_loss(z, y, t.detach().sum(dim=1)),
    "sl_loss": lambda z, y, t: sl_loss(z, y),
    "mae_loss": lambda z, y, t: mae_loss(z, y),
    "prediction_mse": lambda z, y, t: prediction_mse(z, t),
    "prediction_kl": lambda z, y, t: prediction_kl(z, t),
    "corrected_labels": lambda z, y, t: cross_entropy(z, corrected_labels(y, t, torch.tensor(0.3), z.shape[1])),
    "reverse_divergence": lambda z, y, t: reverse_divergence(z, t),
    "sop_loss": lambda z, y, t: sop_loss(z, y, 0.5 * t.detach().amax(dim=1, keepdim=True), 0.5 * t.detach()).loss,
}
SIZES = [2, 10, 100, 1000]
KINDS = ["ids", "probabilities"]

every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
every_size = pytest.mark.parametrize("num_classes", SIZES)
every_kind = pytest.mark.parametrize("kind", KINDS)


def draw(g, num_classes, kind="ids", *, rows=6, dtype=torch.float64, scale=2.0):
    """Logits, labels and targets as they are after a few visits."""
    z = scale * torch.randn(rows, num_classes, generator=g, dtype=dtype)
    y = torch.randn(rows, num_classes, generator=g, dtype=dtype).softmax(dim=1)
    t = 0.97 * floored((3 * torch.randn(rows, num_classes, generator=g, dtype=dtype)).softmax(dim=1), 1e-5)
    return z, (y if kind == "probabilities" else y.argmax(dim=1)), t


def gradient(loss, z, y, t):
    z = z.detach().clone().requires_grad_()
    return torch.autograd.grad(loss(z, y, t).sum(), z)[0]


@every_loss
@every_kind
@every_size
def test_one_value_per_example(g, loss, num_classes, kind):
    z, y, t = draw(g, num_classes, kind)
    values = loss(z, y, t)
    assert values.shape == (6,)
    assert values.dtype == torch.float64
    for i in range(6):  # an example's value does not depend on the others
        torch.testing.assert_close(loss(z[i : i + 1], y[i : i + 1], t[i : i + 1])[0], values[i], rtol=1e-12, atol=1e-12)


@every_loss
@every_kind
@pytest.mark.parametrize("num_classes", [2, 10])
def test_gradient_is_that_of_finite_differences(g, loss, num_classes, kind):
    z, y, t = draw(g, num_classes, kind, rows=4, scale=1.0)
    assert torch.autograd.gradcheck(lambda z: loss(z, y, t), z.requires_grad_())


@every_loss
def test_no_gradient_flows_into_targets(g, loss):
    z, y, t = draw(g, 10)
    loss(z.requires_grad_(), y, t.requires_grad_()).sum().backward()
    assert t.grad is None


@every_loss
@every_kind
def test_values_do_not_depend_on_the_order_of_classes(g, loss, kind):
    z, y, t = draw(g, 10, kind)
    order = torch.randperm(10, generator=g)
    moved = y[:, order] if kind == "probabilities" else order.argsort()[y]
    torch.testing.assert_close(loss(z[:, order], moved, t[:, order]), loss(z, y, t), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        gradient(loss, z[:, order], moved, t[:, order]), gradient(loss, z, y, t)[:, order], rtol=1e-12, atol=1e-12
    )


@every_loss
@every_kind
def test_a_constant_added_to_the_logits_changes_nothing(g, loss, kind):
    z, y, t = draw(g, 10, kind)
    torch.testing.assert_close(loss(z + 100.0, y, t), loss(z, y, t), rtol=1e-11, atol=1e-11)


@every_loss
@every_size
def test_class_ids_are_one_hot_probabilities(g, loss, num_classes):
    z, y, t = draw(g, num_classes)
    hard = one_hot(y, num_classes).to(z.dtype)
    torch.testing.assert_close(loss(z, y, t), loss(z, hard, t), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient(loss, z, y, t), gradient(loss, z, hard, t), rtol=1e-12, atol=1e-12)


def extremes(g, num_classes, dtype=torch.float32):
    """Logits of +-1e4, each row sure of one class; targets that agree, disagree, know nothing, have no mass."""
    sign = torch.where(torch.rand(5, num_classes, generator=g) < 0.5, 1e4, -1e4)
    sure = -1e4 * torch.ones(5, num_classes)
    sure[torch.arange(5), torch.arange(5) % num_classes] = 1e4
    z = torch.cat([sign, sure, sure, sure, sure, torch.full((5, num_classes), 1e4)]).to(dtype)
    floor = default_floor(num_classes)
    agree = floored(sure.softmax(dim=1), floor)
    parts = [agree, agree, agree.roll(1, dims=1), torch.full_like(agree, 1 / num_classes), 0 * agree, agree]
    return z, torch.arange(len(z)) % num_classes, torch.cat(parts).to(dtype)


@every_loss
@every_kind
@every_size
def test_logits_of_10000_give_finite_values_and_gradients(request, g, loss, num_classes, kind):
    z, y, t = extremes(g, num_classes)
    y = y if kind == "ids" else one_hot(y, num_classes).float()
    values, slope = loss(z, y, t), gradient(loss, z, y, t)
    assert values.dtype == slope.dtype == torch.float32
    assert values.isfinite().all()
    assert slope.isfinite().all()
    wide = y.double() if kind == "probabilities" else y
    # The authors' form subtracts from 1 a number within 2e-4 of it: float32 leaves the logarithm three digits.
    error = 1e-3 if "clamped" in request.node.callspec.id else 2e-6
    torch.testing.assert_close(values.double(), loss(z.double(), wide, t.double()), rtol=2e-6, atol=error)
    # Backward correction sums C products with an inverse; in which order, and how rounded, is the processor's choice.
    error = 2e-5 if "backward" in request.node.callspec.id else 2e-6
    torch.testing.assert_close(slope.double(), gradient(loss, z.double(), wide, t.double()), rtol=2e-6, atol=error)


@every_size
def test_lemma_2_at_logits_of_10000(g, num_classes):
    z, y, t = extremes(g, num_classes)
    exact = elr_gradient(z.double(), y, t.double(), 3.0)
    torch.testing.assert_close(elr_gradient(z, y, t, 3.0).double(), exact, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(gradient(LOSSES["elr_loss_lam_3"], z, y, t).double(), exact, rtol=2e-6, atol=2e-6)


def test_penalty_keeps_its_digits_at_logits_of_1000(g):
    """The difference of two logsumexp would be wrong in the fourth digit."""
    z, _, t = draw(g, 10, dtype=torch.float32, scale=1000.0)
    exact = elr_penalty(z.double(), t.double())
    torch.testing.assert_close(elr_penalty(z, t).double(), exact, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        elr_loss(z, torch.zeros(6, dtype=torch.int64), t, 3.0).penalty.double(), exact, rtol=1e-6, atol=1e-6
    )


@every_loss
@every_kind
@every_size
def test_half_precision_logits_are_computed_in_float32(g, loss, num_classes, kind):
    for half in (torch.bfloat16, torch.float16):
        z, y, t = draw(g, num_classes, kind, dtype=torch.float32)
        low = z.to(half)
        got = loss(low, y, t)
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, loss(low.float(), y, t), rtol=0, atol=0)
        torch.testing.assert_close(got, loss(z, y, t), rtol=0.05, atol=0.05)
        slope = gradient(loss, low, y, t)
        assert slope.dtype == half
        torch.testing.assert_close(slope, gradient(loss, low.float(), y, t).to(half), rtol=0, atol=0)


@every_loss
@every_kind
def test_autocast_changes_nothing_after_the_logits(g, loss, kind):
    z, y, t = draw(g, 10, kind, dtype=torch.float32, scale=8.0)
    weight = torch.eye(10)
    with torch.autocast("cpu", torch.bfloat16):
        low = z @ weight
        assert low.dtype == torch.bfloat16
        inside = loss(z, y, t)
        from_low = loss(low, y, t)
        slope = gradient(loss, z, y, t)
    torch.testing.assert_close(inside, loss(z, y, t), rtol=0, atol=0)
    torch.testing.assert_close(slope, gradient(loss, z, y, t), rtol=0, atol=0)
    torch.testing.assert_close(from_low, loss(low.float(), y, t), rtol=0, atol=0)
    assert from_low.dtype == torch.float32


@every_kind
@every_size
@pytest.mark.parametrize("lam", [0.0, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("clamp", [0.0, 1e-4])
def test_elr_loss_is_cross_entropy_plus_lam_times_penalty(g, num_classes, kind, lam, clamp):
    def two_terms(z, y, t):
        return cross_entropy(z, y) + lam * elr_penalty(z, t, clamp=clamp)

    def one_kernel(z, y, t):
        return elr_loss(z, y, t, lam, clamp=clamp).loss

    z, y, t = draw(g, num_classes, kind)
    torch.testing.assert_close(one_kernel(z, y, t), two_terms(z, y, t), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient(one_kernel, z, y, t), gradient(two_terms, z, y, t), rtol=1e-12, atol=1e-12)
    parts = elr_loss(z, y, t, lam, clamp=clamp)
    torch.testing.assert_close(parts.ce, cross_entropy(z, y), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(parts.penalty, elr_penalty(z, t, clamp=clamp), rtol=1e-12, atol=1e-12)


def test_elr_loss_weighs_each_row_by_the_gradient_it_receives(g):
    z, y, t = draw(g, 10)
    weight = torch.tensor([1.0, 0.0, 2.0, -1.0, 0.5, 3.0], dtype=torch.float64)
    z.requires_grad_()
    (slope,) = torch.autograd.grad((weight * elr_loss(z, y, t, 3.0).loss).sum(), z)
    torch.testing.assert_close(slope, weight[:, None] * elr_gradient(z.detach(), y, t, 3.0), rtol=1e-12, atol=1e-12)


def test_labels_that_do_not_sum_to_one_have_the_right_gradient(g):
    """Mixed and updated labels sum to one up to rounding only; a part of a label sums to less."""
    z, y, t = draw(g, 10, "probabilities")
    y = 0.4 * y
    expected = gradient(lambda z, y, t: cross_entropy(z, y) + 3.0 * elr_penalty(z, t), z, y, t)
    torch.testing.assert_close(gradient(LOSSES["elr_loss_lam_3"], z, y, t), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(elr_gradient(z, y, t, 3.0), expected, rtol=1e-12, atol=1e-12)


def test_elr_gradient_of_half_precision_logits_is_float32(g):
    z, y, t = draw(g, 10, dtype=torch.float32)
    low = z.bfloat16()
    torch.testing.assert_close(elr_gradient(low, y, t, 3.0), elr_gradient(low.float(), y, t, 3.0), rtol=0, atol=0)


def test_a_second_derivative_is_refused_or_right(g):
    """Gradient penalties differentiate twice; the kernel's own backward pass has no graph and must not pretend to."""
    x, y, t = draw(g, 4, rows=2)
    x.requires_grad_()
    weight = torch.randn(4, 4, generator=g, dtype=torch.float64, requires_grad=True)

    def twice(loss):
        (slope,) = torch.autograd.grad(loss(x @ weight).sum(), x, create_graph=True)
        return torch.autograd.grad(slope.pow(2).sum(), weight)[0]

    expected = twice(lambda z: cross_entropy(z, y) + 3.0 * elr_penalty(z, t))
    try:
        got = twice(lambda z: elr_loss(z, y, t, 3.0).loss)
    except RuntimeError:
        return
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
