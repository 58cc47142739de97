"""ELR+ against Algorithm 2, step by step in the product's engine; and what each of its switches means."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from reference import elr_plus
from reference.elr_plus import Draws, Switches
from reference.tiny import FEATURES, TinyNet
from reference.watch import OPTIM, Watched, assert_same, watch

from elr.data.stream import Batch
from elr.methods.elr_plus import ELRPlus, updated_labels
from elr.parts.clock import Clock

# The networks are float64; what ELR+ computes from the logits is float32, hence not tighter.
RTOL = 1e-5


def follow(**settings):
    """The product's run and the oracle's with the same draws."""
    epochs = 9 * (3 - settings.get("networks", 2))  # 27 steps of each of two networks, or 54 of one
    run = watch(ELRPlus(**settings), step="step_of", n=24, batch=9, epochs=epochs)
    return run, elr_plus.train(run.start, run.x, run.y, draws(run, **settings), 3, switches(run, **settings), **OPTIM)


def draws(run: Watched, *, networks: int = 2, alpha: float = 1.0, mix_per: str = "batch", **_):
    """Rows of the batches as they came; mixup's draws from the same counted generators, made here once more."""
    passes = []
    for batches in run.passes:
        passes.append([])
        for rows, clock in batches:
            size = len(rows)
            weight, partner = [1.0] * size, list(range(size))
            if alpha > 0:
                rng = clock.rng("mixup")
                ell = np.broadcast_to(rng.beta(alpha, alpha, size=size if mix_per == "example" else None), size)
                weight = [float(np.float32(max(value, 1.0 - value))) for value in ell]
                partner = rng.permutation(size).tolist()
            passes[-1].append(Draws(rows.tolist(), weight, partner))
    return [passes[k : k + networks] for k in range(0, len(passes), networks)]


def switches(run: Watched, **settings):
    steps = sum(map(len, run.passes)) / settings.get("networks", 2)
    return Switches(
        lam=settings.get("lam", 3.0),
        beta=settings.get("beta", 0.7),
        gamma=settings.get("gamma", 0.997),
        averaging=settings.get("averaging", "ramp"),
        ramp_steps=settings.get("ramp_length", 0.57) * steps,
        lam_ramp=settings.get("ramp_lam", False),
        label_update=settings.get("update_labels", False),
        floor=1e-4 if settings.get("floor") is None else settings["floor"],
        clamp_penalty=settings.get("clamp_penalty", False),
        teacher_bn=settings.get("teacher_bn", "batch"),
    )


def assert_follows(**settings):
    run, oracle = follow(**settings)
    averages = () if settings.get("averaging") == "none" else ("averages",)
    if not averages:  # the oracle keeps unused copies
        oracle.statistics = [buffers[: len(buffers) // 2] for buffers in oracle.statistics]
    assert_same(run.trajectory, oracle, rtol=RTOL, names=("targets", "weights", *averages))
    for ours, theirs in zip(run.trajectory.statistics, oracle.statistics, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            if a.is_floating_point():  # not the count of batches
                torch.testing.assert_close(a, b, rtol=RTOL, atol=RTOL)


@pytest.mark.parametrize(
    ("networks", "averaging", "alpha"), list(itertools.product([1, 2], ["none", "ramp"], [0.0, 1.0]))
)
def test_each_configuration_of_the_ablation_follows_algorithm_2(networks, averaging, alpha):
    assert_follows(networks=networks, averaging=averaging, alpha=alpha)


@pytest.mark.parametrize(
    "settings",
    [
        {"averaging": "fixed", "gamma": 0.9},
        {"averaging": "warmup", "gamma": 0.9},
        {"mix_per": "example"},
        {"ramp_lam": True, "update_labels": True, "lam": 7.0, "beta": 0.9, "ramp_length": 0.45},
        {"ramp_lam": True, "ramp_length": 1.0, "mix_per": "example", "update_labels": True},
        {"teacher_bn": "running"},
        {"teacher_bn": "running", "averaging": "none"},
        {"floor": 0.05, "clamp_penalty": True},
        {"floor": 0.0},
    ],
    ids=lambda settings: ",".join(f"{name}={value}" for name, value in settings.items()),
)
def test_each_switch_follows_algorithm_2(settings):
    assert_follows(**settings)


def test_every_ablation_is_another_algorithm():
    """Else the comparison with the oracle would not tell the configurations apart."""
    ends = [
        watch(ELRPlus(networks=n, averaging=a, alpha=m), step="step_of", n=24, batch=9, epochs=18).trajectory.weights[
            -1
        ][0]
        for n, a, m in itertools.product([1, 2], ["none", "fixed"], [0.0, 1.0])
    ]
    for a, b in itertools.combinations(ends, 2):
        assert (a - b).abs().max() > 1e-3


def built(**settings):
    """A method with float32 networks, three classes and 24 examples, and a batch of nine."""
    torch.manual_seed(0)
    method = ELRPlus(**settings)
    method.build(lambda k=0: TinyNet(3), 24, 3)
    method.train()
    batch = Batch(torch.arange(3, 12), torch.randn(9, FEATURES), torch.arange(9) % 3)
    return method, batch


def step(method, batch, k=0, clock=None):
    """One update by plain descent."""
    result = method.step_of(k, batch, clock or Clock(0, epochs=10, batches=10))
    result.loss.backward()
    with torch.no_grad():
        for p in method.nets.parameters():
            if p.grad is not None:
                p -= 0.1 * p.grad
                p.grad = None
    result.then()
    return result


@pytest.mark.parametrize("averaging", ["none", "fixed"])
def test_targets_of_each_network_come_from_the_other_on_unmixed_input(averaging):
    method, batch = built(averaging=averaging, floor=0.0)
    for k in (0, 1):
        other = method.nets[1 - k] if averaging == "none" else method.averages[1 - k].net
        taught = copy.deepcopy(other)(batch.x).softmax(dim=1)
        step(method, batch, k)
        torch.testing.assert_close(method.criteria[k].targets.values[3:12], 0.3 * taught)
    assert not torch.equal(method.criteria[0].targets.values, method.criteria[1].targets.values)


def test_a_single_network_is_taught_by_its_own_average():
    method, batch = built(networks=1, averaging="fixed", gamma=0.5, floor=0.0)
    step(method, batch)
    first = 0.3 * copy.deepcopy(method.averages[0].net)(batch.x).softmax(dim=1)  # of the weights after one step
    before = method.criteria[0].targets.values[3:12].clone()
    step(method, batch)
    torch.testing.assert_close(method.criteria[0].targets.values[3:12], 0.7 * before + first)


def test_statistics_of_the_average_never_see_mixed_inputs():
    """The same statistics whether inputs are mixed or not, although the networks' own differ."""
    plain, batch = built(averaging="fixed", gamma=0.9, alpha=0.0)
    mixed, _ = built(averaging="fixed", gamma=0.9, alpha=1.0)
    for method in (plain, mixed):
        method.step_of(0, batch, Clock(0))
    same = [
        torch.equal(a, b) for a, b in zip(plain.averages[1].net.buffers(), mixed.averages[1].net.buffers(), strict=True)
    ]
    assert all(same)
    assert not torch.equal(plain.nets[0].layers[1].running_mean, mixed.nets[0].layers[1].running_mean)
    assert plain.averages[1].net.layers[1].running_mean.abs().max() > 0


def test_averages_start_as_copies_of_their_networks_which_differ():
    method, _ = built()
    for net, average in zip(method.nets, method.averages, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(net.parameters(), average.net.parameters(), strict=True))
    assert not torch.equal(method.nets[0].layers[0].weight, method.nets[1].layers[0].weight)


@pytest.mark.parametrize(
    ("settings", "steps_done", "gamma", "lam"),
    [
        # L = .5 x 100 steps; the first update is number 1
        ({"averaging": "ramp", "ramp_length": 0.5}, 0, 0.997 * math.exp(-5 * 0.98**2), 3.0),
        ({"averaging": "ramp", "ramp_length": 0.5}, 24, 0.997 * math.exp(-5 * 0.5**2), 3.0),
        ({"averaging": "ramp", "ramp_length": 0.5}, 49, 0.997, 3.0),
        ({"averaging": "ramp", "ramp_length": 0.5}, 99, 0.997, 3.0),
        ({"averaging": "ramp", "ramp_length": 0.0}, 0, 0.997, 3.0),
        ({"averaging": "ramp", "ramp_length": 80}, 39, 0.997 * math.exp(-5 * 0.5**2), 3.0),  # above 1: steps
        ({"averaging": "fixed"}, 0, 0.997, 3.0),
        ({"averaging": "warmup"}, 0, 0.5, 3.0),
        ({"averaging": "warmup"}, 8, 0.9, 3.0),
        ({"averaging": "warmup", "gamma": 0.8}, 8, 0.8, 3.0),
        ({"averaging": "none"}, 50, 0.0, 3.0),
        ({"ramp_lam": True, "averaging": "fixed", "ramp_length": 0.5}, 24, 0.997, 3.0 * math.exp(-5 * 0.5**2)),
        ({"ramp_lam": True, "averaging": "none", "ramp_length": 0.5}, 60, 0.0, 3.0),
    ],
)
def test_gamma_and_lambda_in_effect_are_logged(settings, steps_done, gamma, lam):
    method, batch = built(**settings)
    clock = Clock(0, epoch=steps_done // 10, epochs=10, batch=steps_done % 10, batches=10)
    log = method.step_of(0, batch, clock).log
    assert log["gamma"] == pytest.approx(gamma, rel=1e-12)
    assert log["lam"] == pytest.approx(lam, rel=1e-12)


@pytest.mark.parametrize("epochs", [1, 3, 200])
def test_a_short_run_leaves_the_ramp_too(epochs):
    method, batch = built()
    last = Clock(0, epoch=epochs - 1, epochs=epochs, batch=9, batches=10)
    assert method.step_of(0, batch, last).log["gamma"] == 0.997


def test_label_update_reweighs_a_pair_by_its_targets():
    y = torch.tensor([[0.75, 0.25, 0.0], [1.0, 0.0, 0.0]])
    t = torch.tensor([[0.1, 0.6, 0.2], [0.01, 0.9, 0.0]])
    torch.testing.assert_close(updated_labels(y, t), torch.tensor([[1 / 3, 2 / 3, 0.0], [1.0, 0.0, 0.0]]))


def test_label_update_keeps_the_label_where_the_target_has_no_mass():
    y = torch.tensor([[0.75, 0.25, 0.0]] * 3)
    t = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1e-44, 1e-44, 1.0]])
    assert torch.equal(updated_labels(y, t), y)


def test_label_update_without_mixup_changes_nothing():
    one, batch = built(update_labels=True, alpha=0.0)
    other, _ = built(update_labels=False, alpha=0.0)
    torch.testing.assert_close(one.step_of(0, batch, Clock(0)).loss, other.step_of(0, batch, Clock(0)).loss)


def test_prediction_is_the_mean_of_probabilities_or_of_logits():
    method, batch = built()
    method.eval()
    logits = torch.stack([net(batch.x) for net in method.nets])
    torch.testing.assert_close(method.predict(batch.x), logits.softmax(dim=2).mean(dim=0))
    method.combine = "logits"
    torch.testing.assert_close(method.predict(batch.x), logits.mean(dim=0).softmax(dim=1))


def test_evidence_is_about_unmixed_input():
    method, batch = built()
    result = method.step_of(0, batch, Clock(0))
    index, logits = result.seen
    assert torch.equal(index, batch.index)
    assert logits.shape == (9, 3)
    assert not logits.requires_grad


@pytest.mark.parametrize(
    ("settings", "cost"),
    [({}, 8 / 3), ({"networks": 1}, 4 / 3), ({"networks": 1, "averaging": "none", "alpha": 0.0}, 1.0)],
    ids=str,
)
def test_cost_relative_to_cross_entropy(settings, cost):
    assert ELRPlus(**settings).cost == pytest.approx(cost)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"gamma": 1.0}, "gamma"),
        ({"gamma": -0.1}, "gamma"),
        ({"alpha": -1.0}, "alpha"),
        ({"alpha": float("nan")}, "alpha"),
        ({"ramp_length": -1.0}, "ramp_length"),
        ({"networks": 3}, "networks"),
        ({"beta": 1.0}, "beta"),
        ({"lam": -1.0}, "lam"),
        ({"averaging": "rampp"}, "averaging"),
        ({"mix_per": "row"}, "mix_per"),
        ({"teacher_bn": "eval"}, "teacher_bn"),
        ({"combine": "votes"}, "combine"),
    ],
    ids=str,
)
def test_settings_outside_their_range_are_refused(settings, name):
    with pytest.raises(ValueError, match=name):
        ELRPlus(**settings)


def test_every_pass_visits_every_example_once_in_an_order_of_its_own():
    run = watch(ELRPlus(), step="step_of", n=24, batch=9, epochs=4)
    orders = [torch.cat([rows for rows, _ in batches]).tolist() for batches in run.passes]
    assert len(orders) == 8
    assert all(sorted(order) == list(range(24)) for order in orders)
    assert len(set(map(tuple, orders))) == 8
