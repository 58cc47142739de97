"""The paper's equations, and vectors worked out by hand, against the product in float64."""

import math

import pytest
import torch

from elr.losses import ELRLoss, cross_entropy, elr_gradient, elr_loss, elr_penalty, target_cross_entropy
from elr.losses.elr import default_floor, floored
from elr.parts.table import ExampleTable

# z = ln(1, 2, 3, 4), label 1, and a target that sums to 1
Z = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64).log()
P = torch.tensor([[0.1, 0.2, 0.3, 0.4]], dtype=torch.float64)
Y = torch.tensor([1])
T = torch.tensor([[0.1, 0.6, 0.2, 0.1]], dtype=torch.float64)


def draw(g, num_classes, rows=8):
    """Logits, soft labels and targets; the targets of row i sum to 1 - .7^(i+1), as after i+1 visits."""
    z = 3 * torch.randn(rows, num_classes, generator=g, dtype=torch.float64)
    y = torch.randn(rows, num_classes, generator=g, dtype=torch.float64).softmax(dim=1)
    t = (2 * torch.randn(rows, num_classes, generator=g, dtype=torch.float64)).softmax(dim=1)
    return z, y, t * (1 - 0.7 ** torch.arange(1, rows + 1, dtype=torch.float64))[:, None]


def gradient(function, z):
    """Of the sum over rows: rows do not meet, so this is the gradient of each."""
    z = z.clone().requires_grad_()
    return torch.autograd.grad(function(z).sum(), z)[0]


def textbook(z, y, t, lam):
    """Eq. (4) and (6) as printed."""
    p = z.softmax(dim=1)
    return -(y * p.log()).sum(dim=1) + lam * (1 - (p * t).sum(dim=1)).log()


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("lam", [0.0, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("num_classes", [2, 10, 100])
def test_lemma_2_is_the_gradient_of_the_loss_as_printed(g, num_classes, lam):
    z, y, t = draw(g, num_classes)
    expected = gradient(lambda z: textbook(z, y, t, lam), z)
    close(elr_gradient(z, y, t, lam), expected)
    close(gradient(lambda z: elr_loss(z, y, t, lam).loss, z), expected)
    close(gradient(lambda z: cross_entropy(z, y) + lam * elr_penalty(z, t), z), expected)
    labels = y.argmax(dim=1)
    hard = torch.nn.functional.one_hot(labels, num_classes).double()
    close(elr_gradient(z, labels, t, lam), gradient(lambda z: textbook(z, hard, t, lam), z))


def test_lemma_2_is_the_gradient_of_the_module(g):
    z, y, t = draw(g, 10)
    criterion = ELRLoss(8, 10, lam=3.0, reduction="sum").eval()
    criterion.targets.values.copy_(t)
    kept = criterion.targets.values.double()
    index = torch.arange(8)
    close(gradient(lambda z: criterion(z, y, index), z), elr_gradient(z, y, kept, 3.0))


@pytest.mark.parametrize("num_classes", [2, 10, 100])
def test_equation_8_is_the_gradient_of_the_penalty(g, num_classes):
    z, _, t = draw(g, num_classes)
    p = z.softmax(dim=1)
    expected = torch.zeros_like(z)
    for i in range(len(z)):
        rest = 1 - sum(p[i, k] * t[i, k] for k in range(num_classes))
        for c in range(num_classes):
            expected[i, c] = p[i, c] / rest * sum((t[i, k] - t[i, c]) * p[i, k] for k in range(num_classes))
    got = gradient(lambda z: elr_penalty(z, t), z)
    close(got, expected)
    close(elr_gradient(z, p, t, 1.0), expected)  # labels equal to p: the cross entropy has no gradient
    close(got.sum(dim=1), torch.zeros(len(z), dtype=torch.float64))
    assert got.abs().max() <= 1
    rows = torch.arange(len(z))
    assert (got[rows, t.argmax(dim=1)] < 0).all()  # the class the target favours is always pulled up


def test_equation_9_is_a_weighted_sum_of_all_predictions(g):
    table, beta = ExampleTable(3, 4), 0.7
    seen = [torch.randn(3, 4, generator=g).softmax(dim=1) for _ in range(6)]
    for k, p in enumerate(seen, start=1):
        new = table.average_in(torch.arange(3), p, beta)
        expected = sum((1 - beta) * beta ** (k - j) * p_j for j, p_j in enumerate(seen[:k], start=1))
        close(new, expected, 1e-6)
        close(new.sum(dim=1), torch.full((3,), 1 - beta**k), 1e-6)
    close(table.values, new, 0.0)


def test_targets_of_predictions_2_6_8_tenths():
    table = ExampleTable(1, 2)
    for p, t in [(0.2, 0.06), (0.6, 0.222), (0.8, 0.3954)]:
        new = table.average_in(torch.tensor([0]), torch.tensor([[p, 1 - p]]), 0.7)
        assert new[0, 0].item() == pytest.approx(t, abs=1e-7)


def test_cross_entropy_of_the_canonical_vector():
    close(Z.softmax(dim=1), P)
    assert cross_entropy(Z, Y).item() == pytest.approx(1.6094379124341003, abs=1e-15)
    close(gradient(lambda z: cross_entropy(z, Y), Z), torch.tensor([[0.1, -0.8, 0.3, 0.4]], dtype=torch.float64))


def test_penalty_of_the_canonical_vector():
    # <p, t> = .23, g_c = p_c (.23 - t_c) / .77
    assert elr_penalty(Z, T).item() == pytest.approx(math.log(0.77), abs=1e-15)
    g = torch.tensor([[0.013, -0.074, 0.009, 0.052]], dtype=torch.float64) / 0.77
    close(gradient(lambda z: elr_penalty(z, T), Z), g)
    total = elr_loss(Z, Y, T, 3.0)
    assert total.loss.item() == pytest.approx(0.8253436200308778, abs=1e-14)  # ln 5 + 3 ln .77
    close(elr_gradient(Z, Y, T, 3.0), torch.tensor([[0.1, -0.8, 0.3, 0.4]], dtype=torch.float64) + 3 * g)


def test_regularization_by_kl_of_the_canonical_vector():
    def loss(z, t):
        return cross_entropy(z, Y) + 5 * target_cross_entropy(z, t)

    assert loss(Z, T).item() == pytest.approx(9.2511624, abs=5e-8)
    close(gradient(lambda z: loss(z, T), Z), torch.tensor([[0.1, -2.8, 0.8, 1.9]], dtype=torch.float64))
    # A target after one visit sums to .3: the gradient is (sum t) p - t, not the p - t of Eq. (18).
    close(gradient(lambda z: loss(z, 0.3 * T), Z), torch.tensor([[0.1, -1.4, 0.45, 0.85]], dtype=torch.float64))
    close(gradient(lambda z: loss(z, P), Z), gradient(lambda z: cross_entropy(z, Y), Z))


def test_gradient_of_kl_is_mass_times_p_minus_t(g):
    z, _, t = draw(g, 10)
    expected = t.sum(dim=1, keepdim=True) * z.softmax(dim=1) - t
    close(gradient(lambda z: target_cross_entropy(z, t), z), expected)


def test_penalty_equals_log_of_one_minus_agreement(g):
    z, _, t = draw(g, 10)
    close(elr_penalty(z, t), torch.log(1 - (z.softmax(dim=1) * t).sum(dim=1)))


@pytest.mark.parametrize(("num_classes", "least"), [(2, -8.52), (10, -6.91), (100, -4.62), (1000, -2.40)])
def test_least_penalty_of_the_authors_form(num_classes, least):
    """Their floor of 1e-4 on p, in the target and in the penalty, bounds it by a number that depends on C."""
    z = torch.zeros(1, num_classes, dtype=torch.float64)
    z[0, 0] = 100.0
    t = floored(z.softmax(dim=1), 1e-4)
    assert elr_penalty(z, t, clamp=1e-4).item() == pytest.approx(least, abs=0.005)


def test_the_authors_clamp_kills_the_pull_on_confident_predictions():
    """At 1 - p = 1e-4 and C = 10 the gradient on the target's class is -.10, and 0 just beyond in their form."""
    p = torch.full((1, 10), 0.99e-4 / 9, dtype=torch.float64)
    p[0, 0] = 1 - 0.99e-4
    t = floored(torch.eye(10, dtype=torch.float64)[:1], 1e-4)
    free = gradient(lambda z: elr_penalty(z, t), p.log())
    clamped = gradient(lambda z: elr_penalty(z, t, clamp=1e-4), p.log())
    assert free[0, 0].item() == pytest.approx(-0.10, abs=0.005)
    assert clamped.abs().max() == 0.0


def test_floor_is_the_authors_up_to_100_classes_and_caps_no_target_below_99_percent():
    assert [default_floor(c) for c in (2, 10, 100)] == [1e-4, 1e-4, 1e-4]
    assert default_floor(1000) == pytest.approx(1e-5)
    for num_classes in (2, 10, 100, 1000, 10_000):
        sure = torch.eye(1, num_classes, dtype=torch.float64)
        assert floored(sure, default_floor(num_classes)).max() > 0.989


def test_floored_is_clamped_then_renormalised():
    p = torch.tensor([[0.97, 0.02, 0.01]], dtype=torch.float64)
    expected = torch.tensor([[0.95, 0.05, 0.05]], dtype=torch.float64) / 1.05
    close(floored(p, 0.05), expected)
    close(p, torch.tensor([[0.97, 0.02, 0.01]], dtype=torch.float64))  # the argument is left alone
    close(floored(p, 0.0), p)
