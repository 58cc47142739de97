"""Claims that the paper makes in prose and that are arithmetic: docs/claims.md lists them with the lines."""

import pytest
import torch

from elr.losses.elr import elr_gradient, elr_pull
from elr.methods import METHODS


def sure(p: float, classes: int = 10) -> torch.Tensor:
    """p for the first class, the rest spread evenly, (1, C)."""
    rest = (1 - p) / (classes - 1)
    return torch.tensor([[p] + [rest] * (classes - 1)], dtype=torch.float64)


def without_log(p: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """Gradient of 1 - <p, t> at the logits."""
    return p * ((p * t).sum(dim=1, keepdim=True) - t)


@pytest.mark.parametrize("distance", [1e-2, 1e-4, 1e-6])
def test_the_logarithm_keeps_the_pull_alive_where_the_softmax_saturates(distance):
    # Line 266. Without it the pull on a prediction that is sure and right dies with 1 - p.
    p, t = sure(1 - distance), sure(1.0)
    assert abs(without_log(p, t)[0, 0].item()) < 2 * distance
    assert elr_pull(p, t, 1.0)[0, 0].item() == pytest.approx(-(1 - distance))


def test_the_sign_of_g_at_a_class_is_that_of_the_mean_target_minus_its_own(g):
    # Line 297: negative exactly where t_c is above the p-weighted mean of t; so at the largest entry of t always.
    p = torch.rand(500, 10, generator=g, dtype=torch.float64).softmax(dim=1)
    t = (3 * torch.rand(500, 10, generator=g, dtype=torch.float64)).softmax(dim=1)
    pull = elr_pull(p, t, 3.0)
    assert torch.equal(pull < 0, t > (p * t).sum(dim=1, keepdim=True))
    assert (pull.gather(1, t.argmax(dim=1, keepdim=True)) < 0).all()
    assert (pull.gather(1, t.argmin(dim=1, keepdim=True)) > 0).all()


def test_a_wrong_label_reverses_the_entry_of_the_true_class_and_of_the_impostor(g):
    # Line 255. Cross entropy alone: p - y.
    z = torch.randn(200, 10, generator=g, dtype=torch.float64)
    true, impostor = torch.zeros(200, dtype=torch.long), torch.full((200,), 4)
    nothing = torch.zeros(200, 10, dtype=torch.float64)
    right, wrong = (elr_gradient(z, labels, nothing, 0.0) for labels in (true, impostor))
    assert (right[:, 0] < 0).all()
    assert (right[:, 4] > 0).all()
    assert (wrong[:, 0] > 0).all()
    assert (wrong[:, 4] < 0).all()


@pytest.mark.parametrize("lam", [1.0, 3.0, 7.0])
def test_with_a_right_target_the_pull_cancels_a_wrong_label_and_keeps_a_right_one_alive(lam):
    # Lines 301-302: target and prediction sure of class 0.
    p, t = sure(0.9), sure(0.95)
    z = p.log()
    wrong = elr_gradient(z, torch.tensor([1]), t, lam)[0]
    alone = elr_gradient(z, torch.tensor([1]), t, 0.0)[0]
    assert abs(wrong[0]) < abs(alone[0]) or wrong[0] < 0  # dampened, or turned round
    right = elr_gradient(z, torch.tensor([0]), t, lam)[0]
    assert right[0] < elr_gradient(z, torch.tensor([0]), t, 0.0)[0, 0] - 0.3  # larger in magnitude, the same sign


def test_kl_pulls_the_true_class_down_when_its_target_lags_and_elr_does_not():
    # Line 970: p_c* = .95 has moved ahead of its running average, .8.
    p, t = sure(0.95), sure(0.8)
    kl = METHODS["kl"](lam=1.0)
    kl.build(lambda k=0: torch.nn.Linear(1, 10), 1, 10)
    kl.targets.values = t
    assert kl.pull(p)[0, 0] > 0  # gradient descent lowers the logit
    assert elr_pull(p, t, 1.0)[0, 0] < 0


def test_the_kl_gradient_as_printed_needs_targets_that_sum_to_one():
    # Line 968, Eq. 18: p - t. A running average that starts at 0 sums to 1 - beta^k, and the gradient is p sum(t) - t.
    p = sure(0.95)
    t = 0.3 * p  # after the first visit with beta = .7, where the network has not moved since
    kl = METHODS["kl"](lam=1.0)
    kl.build(lambda k=0: torch.nn.Linear(1, 10), 1, 10)
    kl.targets.values = t
    assert torch.allclose(kl.pull(p), torch.zeros(1, 10, dtype=torch.float64), atol=1e-12)
    assert (p - t).abs().max() > 0.6
