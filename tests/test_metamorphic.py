"""Runs that must be equal because their settings mean the same, and data that must not matter."""

import dataclasses

import numpy as np
import pytest
import torch
from reference.tiny import FEATURES, TinyNet, blobs, tiny_data, tiny_job
from reference.watch import watch
from torch import nn

from elr.data import Data, DataConfig, Examples, from_arrays
from elr.data.inputs import TensorInputs
from elr.engine.train import train
from elr.losses import ELRLoss
from elr.methods import METHODS
from elr.methods.ce import CE
from elr.methods.elr import ELR
from elr.methods.elr_plus import ELRPlus
from elr.methods.kl import KL
from elr.parts.mixup import Mix


def networks_after(method, **settings):
    """State of the networks after training."""
    train(tiny_job(method, epochs=4, **settings))
    return {name: value.clone() for name, value in method.nets.state_dict().items()}


def assert_equal(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), f"{name} differs by {(a[name] - b[name]).abs().max():.2g}"


@pytest.mark.parametrize("n", [64, 70], ids=["even batches", "ragged"])
def test_elr_with_lam_0_is_cross_entropy_bit_for_bit(n):
    data = tiny_data(n, val_fraction=0.0)
    assert_equal(networks_after(ELR(lam=0.0), data=data), networks_after(CE(), data=data))


@pytest.mark.parametrize("n", [64, 70], ids=["even batches", "ragged"])
def test_kl_with_lam_0_is_cross_entropy_bit_for_bit(n):
    data = tiny_data(n, val_fraction=0.0)
    assert_equal(networks_after(KL(lam=0.0), data=data), networks_after(CE(), data=data))


@pytest.mark.parametrize("n", [64, 70], ids=["even batches", "ragged"])
@pytest.mark.parametrize("clamp_penalty", [False, True])
def test_elr_plus_without_its_parts_is_elr_bit_for_bit(n, clamp_penalty):
    data = tiny_data(n, val_fraction=0.0)
    bare = ELRPlus(networks=1, averaging="none", alpha=0.0, clamp_penalty=clamp_penalty)
    plain = ELR(clamp_penalty=clamp_penalty)
    assert_equal(networks_after(bare, data=data), networks_after(plain, data=data))
    assert torch.equal(bare.criteria[0].targets.values, plain.criterion.targets.values)


def test_mixup_of_weight_1_changes_nothing():
    """Beta(1e-9, 1e-9) is a coin: l is 0 or 1, so max(l, 1 - l) is 1."""
    off, coin = ELRPlus(alpha=0.0), ELRPlus(alpha=1e-9)
    assert_equal(networks_after(off), networks_after(coin))
    by_example = ELRPlus(alpha=1e-9, mix_per="example")
    assert_equal(networks_after(by_example), networks_after(off))
    x = torch.randn(5, 3)
    assert torch.equal(Mix(torch.tensor(1.0), torch.tensor([4, 3, 2, 1, 0])).blend(x), x)


def test_mixup_does_change_the_weights():
    assert not torch.equal(
        networks_after(ELRPlus())["0.layers.0.weight"], networks_after(ELRPlus(alpha=0.0))["0.layers.0.weight"]
    )


@pytest.mark.parametrize("networks", [1, 2])
def test_averages_with_gamma_0_are_the_networks(networks):
    method = ELRPlus(gamma=0.0, averaging="fixed", networks=networks)
    networks_after(method)
    for net, average in zip(method.nets, method.averages, strict=True):
        for a, b in zip(net.parameters(), average.net.parameters(), strict=True):
            assert torch.equal(a, b)


def test_averages_with_gamma_0_teach_what_the_raw_networks_teach():
    """With batch statistics, teacher and network are the same function; so are the targets, and all that follows."""

    def model():
        return TinyNet(3)  # dropout would be drawn for each of them

    averaged, raw = ELRPlus(gamma=0.0, averaging="fixed"), ELRPlus(averaging="none")
    assert_equal(networks_after(averaged, make_model=model), networks_after(raw, make_model=model))


@pytest.mark.parametrize("name", METHODS)
def test_permuting_the_classes_permutes_the_outputs(name):
    num_classes = 4
    order = [2, 0, 3, 1]  # new class k is old class order[k]
    x, y, _ = blobs(60, num_classes)
    probe = torch.randn(7, FEATURES, dtype=torch.float64)

    def outputs(permuted):
        def model():
            net = TinyNet(num_classes, dtype=torch.float64)
            if permuted:
                head = net.layers[-1]
                head.weight.data, head.bias.data = head.weight.data[order], head.bias.data[order]
            return net

        labels = np.argsort(order)[y] if permuted else y
        examples = Examples(TensorInputs(torch.from_numpy(x)), labels, np.arange(60))
        data = Data("blobs", examples, None, None, tuple("abcd"), lambda raw, ids, key, strong=False: raw.double())
        method = METHODS[name]()
        train(tiny_job(method, data=data, make_model=model, epochs=3))
        return method.eval().predict(probe)

    torch.testing.assert_close(outputs(True), outputs(False)[:, order], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("averaging", ["none", "ramp"])
@pytest.mark.parametrize("teacher_bn", ["batch", "running"])
def test_idle_network_is_untouched_while_the_other_trains(averaging, teacher_bn):
    """Weights and batch-norm statistics; the second network teaches the first all the while."""
    run = watch(ELRPlus(averaging=averaging, teacher_bn=teacher_bn), step="step_of", n=24, batch=9, epochs=3)
    half = len(run.trajectory.weights[0]) // 2
    buffers = len(list(run.start[0].buffers()))
    steps = [k for k, batches in enumerate(run.passes) for _ in batches]  # number of the pass of each step
    for k in range(1, len(steps)):
        if steps[k] != steps[k - 1]:
            continue
        idle, active = (slice(half, None), slice(0, half)) if steps[k] % 2 == 0 else (slice(0, half), slice(half, None))
        before, after = run.trajectory.weights[k - 1], run.trajectory.weights[k]
        assert all(torch.equal(a, b) for a, b in zip(before[idle], after[idle], strict=True))
        assert not any(torch.equal(a, b) for a, b in zip(before[active], after[active], strict=True))
        mine = slice(buffers, 2 * buffers) if steps[k] % 2 == 0 else slice(0, buffers)
        before, after = run.trajectory.statistics[k - 1][mine], run.trajectory.statistics[k][mine]
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_weight_decay_and_momentum_leave_the_idle_network_alone():
    """The first step of the second network is that of a network whose optimizer has done nothing yet."""
    run = watch(ELRPlus(averaging="none"), step="step_of", n=24, batch=9, epochs=2)
    first_of_second = len(run.passes[0])
    half = len(run.trajectory.weights[0]) // 2
    idle = run.trajectory.weights[first_of_second - 1][half:]
    start = list(run.start[1].parameters())
    assert all(torch.equal(a, b) for a, b in zip(idle, start, strict=True))


@pytest.mark.parametrize("name", METHODS)
def test_true_labels_and_test_labels_do_not_leak(tmp_path, name):
    """Shuffle them, or leave them out: not a bit of weights, evidence or choice of the epoch may change."""
    rng = np.random.default_rng(3)
    data = tiny_data(90)
    shuffled = dataclasses.replace(
        data,
        train=dataclasses.replace(data.train, y_true=rng.permutation(data.train.y_true)),
        val=dataclasses.replace(data.val, y_true=rng.permutation(data.val.y_true)),
        test=dataclasses.replace(data.test, y=rng.permutation(data.test.y)),
    )
    without = dataclasses.replace(
        data,
        train=dataclasses.replace(data.train, y_true=None),
        val=dataclasses.replace(data.val, y_true=None),
        test=None,
    )
    files, chosen, validation = [], [], []
    for k, version in enumerate((data, shuffled, without)):
        out = tmp_path / str(k)
        out.mkdir()
        outcome = train(tiny_job(METHODS[name](), data=version, epochs=4, out=out))
        files.append([path.read_bytes() for path in sorted(out.rglob("*.safetensors"))])
        chosen.append(outcome.selected_epoch)
        validation.append([record["val_smoothed"] for record in outcome.records])
    assert len(files[0]) == 3
    assert files[0] == files[1] == files[2]
    assert chosen[0] == chosen[1] == chosen[2]
    assert validation[0] == validation[1] == validation[2]
    changed = train(tiny_job(METHODS[name](), data=data, epochs=1)).records[0]["test_accuracy"]
    assert changed != train(tiny_job(METHODS[name](), data=shuffled, epochs=1)).records[0]["test_accuracy"]


def test_rows_in_another_order_with_their_ids_get_the_same_augmentation():
    """Augmentation follows the id, not the row or the batch."""
    x = np.random.default_rng(0).integers(0, 256, size=(12, 8, 8), dtype=np.uint8)
    y = np.arange(12) % 2
    order = np.random.default_rng(1).permutation(12)
    config = DataConfig(val_fraction=0.0, standardize=False)
    a = from_arrays(x, y, ids=np.arange(12), config=config)
    b = from_arrays(x[order], y[order], ids=order, config=config)
    raw_a, raw_b = (d.train.inputs.fetch(torch.arange(12)) for d in (a, b))
    seen_a, seen_b = a.transform(raw_a, a.train.keys, 77), b.transform(raw_b, b.train.keys, 77)
    assert torch.equal(seen_a[order], seen_b)
    assert not torch.equal(seen_a, a.transform(raw_a, a.train.keys, None))
    one_by_one = torch.cat([a.transform(raw_a[i : i + 1], a.train.keys[i : i + 1], 77) for i in range(12)])
    assert torch.equal(seen_a, one_by_one)


def test_linear_network_on_more_examples_of_a_batch_takes_the_mean(g):
    """Every row twice in a batch gives the same step as every row once: losses are means, duplicates are averaged."""
    x, y = torch.randn(6, FEATURES, generator=g), torch.tensor([0, 1, 2, 0, 1, 2])

    def step(rows):
        torch.manual_seed(0)
        net, criterion = nn.Linear(FEATURES, 3), ELRLoss(6, 3)
        criterion(net(x[rows]), y[rows], torch.tensor(rows)).backward()
        return net.weight.grad, criterion.targets.values

    once, twice = step([0, 1, 2, 3, 4, 5]), step([0, 1, 2, 3, 4, 5] * 2)
    torch.testing.assert_close(once, twice)
