"""Muon: its steps against a transcription, what it leaves to SGD, resuming, and networks it is not for."""

import copy
from dataclasses import replace

import pytest
import torch
from reference.tiny import Stop, tiny_job
from torch import nn
from torch.nn import functional

from elr.config import resolve
from elr.data import DataConfig, from_arrays
from elr.engine.checkpoint import checkpoints
from elr.engine.device import RuntimeConfig
from elr.engine.muon import STEPS, orthogonal
from elr.engine.optim import OptimConfig, build_optimizer, set_lr
from elr.engine.train import train
from elr.methods import METHODS

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
        kernel = kernel / kernel.norm() * 6**0.5
        step = naive_orthogonal(gradient + 0.8 * memory).view_as(kernel)
        kernel = kernel - rate / 0.2 * 0.07 * step
    assert torch.allclose(net.first.weight, kernel, atol=1e-12)
    for name, parameter in net.named_parameters():
        assert torch.equal(parameter, plain.get_parameter(name)) == (name != "first.weight")


def test_the_scale_of_a_turned_kernel_changes_nothing(g):
    """Why it may be taken away: a norm follows."""
    net = ConvNet()
    x = torch.randn(9, 3, 8, 8, generator=g)
    before = net(x)
    with torch.no_grad():
        net.first.weight.mul_(10.0)
    assert torch.allclose(net(x), before, atol=1e-4)


def test_an_idle_network_is_untouched():
    nets = nn.ModuleList([ConvNet(), ConvNet()])
    optimizer = build_optimizer(nets, MUON)
    before = [p.detach().clone() for p in nets[1].parameters()]
    for _ in range(2):
        nets[0](torch.ones(2, 3, 8, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    assert all(map(torch.equal, before, nets[1].parameters()))


def images(n=40):
    x = torch.randint(0, 256, (n, 8, 8, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)).numpy()
    return from_arrays(x, torch.arange(n).numpy() % 3, config=DataConfig(val_fraction=0.0, pad=1))


@pytest.mark.parametrize("method", ["ce", "elr_plus"])
def test_resume_is_bit_identical(tmp_path, method):
    runs = {}
    for name in ("whole", "cut"):
        out = tmp_path / name
        out.mkdir()
        runtime = RuntimeConfig(device="cpu", channels_last=True)
        job = tiny_job(METHODS[method](), data=images(), make_model=ConvNet, epochs=3, out=out)
        job = replace(job, optim=MUON, runtime=runtime)
        if name == "cut":
            with pytest.raises(KeyboardInterrupt):
                train(replace(job, progress=Stop(1)))
            job = replace(job, method=METHODS[method]())
        train(job)
        runs[name] = [path.read_bytes() for path in checkpoints(out / "checkpoint")]
    assert runs["whole"] == runs["cut"]


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


def test_runs_without_it_have_the_digest_they_had():
    assert "optim.turn" in resolve({}).identity()
    assert resolve({}).digest() != resolve({"optim": "muon", "optim.turn": 0.1}).digest()
    assert resolve({"epochs": 16}).digest() == resolve({"epochs": 16, "optim.turn": None}).digest()
