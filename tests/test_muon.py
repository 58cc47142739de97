"""Muon: its steps against a transcription, what it leaves to SGD, and networks it is not for."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from elr.engine.muon import STEPS, filters, orthogonal
from elr.engine.optim import OptimConfig, build_optimizer, set_lr

MUON = OptimConfig(name="muon", lr=0.2, turn=0.07, momentum=0.8, nesterov=True, weight_decay=1e-2, batch_size=16)


class ConvNet(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.second = nn.Conv2d(6, 4, 3)  # with a bias: left to SGD
        self.head = nn.Linear(4, num_classes)

    def forward(self, x):
        x = functional.relu(self.norm(self.first(x)))
        return self.head(self.second(x).amax((2, 3)))

    def optim_scales(self):
        return {"norm.bias": (4.0, 0.25)}


def naive_orthogonal(matrix):
    """Jordan 2024, entry by entry as it is printed: X <- a X + (b A + c A A) X with A = X X'."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if tall else matrix) / matrix.pow(2).sum().sqrt()
    for _ in range(STEPS):
        gram = x @ x.T
        x = a * x + b * (gram @ x) + c * (gram @ (gram @ x))
    return x.T if tall else x


@pytest.mark.parametrize("shape", [(5, 40), (40, 5), (7, 7)])
def test_the_orthogonal_matrix_is_that_of_the_printed_iteration(g, shape):
    matrix = torch.randn(shape, generator=g, dtype=torch.float64)
    assert torch.allclose(orthogonal(matrix), naive_orthogonal(matrix), atol=1e-12)


def test_singular_values_become_alike_and_directions_stay(g):
    matrix = torch.randn(8, 60, generator=g, dtype=torch.float64)
    u, before, v = torch.linalg.svd(matrix, full_matrices=False)
    after = torch.diagonal(u.T @ orthogonal(matrix) @ v.T)
    assert torch.allclose(u @ torch.diag(after) @ v, orthogonal(matrix))
    assert before.max() / before.min() > 1.8
    assert after.min() > 0.65
    assert after.max() < 1.25


def test_a_matrix_of_zeros_stays_finite():
    assert torch.equal(orthogonal(torch.zeros(3, 9)), torch.zeros(3, 9))


def test_steps_are_those_of_a_transcription_and_the_rest_is_sgd(g):
    net = ConvNet().double()
    kernel = net.first.weight.detach().clone()
    plain = copy.deepcopy(net)
    optimizer = build_optimizer(net, MUON)
    sgd = build_optimizer(plain, OptimConfig(lr=0.2, momentum=0.8, nesterov=True, weight_decay=1e-2))
    memory = torch.zeros(6, 27, dtype=torch.float64)
    for rate in (0.2, 0.1, 0.05):
        gradients = {name: torch.randn(p.shape, generator=g, dtype=p.dtype) for name, p in net.named_parameters()}
        for each, stepper in ((net, optimizer), (plain, sgd)):
            for name, parameter in each.named_parameters():
                parameter.grad = gradients[name].clone()
            set_lr(stepper, rate)
            stepper.step()
        gradient = gradients["first.weight"].flatten(1)
        memory = 0.8 * memory + gradient
        norm = kernel.norm()
        step = naive_orthogonal(gradient + 0.8 * memory).view_as(kernel)
        kernel = kernel / norm * 6**0.5 - rate / 0.2 * 0.07 * step  # as airbench94_muon has it
        kernel = kernel / kernel.norm() * norm  # the norm it began with
    assert torch.allclose(net.first.weight, kernel, atol=1e-12)
    for name, parameter in net.named_parameters():
        assert torch.equal(parameter, plain.get_parameter(name)) == (name != "first.weight")


def test_a_kernel_turns_by_the_angle_it_is_told_and_keeps_its_norm(g):
    net = ConvNet().double()
    optimizer = build_optimizer(net, MUON)
    before = net.first.weight.detach().clone()
    net.first.weight.grad = torch.randn(before.shape, generator=g, dtype=before.dtype)
    set_lr(optimizer, MUON.lr)
    optimizer.step()
    after = net.first.weight
    assert after.norm().item() == pytest.approx(before.norm().item())
    angle = torch.acos((before * after).sum() / before.norm() ** 2).item()
    assert angle == pytest.approx(0.07, rel=0.25)  # singular values are alike within a fifth


def test_frozen_kernels_kernels_of_zeros_and_those_with_a_bias_are_not_turned():
    net = nn.Sequential(*[nn.Conv2d(3, 3, 3, bias=False) for _ in range(3)], nn.Conv2d(3, 3, 3))
    net[1].weight.requires_grad_(False)
    nn.init.zeros_(net[2].weight)
    assert filters(net) == {net[0].weight}


def test_an_idle_network_is_untouched():
    nets = nn.ModuleList([ConvNet(), ConvNet()])
    optimizer = build_optimizer(nets, MUON)
    before = [p.detach().clone() for p in nets[1].parameters()]
    for _ in range(2):
        nets[0](torch.ones(2, 3, 8, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    assert all(map(torch.equal, before, nets[1].parameters()))


def test_a_network_without_such_convolutions_is_refused():
    with pytest.raises(ValueError, match=r"^optim muon turns convolutions without a bias, and this network has none"):
        build_optimizer(nn.Linear(3, 2), MUON)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"name": "muon", "turn": 0.0}, "optim.turn must be positive, got 0.0"),
        ({"turn": 0.1}, "optim.turn is for muon, not for sgd"),
        ({"name": "adam", "turn": 0.1}, "optim.turn is for muon, not for adam"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, words):
    with pytest.raises(ValueError, match=f"^{words}$"):
        OptimConfig(**settings)
