"""SGD, Adam and Muon: what they compute, what a checkpoint keeps of them, and that resuming gives the same bits."""

import math
from dataclasses import replace

import pytest
import torch
from reference.tiny import Stop, tiny_data, tiny_job
from torch import nn

from elr.config import resolve
from elr.data import DataConfig, from_arrays
from elr.engine.checkpoint import checkpoints, read_tensors
from elr.engine.device import RuntimeConfig
from elr.engine.optim import OptimConfig, build_optimizer, load_optimizer_state, optimizer_state, set_lr
from elr.engine.train import train
from elr.methods import METHODS

SGD = OptimConfig(lr=0.1, weight_decay=1e-3, batch_size=16)
ADAM = OptimConfig(name="adam", lr=0.01, weight_decay=1e-2, beta1=0.8, beta2=0.95, batch_size=16)
MUON = OptimConfig(name="muon", lr=0.1, turn=0.07, nesterov=True, weight_decay=1e-3, batch_size=16)
both = pytest.mark.parametrize("optim", [SGD, ADAM], ids=["sgd", "adam"])


def naive_adam(start, gradients, config, *, eps=1e-8):
    """Kingma and Ba 2015, Algorithm 1, number by number, with the L2 term in the gradient."""
    x, mean, square = float(start), 0.0, 0.0
    for t, gradient in enumerate(gradients, start=1):
        g = float(gradient) + config.weight_decay * x
        mean = config.beta1 * mean + (1.0 - config.beta1) * g
        square = config.beta2 * square + (1.0 - config.beta2) * g * g
        x -= config.lr * (mean / (1.0 - config.beta1**t)) / (math.sqrt(square / (1.0 - config.beta2**t)) + eps)
    return x


def test_adam_is_algorithm_1_with_the_decay_in_the_gradient(g):
    net = nn.Linear(3, 1, bias=False).double()
    start = net.weight.detach().clone()
    optimizer = build_optimizer(net, ADAM)
    gradients = torch.randn(7, 1, 3, generator=g, dtype=torch.float64)
    for gradient in gradients:
        net.weight.grad = gradient.clone()
        set_lr(optimizer, ADAM.lr)
        optimizer.step()
    expected = [naive_adam(start[0, j], gradients[:, 0, j], ADAM) for j in range(3)]
    assert net.weight[0].tolist() == pytest.approx(expected, rel=1e-9)


def test_the_defaults_are_those_of_sgd_as_before():
    optimizer = build_optimizer(nn.Linear(2, 2), OptimConfig())
    assert type(optimizer) is torch.optim.SGD
    group = optimizer.param_groups[0]
    assert (group["lr"], group["momentum"], group["nesterov"], group["weight_decay"]) == (0.02, 0.9, False, 1e-3)


def test_adam_skips_a_network_without_gradient():
    nets = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    before = nets[1].weight.detach().clone()
    optimizer = build_optimizer(nets, ADAM)
    for _ in range(3):
        nets[0](torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    assert torch.equal(nets[1].weight, before)
    assert {name.rpartition(".")[2] for name in optimizer_state(optimizer)} == {"0", "1"}


def test_multipliers_of_a_network_hold_for_adam_too():
    class Slow(nn.Linear):
        def optim_scales(self):
            return {"bias": (0.5, 0.0)}

    optimizer = build_optimizer(Slow(3, 2), ADAM)
    set_lr(optimizer, 0.02)
    groups = {group["params"][0].dim(): (group["lr"], group["weight_decay"]) for group in optimizer.param_groups}
    assert groups == {2: (0.02, 1e-2), 1: (0.01, 0.0)}


def test_a_checkpoint_names_what_each_optimizer_remembers(tmp_path):
    names = {}
    for optim in (SGD, ADAM):
        out = tmp_path / optim.name
        out.mkdir()
        train(replace(tiny_job(METHODS["ce"](), epochs=1, out=out), optim=optim))
        tensors, _ = read_tensors(checkpoints(out / "checkpoint")[-1])
        names[optim.name] = {name for name in tensors if not name.startswith(("method.", "watched."))}
    assert names["sgd"] == {
        f"momentum.{k}" for k in range(6)
    }  # two layers and a normalisation: weight and bias of each
    assert names["adam"] == {f"{name}.{k}" for name in ("exp_avg", "exp_avg_sq", "step") for k in range(6)}


def images(n=40):
    x = torch.randint(0, 256, (n, 8, 8, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)).numpy()
    return from_arrays(x, torch.arange(n).numpy() % 3, config=DataConfig(val_fraction=0.0, pad=1))


@both
@pytest.mark.parametrize("method", ["ce", "elr_plus"])
def test_resume_is_bit_identical(tmp_path, optim, method):
    runs = {}
    for name in ("whole", "cut"):
        out = tmp_path / name
        out.mkdir()
        job = replace(tiny_job(METHODS[method](), epochs=4, out=out), optim=optim)
        if name == "cut":
            with pytest.raises(KeyboardInterrupt):
                train(replace(job, progress=Stop(2)))
            job = replace(tiny_job(METHODS[method](), epochs=4, out=out), optim=optim)  # new networks, new optimizer
        train(job)
        runs[name] = [path.read_bytes() for path in checkpoints(out / "checkpoint")]
    assert runs["whole"] == runs["cut"]


def test_images_are_channels_last_unless_told_otherwise_and_never_on_mps():
    assert RuntimeConfig().layout(torch.device("cpu"))
    assert not RuntimeConfig(channels_last=False).layout(torch.device("cpu"))
    assert not RuntimeConfig().layout(torch.device("mps"))


@pytest.mark.parametrize("method", ["ce", "elr_plus"])
@pytest.mark.parametrize("optim", [SGD, ADAM, MUON], ids=["sgd", "adam", "muon"])
def test_resume_is_bit_identical_in_channels_last(tmp_path, optim, method):
    """Fused kernels walk through weights and their state side by side: both must have one memory layout."""
    data = images()

    def make_model():
        first = [nn.Conv2d(3, 5, 3, bias=False), nn.BatchNorm2d(5), nn.ReLU()]  # muon turns this one only
        return nn.Sequential(*first, nn.Conv2d(5, 4, 3), nn.Flatten(), nn.Linear(64, 3))

    runs = {}
    for name in ("whole", "cut"):
        out = tmp_path / name
        out.mkdir()
        runtime = RuntimeConfig(device="cpu", channels_last=True)
        job = replace(
            tiny_job(METHODS[method](), data=data, make_model=make_model, epochs=3, out=out),
            optim=optim,
            runtime=runtime,
        )
        if name == "cut":
            with pytest.raises(KeyboardInterrupt):
                train(replace(job, progress=Stop(1)))
            job = replace(job, method=METHODS[method]())
        train(job)
        runs[name] = [path.read_bytes() for path in checkpoints(out / "checkpoint")]
    assert runs["whole"] == runs["cut"]


def test_state_goes_from_one_optimizer_to_its_twin(g):
    nets = [nn.Linear(4, 3), nn.Linear(4, 3)]
    nets[1].load_state_dict(nets[0].state_dict())
    optimizers = [build_optimizer(net, ADAM) for net in nets]
    x = torch.randn(3, 5, 4, generator=g)

    def step(k, batch):
        nets[k](batch).square().sum().backward()
        optimizers[k].step()
        optimizers[k].zero_grad(set_to_none=True)

    step(0, x[0])
    nets[1].load_state_dict(nets[0].state_dict())
    load_optimizer_state(optimizers[1], {**optimizer_state(optimizers[0]), "method.nets.0": torch.zeros(1)})
    for batch in x[1:]:
        step(0, batch)
        step(1, batch)
    assert torch.equal(nets[0].weight, nets[1].weight)


def test_adam_trains_from_the_configuration():
    config = resolve({"optim": "adam", "optim.lr": 0.01, "optim.beta1": 0.5})
    assert (config.optim.name, config.optim.beta1, config.optim.beta2) == ("adam", 0.5, 0.999)
    job = replace(tiny_job(METHODS["elr"](), data=tiny_data(150), epochs=8), optim=replace(config.optim, batch_size=16))
    assert train(job).records[-1]["test_accuracy"] > 0.8


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"name": "adagrad"}, "optim.name must be one of sgd, adam, muon, got 'adagrad'"),
        ({"name": "adam", "beta1": 1.0}, r"optim.beta1 must lie in \[0, 1\), got 1.0"),
        ({"name": "adam", "beta2": -0.1}, r"optim.beta2 must lie in \[0, 1\), got -0.1"),
        ({"name": "adam", "nesterov": True}, "optim.nesterov is for sgd and muon, not for adam"),
        ({"beta1": 0.5}, "optim.beta1 and optim.beta2 are for adam, not for sgd"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, words):
    with pytest.raises(ValueError, match=f"^{words}$"):
        OptimConfig(**settings)
