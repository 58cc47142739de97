"""Entries of the gradient at the true class: by hand, and against autograd."""

import numpy as np
import pytest
import torch

from elr.losses import cross_entropy, elr_penalty, target_cross_entropy
from elr.losses.elr import elr_pull
from elr.methods import METHODS
from elr.report.gradients import gradient_entries


def test_entries_by_hand():
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.5, 0.25, 0.25]])
    pull = np.array([[-0.3, 0.2, 0.1], [0.1, -0.4, 0.3], [-0.6, 0.3, 0.3]])
    labels, true = np.array([0, 1, 2]), np.array([0, 1, 0])  # the third label is wrong
    found = gradient_entries(p, pull, labels, true)
    assert found["clean_ce"] == pytest.approx((-0.3 - 0.2) / 2)
    assert found["clean_ce_sd"] == pytest.approx(0.05)
    assert found["clean_size"] == pytest.approx(0.25)
    assert found["clean_total"] == pytest.approx((-0.6 - 0.6) / 2)
    assert found["wrong_ce"] == pytest.approx(0.5)
    assert found["wrong_pull"] == pytest.approx(-0.6)
    assert found["wrong_total"] == pytest.approx(-0.1)
    assert found["wrong_impostor_ce"] == pytest.approx(-0.75)
    assert found["wrong_impostor_total"] == pytest.approx(-0.45)
    assert "wrong_ce" not in gradient_entries(p[:2], None, labels[:2], true[:2])


def test_pulls_are_the_gradients_of_the_regularizers(g):
    z = torch.randn(6, 4, generator=g, dtype=torch.float64, requires_grad=True)
    t = torch.rand(6, 4, generator=g, dtype=torch.float64).softmax(dim=1) * 0.8  # sums to less than 1, as in the paper
    (elr,) = torch.autograd.grad(3.0 * elr_penalty(z, t).sum(), z)
    torch.testing.assert_close(elr_pull(z.detach().softmax(dim=1), t, 3.0), elr)
    method = METHODS["kl"](lam=5.0)
    method.build(lambda k=0: torch.nn.Linear(2, 4), 6, 4)
    method.targets.values = t
    (kl,) = torch.autograd.grad(5.0 * target_cross_entropy(z, t).sum(), z)
    torch.testing.assert_close(method.pull(z.detach().softmax(dim=1)), kl)


def test_the_entry_of_cross_entropy_is_p_minus_y(g):
    z = torch.randn(6, 4, generator=g, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    (ce,) = torch.autograd.grad(cross_entropy(z, y).sum(), z)
    found = gradient_entries(z.detach().softmax(dim=1).numpy(), None, y.numpy(), y.numpy())
    assert found["clean_ce"] == pytest.approx(float(ce.gather(1, y[:, None]).mean()))


def test_a_method_without_targets_has_nothing_to_believe():
    method = METHODS["ce"]()
    assert method.belief() is None
    assert method.pull(torch.ones(2, 2)) is None
