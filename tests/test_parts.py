"""The parts that methods are made of: ramp, counted draws, tables, averaged networks, mixup, the clock."""

import copy

import numpy as np
import pytest
import torch
from reference.tiny import FEATURES, TinyNet
from torch import nn

from elr.parts.average import AveragedNet, still_statistics
from elr.parts.clock import Clock
from elr.parts.draw import _mix, _mix_int, _signed, fold, generator, uniforms
from elr.parts.mixup import Mix, draw_mix
from elr.parts.ramp import ramp
from elr.parts.table import ExampleTable

# ramp


@pytest.mark.parametrize(("done", "value"), [(0.0, 0.0067379), (0.25, 0.0600547), (0.5, 0.2865048), (1.0, 1.0)])
def test_ramp_at_the_quarters(done, value):
    assert ramp(40_000 * done, 40_000) == pytest.approx(value, abs=5e-8)


def test_ramp_stays_at_one_and_is_one_without_a_length():
    assert ramp(1e9, 40_000) == 1.0
    assert ramp(0, 0) == 1.0
    assert ramp(-5, 100) == ramp(0, 100)


# draws


def test_integers_and_tensors_are_mixed_alike():
    numbers = [0, 1, 2, 3, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 0x9E3779B97F4A7C15]
    mixed = _mix(torch.tensor([_signed(value) for value in numbers], dtype=torch.int64))
    assert mixed.tolist() == [_signed(_mix_int(value)) for value in numbers]


def test_splitmix_finaliser_is_the_published_one():
    """First outputs of SplitMix64 from seed 0, as printed by its reference implementation."""
    golden, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1
    outputs = [_mix_int(golden * k & mask) for k in (1, 2, 3)]
    assert outputs == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_keys_differ_by_seed_purpose_and_place_and_order_of_places():
    keys = {
        fold(0, "a"),
        fold(1, "a"),
        fold(0, "b"),
        fold(0, "a", 0),
        fold(0, "a", 1),
        fold(0, "a", 0, 0),
        fold(0, "a", 0, 1),
        fold(0, "a", 1, 0),
    }
    assert len(keys) == 8
    assert fold(3, "shuffle", 1, 2) == fold(3, "shuffle", 1, 2)
    many = {fold(seed, purpose, e, b) for seed in range(5) for purpose in "xyz" for e in range(20) for b in range(20)}
    assert len(many) == 5 * 3 * 20 * 20


def test_uniforms_are_uniform_and_uncorrelated():
    u = uniforms(fold(0, "augment", 3), torch.arange(100_000), 4)
    assert u.dtype == torch.float32
    assert u.min() >= 0.0
    assert u.max() < 1.0
    n = u.numel()
    assert abs(u.mean().item() - 0.5) < 5 * (1 / 12 / n) ** 0.5
    assert abs(u.var().item() - 1 / 12) < 5 * (1 / 180 / n) ** 0.5
    counts = torch.histc(u, 64, 0, 1)
    chi_squared = ((counts - n / 64) ** 2 / (n / 64)).sum().item()
    assert chi_squared < 63 + 5 * (2 * 63) ** 0.5
    table = u.double().numpy()
    pairs = {
        "neighbouring ids": (table[:-1, 0], table[1:, 0]),
        "numbers of one id": (table[:, 0], table[:, 1]),
        "across": (table[:-1, 1], table[1:, 0]),
        "neighbouring epochs": (table[:, 0], uniforms(fold(0, "augment", 4), torch.arange(100_000), 1)[:, 0].numpy()),
        "neighbouring seeds": (table[:, 0], uniforms(fold(1, "augment", 3), torch.arange(100_000), 1)[:, 0].numpy()),
    }
    for name, (a, b) in pairs.items():
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / len(a) ** 0.5, name


def test_uniforms_depend_on_key_and_id_only():
    ids = torch.tensor([5, 900, 3, -7, 1 << 50])
    together = uniforms(77, ids, 3)
    assert torch.equal(together, torch.cat([uniforms(77, ids[k : k + 1], 3) for k in range(5)]))
    assert torch.equal(together[:, :2], uniforms(77, ids, 2))
    assert not torch.equal(together, uniforms(78, ids, 3))


def test_generators_of_one_key_agree():
    assert generator(9).permutation(50).tolist() == generator(9).permutation(50).tolist()
    assert generator(9).permutation(50).tolist() != generator(10).permutation(50).tolist()


# clock


def test_clock_counts_steps_within_a_pass():
    clock = Clock(seed=0, epoch=2, epochs=5, batch=3, batches=10)
    assert (clock.step, clock.steps, clock.progress) == (23, 50, 0.46)
    assert clock._replace(turn=1).step == 23


def test_every_batch_has_draws_of_its_own():
    start = Clock(seed=0, epochs=3, batches=4)
    places = [
        start._replace(stage=s, epoch=e, turn=k, batch=b)
        for s in range(2)
        for e in range(3)
        for k in range(2)
        for b in range(4)
    ]
    assert len({place.key("mixup") for place in places}) == len(places)
    assert start.key("mixup") != start.key("network") != start._replace(seed=1).key("network")
    assert start.rng("mixup").random() == start.rng("mixup").random()


# table


def test_table_moves_only_the_rows_it_is_told_to(g):
    table = ExampleTable(6, 3)
    p = torch.rand(2, 3, generator=g)
    new = table.average_in(torch.tensor([4, 1]), p, 0.9)
    torch.testing.assert_close(new, 0.1 * p)
    assert torch.equal(table.values[[4, 1]], new)
    assert torch.equal(table.rows(torch.tensor([4, 1])), new)
    assert torch.equal(table.values[[0, 2, 3, 5]], torch.zeros(4, 3))


def test_table_with_beta_0_holds_the_last_prediction(g):
    table = ExampleTable(3, 4)
    for _ in range(3):
        p = torch.rand(3, 4, generator=g)
        table.average_in(torch.arange(3), p, 0.0)
    assert torch.equal(table.values, p)


def test_rows_a_table_gave_do_not_change_later(g):
    table = ExampleTable(3, 4)
    first = table.average_in(torch.arange(3), torch.rand(3, 4, generator=g), 0.7)
    kept = first.clone()
    table.average_in(torch.arange(3), torch.rand(3, 4, generator=g), 0.7)
    assert torch.equal(first, kept)


def test_duplicates_and_nan_rows_do_not_disturb_their_neighbours(g):
    start, p = torch.rand(8, 3, generator=g), torch.rand(6, 3, generator=g)
    index = torch.tensor([0, 5, 5, 2, 7, 3])
    p[3] = float("nan")
    table = ExampleTable(8, 3)
    table.values.copy_(start)
    table.average_in(index, p, 0.7)
    expected = start.clone()
    expected[0] = 0.7 * start[0] + 0.3 * p[0]
    expected[5] = 0.7 * start[5] + 0.3 * (p[1] + p[2]) / 2
    expected[7] = 0.7 * start[7] + 0.3 * p[4]
    expected[3] = 0.7 * start[3] + 0.3 * p[5]
    torch.testing.assert_close(table.values, expected)
    clean = ExampleTable(8, 3)  # nothing is left over for the next batch
    clean.values.copy_(table.values)
    again, index = torch.rand(4, 3, generator=g), torch.tensor([5, 2, 0, 1])
    assert torch.equal(table.average_in(index, again, 0.7), clean.average_in(index, again, 0.7))


def test_a_batch_longer_than_any_before_is_updated_right(g):
    table = ExampleTable(1000, 2)
    for size in (3, 700, 1000, 5):
        before = table.values.clone()
        index, p = torch.randperm(1000, generator=g)[:size], torch.rand(size, 2, generator=g)
        table.average_in(index, p, 0.7)
        before[index] = 0.7 * before[index] + 0.3 * p
        torch.testing.assert_close(table.values, before)


def test_a_row_many_times_in_a_batch_moves_once():
    table = ExampleTable(2, 2)
    table.average_in(torch.zeros(1000, dtype=torch.int64), torch.tensor([[0.25, 0.75]]).expand(1000, 2), 0.7)
    torch.testing.assert_close(table.values, torch.tensor([[0.075, 0.225], [0.0, 0.0]]))


def test_table_is_saved_as_a_tensor_but_is_no_buffer():
    table = ExampleTable(3, 2)
    assert list(table.buffers()) == []
    (state,) = table.state_dict().values()
    assert isinstance(state, torch.Tensor)
    table.values += 1
    other = ExampleTable(3, 2)
    other.load_state_dict(table.state_dict())
    assert torch.equal(other.values, table.values)
    assert other.values.data_ptr() != table.values.data_ptr()


def test_table_moves_with_the_module_it_is_in():
    holder = nn.ModuleDict({"table": ExampleTable(3, 2)})
    assert holder.double()["table"].values.dtype == torch.float32
    assert holder.to("meta")["table"].values.device.type == "meta"


# averaged networks


def nets():
    torch.manual_seed(0)
    net = TinyNet(3)
    return net, AveragedNet(net)


def test_average_starts_as_a_copy_and_never_gets_a_gradient():
    net, average = nets()
    for a, b in zip(net.state_dict().values(), average.net.state_dict().values(), strict=True):
        assert torch.equal(a, b)
        assert a.data_ptr() != b.data_ptr()
    assert not any(p.requires_grad for p in average.parameters())
    assert not average(torch.randn(5, FEATURES)).requires_grad


def test_average_follows_parameters_and_not_statistics():
    net, average = nets()
    start = copy.deepcopy(average.net)
    net.train()(torch.randn(20, FEATURES) + 3)  # moves the student's statistics
    with torch.no_grad():
        for p in net.parameters():
            p += torch.randn_like(p)
    average.update(net, 0.9)
    for mean, old, new in zip(average.net.parameters(), start.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(mean, 0.9 * old + 0.1 * new)
    for mean, old in zip(average.net.buffers(), start.buffers(), strict=True):
        assert torch.equal(mean, old)


def test_average_with_gamma_0_equals_the_network_exactly():
    net, average = nets()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn_like(p) * 1e3)
    average.update(net, 0.0)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), average.net.parameters(), strict=True))


def test_teacher_normalises_by_the_batch_or_by_running_statistics(g):
    net, average = nets()
    x = 2 * torch.randn(12, FEATURES, generator=g) + 1
    by_batch = copy.deepcopy(average)(x, "batch")
    torch.testing.assert_close(by_batch, copy.deepcopy(net).train()(x).detach())
    running = copy.deepcopy(average)
    by_running = running(x, "running")
    torch.testing.assert_close(by_running, running.net.eval()(x))  # with the statistics as they are after this batch
    assert not torch.allclose(by_batch, by_running)


@pytest.mark.parametrize("bn", ["batch", "running"])
def test_both_ways_gather_the_statistics_of_what_the_teacher_sees(g, bn):
    _, average = nets()
    x = 2 * torch.randn(12, FEATURES, generator=g) + 1
    inner = average.net.layers[0](x).detach()
    average(x, bn)
    layer = average.net.layers[1]
    torch.testing.assert_close(layer.running_mean, 0.1 * inner.mean(dim=0))
    torch.testing.assert_close(layer.running_var, 0.9 + 0.1 * inner.var(dim=0))


def test_running_statistics_of_images_are_those_of_torch(g):
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))
    average, x = AveragedNet(net), torch.randn(4, 2, 6, 6, generator=g)
    average(x, "running")
    net.train()(x)
    torch.testing.assert_close(average.net[1].running_mean, net[1].running_mean)
    torch.testing.assert_close(average.net[1].running_var, net[1].running_var)


def test_still_statistics_normalise_by_the_batch_and_move_nothing(g):
    net, _ = nets()
    x = torch.randn(12, FEATURES, generator=g)
    before = [b.clone() for b in net.buffers()]
    with still_statistics(net):
        inside = net.train()(x)
    assert all(torch.equal(a, b) for a, b in zip(before, net.buffers(), strict=True))
    torch.testing.assert_close(inside, net(x))
    assert not all(torch.equal(a, b) for a, b in zip(before, net.buffers(), strict=True))  # and they move again


def test_still_statistics_are_released_after_an_error():
    net, _ = nets()
    with pytest.raises(KeyError), still_statistics(net):
        raise KeyError
    assert net.layers[1].track_running_stats


# mixup


def test_blend_is_the_convex_combination():
    a = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    partner = torch.tensor([2, 0, 1])
    torch.testing.assert_close(
        Mix(torch.tensor(0.75), partner).blend(a), torch.tensor([[1.5, 15.0], [1.75, 17.5], [2.75, 27.5]])
    )
    weight = torch.tensor([1.0, 0.5, 0.75])
    expected = torch.tensor([[1.0, 10.0], [1.5, 15.0], [2.75, 27.5]])
    torch.testing.assert_close(Mix(weight, partner).blend(a), expected)
    image = a[:, :, None, None].expand(3, 2, 4, 4)
    torch.testing.assert_close(Mix(weight, partner).blend(image), expected[:, :, None, None].expand(3, 2, 4, 4))


def test_blended_labels_and_targets_keep_their_mass(g):
    mix = draw_mix(np.random.default_rng(0), 1.0, 40, torch.device("cpu"), per_example=True)
    t = 0.51 * torch.randn(40, 5, generator=g).softmax(dim=1)
    torch.testing.assert_close(mix.blend(t).sum(dim=1), torch.full((40,), 0.51))


@pytest.mark.parametrize("per_example", [False, True])
def test_an_example_keeps_at_least_half_of_itself(per_example):
    cpu = torch.device("cpu")
    draws = [draw_mix(np.random.default_rng(k), 1.0, 16, cpu, per_example=per_example) for k in range(400)]
    weights = torch.stack([draw.weight for draw in draws])
    assert weights.shape == ((400, 16) if per_example else (400,))
    assert weights.min() >= 0.5
    assert weights.max() <= 1.0
    assert abs(weights.mean().item() - 0.75) < 0.05  # max(l, 1 - l) of a uniform l
    assert all(sorted(draw.partner.tolist()) == list(range(16)) for draw in draws)


def test_small_alpha_mixes_little_and_large_alpha_halves():
    cpu = torch.device("cpu")
    little, much = (draw_mix(np.random.default_rng(0), a, 500, cpu, per_example=True).weight for a in (0.01, 1000.0))
    assert little.mean() > 0.97
    assert much.mean() < 0.55
