"""Decoupling, MentorNet, co-teaching, co-teaching+ and SELFIE against their oracles, by hand, and on digits."""

import math

import numpy as np
import pytest
import torch
from on_digits import digits, teach
from reference import co_teaching, co_teaching_plus, decoupling, mentornet, selfie
from reference.tiny import FEATURES, tiny_data, tiny_job
from reference.watch import OPTIM, assert_same, watch
from torch import nn

from elr.data.stream import Batch
from elr.engine.train import train
from elr.losses import cross_entropy
from elr.methods.base import sweep
from elr.methods.co_teaching import CoTeaching
from elr.methods.co_teaching_plus import CoTeachingPlus
from elr.methods.decoupling import Decoupling
from elr.methods.mentornet import MentorNet
from elr.methods.selfie import NONE, SELFIE, opinion
from elr.parts.clock import Clock
from elr.parts.mixture import estimate_noise_rate
from elr.parts.select import (
    USUAL_RATE,
    disagreement,
    forget_rate,
    kept_count,
    log_mean_p,
    logits_of,
    look,
    mean_over,
    smallest,
)

RTOL = 1e-10  # networks and losses are float64; the moving threshold of MentorNet is not
PARTS = ("weights", "statistics")


def by_epoch(run):
    """Rows of every batch, a list an epoch."""
    return [[rows.tolist() for rows, _ in batches] for batches in run.passes]


# Parts


@pytest.mark.parametrize(("rate", "ramp", "exponent"), [(0.4, 10, 1.0), (0.4, 5, 2.0), (0.2, 2, 0.5), (0.3, 1, 1.0)])
def test_dropped_fraction_is_that_of_the_paper(rate, ramp, exponent):
    ours = [forget_rate(epoch, ramp, rate, exponent) for epoch in range(15)]
    np.testing.assert_allclose(ours, co_teaching.dropped_fractions(15, rate, ramp, exponent), atol=1e-12)


def test_the_first_epoch_drops_a_step_of_the_ramp_and_a_ramp_of_one_epoch_drops_all_at_once():
    assert [forget_rate(epoch, 4.0, 0.4) for epoch in range(6)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
    assert [forget_rate(epoch, 2.5, 0.4) for epoch in range(4)] == pytest.approx([0.16, 0.32, 0.4, 0.4])
    for ramp in (0.0, 0.1, 1.0):
        assert [forget_rate(epoch, ramp, 0.4) for epoch in range(3)] == [0.4, 0.4, 0.4]


def test_a_ramp_in_epochs_costs_as_much_as_the_same_part_of_the_authors_run():
    for method in (CoTeaching, CoTeachingPlus):
        assert method(ramp=10.0).cost == pytest.approx(method(ramp=10 / 200).cost)
        assert method().cost == pytest.approx(2.0 + 2.0 / 3.0 * 0.05)


def test_kept_examples_are_counted_at_the_usual_rate_if_none_is_given():
    unknown, usual = (CoTeaching(rate=rate, forward_kept_only=True) for rate in (None, USUAL_RATE))
    assert unknown.backwards == usual.backwards == pytest.approx(2 * 0.6)
    assert unknown.cost == pytest.approx(usual.cost + 2.0 / 3.0 * 0.05)  # the estimate
    assert CoTeaching(rate=0.0, forward_kept_only=True).backwards == 2.0


def test_one_example_at_least_is_kept_and_rounding_loses_none():
    assert kept_count(10, 1.0 - 0.9) == 1
    assert kept_count(128, 0.6) == 76
    assert kept_count(10, float(torch.tensor(0.6))) == 6
    assert kept_count(3, 0.0) == 1
    assert kept_count(0, 0.5) == 0


def test_smallest_losses_come_in_order_and_a_nan_comes_last():
    values = torch.tensor([3.0, math.nan, 1.0, 1.0, 2.0])
    assert smallest(values, 3).tolist() == [2, 3, 4]
    assert smallest(values, 5).tolist() == [2, 3, 4, 0, 1]
    assert smallest(values[:0], 0).tolist() == []


def test_networks_disagree_where_their_classes_differ_or_are_no_numbers():
    a = torch.tensor([[1.0, 0.0], [1.0, 0.0], [math.nan, 0.0]])
    b = torch.tensor([[2.0, 1.0], [0.0, 1.0], [math.nan, 0.0]])
    assert disagreement([a, b]).tolist() == [1, 2]


def test_mean_of_nothing_is_zero_and_has_a_gradient():
    z = torch.randn(4, requires_grad=True)
    loss = mean_over(z[:0])
    loss.backward()
    assert loss == 0.0
    assert torch.equal(z.grad, torch.zeros(4))


def test_mean_prediction_of_two_networks():
    z = [torch.randn(5, 3), torch.randn(5, 3)]
    torch.testing.assert_close(log_mean_p(z).softmax(dim=1), (z[0].softmax(dim=1) + z[1].softmax(dim=1)) / 2)


def test_looking_leaves_no_trace_and_kept_rows_are_normalised_among_themselves():
    net = nn.Sequential(nn.Linear(FEATURES, 4), nn.BatchNorm1d(4)).train()
    x = torch.randn(10, FEATURES)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    (seen,) = look([net], x, learn=False)
    assert not seen.requires_grad
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    rows = torch.tensor([1, 4, 7])
    torch.testing.assert_close(
        logits_of(net, x, rows), nn.functional.batch_norm(net[0](x[rows]), None, None, training=True)
    )
    for few in (rows[:1], rows[:0]):
        assert logits_of(net, x, few).shape == (len(few), 4)  # one row alone has no variance


# Oracles


@pytest.mark.parametrize("exponent", [1.0, 2.0])
def test_co_teaching_follows_algorithm_1(exponent):
    run = watch(CoTeaching(rate=0.3, ramp=5.0, exponent=exponent))
    oracle = co_teaching.train(run.start, run.x, run.y, by_epoch(run), 3, rate=0.3, ramp=5, exponent=exponent, **OPTIM)
    assert_same(run.trajectory, oracle, rtol=RTOL, names=PARTS)


def test_co_teaching_plus_follows_algorithm_1():
    run = watch(CoTeachingPlus(rate=0.3, ramp=3.0, warmup=4.0))
    oracle = co_teaching_plus.train(run.start, run.x, run.y, by_epoch(run), 3, rate=0.3, ramp=3, warmup=4, **OPTIM)
    assert_same(run.trajectory, oracle, rtol=RTOL, names=PARTS)
    assert min(run.trajectory.loss) == 0.0  # a batch without disagreement was among them
    assert co_teaching.train(run.start, run.x, run.y, by_epoch(run), 3, rate=0.3, ramp=3, **OPTIM).loss != oracle.loss


@pytest.mark.parametrize("warmup", [0, 3])
def test_decoupling_follows_algorithm_1(warmup):
    run = watch(Decoupling(warmup=float(warmup) if warmup else 0.0))
    oracle = decoupling.train(run.start, run.x, run.y, by_epoch(run), 3, warmup=warmup, **OPTIM)
    assert_same(run.trajectory, oracle, rtol=RTOL, names=PARTS)


@pytest.mark.parametrize(("curriculum", "p"), [("predefined", 0.75), ("self_paced", 0.7), ("self_paced", 0.4)])
def test_mentornet_follows_its_curricula(curriculum, p):
    method = MentorNet(curriculum=curriculum, percentile=p, gamma=0.5)
    run = watch(method)
    orders = [
        clock.rng("example dropout").permutation(len(rows)).tolist()
        for batches in run.passes
        for rows, clock in batches
    ]
    oracle, thresholds = mentornet.train(
        run.start[0], run.x, run.y, run.batches, orders, 3, curriculum=curriculum, p=p, memory=0.5, gamma=0.5, **OPTIM
    )
    assert_same(run.trajectory, oracle, rtol=1e-5, names=PARTS)
    assert method.threshold.item() == pytest.approx(thresholds[-1], rel=1e-5)


@pytest.mark.parametrize(("reuse", "kept_only"), [(False, True), (True, True), (False, False)])
def test_selfie_follows_algorithm_1_through_its_restarts(reuse, kept_only):
    method = SELFIE(rate=0.35, history=2, warmup=3.0, reuse=reuse, forward_kept_only=kept_only, uncertainty=0.6)
    stages = method.plan(19)
    run = watch(method, epochs=19)
    epochs = iter(by_epoch(run))
    runs = [[next(epochs) for _ in range(stage.epochs)] for stage in stages]
    oracle, tables, rates = selfie.train(
        run.start,
        run.x,
        run.y,
        runs,
        3,
        rate=0.35,
        eps=0.6,
        history=2,
        warmup=[3, 3, 3],
        reuse=reuse,
        second_pass=kept_only,
        **OPTIM,
    )
    assert_same(run.trajectory, oracle, rtol=RTOL, names=PARTS)
    for (_, refurbished, _), theirs in zip(run.trajectory.targets, tables, strict=True):
        assert {i: c for i, (c,) in enumerate(refurbished.tolist()) if c != NONE} == theirs
    assert method.tau == pytest.approx(rates[-1])


def test_selfie_with_a_longer_history_follows_algorithm_1():
    settings = {"rate": 0.2, "history": 4, "warmup": 5.0, "uncertainty": 0.05, "restarts": 0}
    run = watch(SELFIE(**settings))
    oracle, tables, _ = selfie.train(
        run.start, run.x, run.y, [by_epoch(run)], 3, rate=0.2, eps=0.05, history=3, warmup=[5], **OPTIM
    )
    assert_same(run.trajectory, oracle, rtol=RTOL, names=PARTS)
    assert 0 < len(tables[23]) < 40  # after the first epoch of it some opinions are steady and some are not


def test_selfie_replaces_no_label_before_three_predictions_can_agree():
    run = watch(SELFIE(rate=0.2, warmup=0.05, restarts=0))  # one epoch of 13
    refurbished = [tables[1] for tables in run.trajectory.targets]
    an_epoch = len(run.passes[0])
    assert (refurbished[3 * an_epoch - 1] == NONE).all()
    assert (refurbished[4 * an_epoch - 1] != NONE).any()


# By hand


def test_each_network_learns_what_the_other_finds_easy_and_no_gradient_crosses():
    method = CoTeaching(rate=0.5, ramp=0.0)
    method.build(lambda k=0: nn.Linear(1, 2, bias=False).requires_grad_(), 4, 2)
    x, y = torch.tensor([[1.0], [1.0], [-1.0], [2.0]]), torch.tensor([0, 1, 0, 1])
    with torch.no_grad():
        method.nets[0].weight.copy_(torch.tensor([[2.0], [0.0]]))  # sure of class 0 for x > 0: rows 0, then 1, 2, 3
        method.nets[1].weight.copy_(torch.tensor([[0.0], [1.0]]))  # of class 1: rows 3, then 1, 2, 0
    step = method.step(Batch(torch.arange(4), x, y), Clock(0, epoch=1, epochs=2))
    first = cross_entropy(method.nets[0](x), y)
    second = cross_entropy(method.nets[1](x), y)
    picks = first.argsort(stable=True)[:2], second.argsort(stable=True)[:2]
    assert picks[0].tolist() != picks[1].tolist()
    torch.testing.assert_close(step.loss, first[picks[1]].mean() + second[picks[0]].mean())
    (alone,) = torch.autograd.grad(first[picks[1]].mean(), [method.nets[0].weight])
    step.loss.backward()
    torch.testing.assert_close(method.nets[0].weight.grad, alone)


def test_opinions_of_fifteen_predictions_as_in_the_fact_sheet():
    """One dissenting vote of 15 is already too much for 100 classes, and not for 200."""
    for classes, expected in [(10, 0.1064), (100, 0.0532), (200, 0.0462)]:
        predicted = torch.full((2, 15), 7)
        predicted[1, 4] = 2
        uncertain, mode = opinion(predicted, classes)
        assert uncertain.tolist() == pytest.approx([0.0, expected], abs=5e-5)
        assert mode.tolist() == [7, 7]
        assert (expected <= SELFIE().uncertainty) == (classes == 200)


def test_selfie_takes_77_of_128_as_clean_at_40_percent():
    method = SELFIE(rate=0.4)
    method.build(lambda k=0: nn.Linear(2, 3), 128, 3)
    rows, targets = method.select(torch.arange(128), torch.zeros(128).long(), torch.rand(128), Clock(0, epochs=100))
    assert len(rows) == len(targets) == 77  # nobody has an opinion yet


def test_refurbished_labels_win_and_persist_through_a_restart():
    method = SELFIE(rate=0.9, history=2, warmup=4.0, restarts=1)
    method.build(lambda k=0: nn.Linear(2, 3), 4, 3)
    method.predicted.values.copy_(torch.tensor([[2, 2], [1, 2], [0, 0], [NONE, NONE]]))
    clock = Clock(0, epoch=4, epochs=10)
    rows, targets = method.select(
        torch.arange(4), torch.tensor([1, 1, 0, 0]), torch.tensor([1.0, 0.5, 2.0, 3.0]), clock
    )
    assert dict(zip(rows.tolist(), targets.tolist(), strict=True)) == {0: 2, 1: 1, 2: 0}  # 1 is clean, 3 is dropped
    method.finish(0, None)
    assert method.labels.values[:, 0].tolist() == [2, NONE, 0, NONE]
    assert method.tau == pytest.approx(0.5)
    assert (method.predicted.values == NONE).all()


def test_small_losses_are_those_of_the_given_labels_in_every_run():
    method = SELFIE(rate=0.5, warmup=4.0, forward_kept_only=False)
    method.build(lambda k=0: nn.Identity(), 2, 2)
    method.labels.values.copy_(torch.tensor([[1], [NONE]]))  # of the run before
    logits = torch.tensor([[4.0, 0.0], [1.0, 0.0]])
    step = method.step(Batch(torch.arange(2), logits, torch.zeros(2).long()), Clock(0, stage=1, epoch=4, epochs=10))
    assert step.loss.item() == pytest.approx(math.log1p(math.exp(4.0)))  # the first row, learned as refurbished


def test_a_dissent_from_a_refurbished_label_is_learned_as_given_unless_reused():
    for reuse, expected in [(False, {0: 1}), (True, {0: 2})]:
        method = SELFIE(rate=0.0, history=2, warmup=4.0, reuse=reuse)
        method.build(lambda k=0: nn.Linear(2, 3), 1, 3)
        clock = Clock(0, epoch=4, epochs=10)
        for predicted, result in [([2, 2], {0: 2}), ([0, 2], expected)]:
            method.predicted.values.copy_(torch.tensor([predicted]))
            rows, targets = method.select(torch.arange(1), torch.tensor([1]), torch.tensor([1.0]), clock)
            assert dict(zip(rows.tolist(), targets.tolist(), strict=True)) == result


def test_predefined_curriculum_at_the_authors_percents():
    method = MentorNet()
    losses, q = torch.tensor([0.5, 1.0, 1.25, 3.0]), torch.tensor(1.0)
    at = {percent: method.weights(losses, q, Clock(0, epoch=percent, epochs=100)).tolist() for percent in range(100)}
    assert all(at[percent] == [1.0, 1.0, 1.0, 1.0] for percent in range(19))
    assert all(at[percent] == [1.0, 1.0, 0.0, 0.0] for percent in range(19, 90))
    assert all(at[percent] == [1.0, 1.0, 0.75, 0.0] for percent in range(90, 100))
    drawn = [int(method._lottery(100, Clock(0, epoch=percent, epochs=100)).sum()) for percent in (0, 16, 17, 99)]
    assert drawn == [50, 50, 95, 95]


def test_a_kept_only_pass_changes_nothing_for_a_network_without_batch_norm():
    def model():
        return nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh(), nn.Linear(5, 3))

    for method, settings in [
        (CoTeaching, {"rate": 0.4}),
        (CoTeachingPlus, {"rate": 0.4}),
        (Decoupling, {}),
        (SELFIE, {"rate": 0.4}),
    ]:
        losses = []
        for kept_only in (False, True):
            job = tiny_job(method(forward_kept_only=kept_only, **settings), make_model=model, epochs=6)
            losses.append([record["loss"] for record in train(job).records])
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(("method", "settings"), [(CoTeaching, {}), (CoTeachingPlus, {}), (SELFIE, {"restarts": 0})])
def test_rate_that_is_not_given_is_estimated_recorded_and_kept(method, settings):
    job = tiny_job(method(**settings), data=tiny_data(150), epochs=8)
    rates = [record["noise_rate"] for record in train(job).records]
    assert rates[0] == 0.0  # nothing is known before the first epoch
    assert len(set(rates[2:])) == 1
    assert 0.0 < rates[-1] < 1.0
    assert rates[-1] == pytest.approx(float(job.method.noise_rate), rel=1e-6)
    given = train(tiny_job(method(rate=0.25, **settings), epochs=3)).records
    assert [record["noise_rate"] for record in given] == pytest.approx([0.25] * 3)


def test_estimate_is_the_mixture_of_both_networks_mean_losses():
    job = tiny_job(CoTeaching(), data=tiny_data(150), epochs=3)
    seen, own = [], job.method.epoch

    def epoch(data, clock):
        losses = [cross_entropy(sweep(net, data), data.y) for net in job.method.nets]
        seen.append(estimate_noise_rate((losses[0] + losses[1]) / 2))
        return own(data, clock)

    job.method.epoch = epoch
    records = train(job).records
    assert [records[1]["noise_rate"], records[2]["noise_rate"]] == pytest.approx([seen[1]] * 2, rel=1e-5)


def test_agreement_on_everything_is_a_step_of_length_zero():
    """Two networks that are one: nothing to learn from, with and without batch norm of the kept."""
    for method in (Decoupling(), CoTeachingPlus(warmup=0.0), Decoupling(forward_kept_only=True)):
        method.build(lambda k=0: nn.Sequential(nn.Linear(FEATURES, 3), nn.BatchNorm1d(3)), 8, 3)
        method.nets[1].load_state_dict(method.nets[0].state_dict())
        batch = Batch(torch.arange(8), torch.randn(8, FEATURES), torch.zeros(8, dtype=torch.int64))
        step = method.step(batch, Clock(0, epoch=3, epochs=9))
        step.loss.backward()
        assert step.loss == 0.0
        assert step.log["kept"] == 0.0
        assert all((p.grad == 0).all() for p in method.parameters())


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        (CoTeaching, {"rate": 1.0}, "rate must lie in"),
        (CoTeaching, {"ramp": -1.0}, "ramp must lie in"),
        (CoTeachingPlus, {"warmup": float("nan")}, "warmup must lie in"),
        (Decoupling, {"least": 2.0}, "least must lie in"),
        (MentorNet, {"curriculum": "data_driven"}, "curriculum must be one of predefined, self_paced"),
        (MentorNet, {"percentile": 75}, "percentile must lie in"),
        (MentorNet, {"memory": 1.0}, "memory must lie in"),
        (SELFIE, {"history": 0}, "history must lie in"),
        (SELFIE, {"restarts": -1}, "restarts must lie in"),
        (SELFIE, {"uncertainty": 1.5}, "uncertainty must lie in"),
    ],
)
def test_hyperparameters_out_of_range_are_refused(method, settings, message):
    with pytest.raises(ValueError, match=message):
        method(**settings)


# On digits, 40 % of the labels wrong. True labels are looked at here and nowhere else.


def run_on_digits(method, epochs):
    """Train and return (true labels, given labels, record of the last epoch)."""
    record = teach(method, epochs)[-1]
    labels = digits().train
    return torch.from_numpy(labels.y_true), torch.from_numpy(labels.y), record


def watch_choice(method, name):
    """Wrap a method's choice so that (rows of the training set, what it returned, clock) are kept for every batch."""
    seen, step, choose = [], method.step, getattr(method, name)
    rows = []

    def watched_step(batch, clock):
        rows[:] = [batch.index]
        return step(batch, clock)

    def watched_choice(*args):
        result = choose(*args)
        seen.append((rows[0], result, args[-1]))
        return result

    method.step = watched_step
    setattr(method, name, watched_choice)
    return seen


@pytest.mark.parametrize("method", [CoTeaching(), CoTeachingPlus()], ids=["co_teaching", "co_teaching_plus"])
def test_co_teaching_keeps_a_set_cleaner_than_the_data(method):
    seen = watch_choice(method, "select")
    y_true, y, record = run_on_digits(method, 8)
    late = torch.cat([rows[pick] for rows, picks, clock in seen if clock.epoch >= 3 for pick in picks])
    share = (y_true == y).float().mean()
    assert (y_true[late] == y[late]).float().mean() > share + (0.25 if type(method) is CoTeaching else 0.02)
    assert record["noise_rate"] == pytest.approx(1.0 - share.item(), abs=0.1)


@pytest.mark.parametrize("curriculum", ["predefined", "self_paced"])
def test_mentornet_keeps_a_set_cleaner_than_the_data(curriculum):
    method = MentorNet(curriculum=curriculum)
    seen = watch_choice(method, "weights")
    y_true, y, _ = run_on_digits(method, 10)
    late = [(rows, v) for rows, v, clock in seen if clock.epoch >= 4]
    rows, v = torch.cat([r for r, _ in late]), torch.cat([w for _, w in late])
    right = (y_true[rows] == y[rows]).float()
    assert (v * right).sum() / v.sum() > (y_true == y).float().mean() + 0.1
    assert v[right == 1].mean() > v[right == 0].mean() + 0.3


def test_selfie_learns_labels_more_accurate_than_those_given():
    method = SELFIE(restarts=1, warmup=0.4)
    seen = watch_choice(method, "select")
    y_true, y, _ = run_on_digits(method, 14)
    share = (y_true == y).float().mean()
    late = [(rows[kept], targets) for rows, (kept, targets), clock in seen if clock.stage == method.restarts]
    rows, targets = torch.cat([r for r, _ in late]), torch.cat([t for _, t in late])
    assert (targets == y_true[rows]).float().mean() > share + 0.2
    refurbished = method.refurbished.values[:, 0]
    touched = refurbished != NONE
    assert touched.float().mean() > 0.5
    assert (refurbished == y_true)[touched].float().mean() > (y == y_true)[touched].float().mean() + 0.1
