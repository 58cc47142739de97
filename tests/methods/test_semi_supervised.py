"""MixMatch, DivideMix and INCV against their oracles, step by step; their parts; and what they do on digits."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from on_digits import digits, teach
from reference import dividemix as dividemix_oracle
from reference import incv as incv_oracle
from reference import mixmatch as mixmatch_oracle
from reference.tiny import FEATURES, TinyNet, tiny_data, tiny_job
from reference.watch import OPTIM, assert_same, watch
from sklearn.metrics import roc_auc_score
from torch import nn

from elr.data.stream import Batch
from elr.engine.train import train
from elr.losses.semi import balance_penalty, negative_entropy
from elr.methods.dividemix import DivideMix
from elr.methods.incv import CANDIDATE, INCV, REMOVED, SELECTED, noise_from_agreement, noise_of_selected
from elr.methods.mixmatch import MixMatch
from elr.parts.clock import Clock
from elr.parts.guess import guess_labels, published_lambda_u, refine_labels, sharpen
from elr.parts.ramp import rise

# Networks are float64, but the losses that the mixture sees, and its posterior, are float32.
RTOL = 1e-4


# Parts: worked by hand.


def test_sharpening_squares_probabilities_at_temperature_one_half():
    p = torch.tensor([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0], [1 / 3, 1 / 3, 1 / 3]], dtype=torch.float64)
    expected = [[25 / 38, 9 / 38, 4 / 38], [0.0, 1.0, 0.0], [1 / 3, 1 / 3, 1 / 3]]
    torch.testing.assert_close(sharpen(p, 0.5), torch.tensor(expected, dtype=torch.float64), rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(sharpen(p, 1.0), p, rtol=1e-14, atol=1e-15)


def test_sharpening_does_not_underflow():
    """1e-30 squared is 0 in float32; with all powers 0 the sum would divide by 0."""
    p = torch.tensor([[1e-3, 1e-3, 1e-3]]) / 3e-3
    assert sharpen(p, 0.01).isfinite().all()
    sure = sharpen(torch.tensor([[1e-30, 1.0, 0.0]]), 0.1)
    torch.testing.assert_close(sure, torch.tensor([[0.0, 1.0, 0.0]]))


def test_a_guess_is_the_sharpened_mean():
    views = [torch.tensor([[0.9, 0.1]]), torch.tensor([[0.5, 0.5]])]  # mean .7, .3
    torch.testing.assert_close(guess_labels(views, 0.5), torch.tensor([[0.49 / 0.58, 0.09 / 0.58]]))


def test_a_refined_label_lies_between_the_given_one_and_the_prediction():
    p = torch.tensor([[0.2, 0.8], [0.2, 0.8], [0.2, 0.8]])
    refined = refine_labels(torch.zeros(3, dtype=torch.int64), torch.tensor([1.0, 0.0, 0.5]), p, 0.5)
    half = 0.6**2 / (0.6**2 + 0.4**2)
    expected = [[1.0, 0.0], [0.04 / 0.68, 0.64 / 0.68], [half, 1 - half]]
    torch.testing.assert_close(refined, torch.tensor(expected))


def test_lambda_u_rises_in_a_line_and_stays():
    assert [rise(t, 4.0) for t in (-1, 0, 1, 4, 9)] == [0.0, 0.0, 0.25, 1.0, 1.0]
    assert rise(0, 0) == 1.0


@pytest.mark.parametrize(
    ("num_classes", "drawn_anew", "lambda_u"),
    [(10, 0.2, 0), (10, 0.5, 25), (10, 0.8, 25), (10, 0.9, 50), (100, 0.2, 25), (100, 0.5, 150), (100, 0.9, 150)],
)
def test_lambda_u_is_the_published_one_at_published_noise(num_classes, drawn_anew, lambda_u):
    """Symmetric noise draws the true class too, so fewer labels are wrong than are drawn."""
    wrong = drawn_anew * (num_classes - 1) / num_classes
    assert published_lambda_u(wrong, num_classes) == lambda_u


def test_lambda_u_is_0_for_asymmetric_noise_on_cifar_10():
    assert published_lambda_u(0.2, 10) == 0.0


def test_balance_penalty_is_the_divergence_of_the_mean_prediction_from_uniform():
    """Mean prediction (.75, .25): .5 log(.5/.75) + .5 log(.5/.25); its gradient goes through both rows."""
    z = torch.tensor([[math.log(9.0), 0.0], [math.log(1.5), 0.0]], dtype=torch.float64, requires_grad=True)  # .9, .6
    value = balance_penalty(z)
    assert value.item() == pytest.approx(0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25), rel=1e-12)
    (slope,) = torch.autograd.grad(value, z)
    # d/dz_i0 = -(1/2) [1/.75 - 1/.25] p_i0 p_i1 / 2
    expected = [[0.06, -0.06], [0.16, -0.16]]
    torch.testing.assert_close(slope, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_balance_penalty_is_finite_for_a_class_that_nobody_predicts():
    z = torch.tensor([[1e4, -1e4], [1e4, -1e4]], requires_grad=True)
    value = balance_penalty(z)
    assert value.item() == pytest.approx(1e4 - math.log(2), rel=1e-6)
    assert torch.autograd.grad(value, z)[0].isfinite().all()
    assert balance_penalty(torch.zeros(3, 4)).item() == pytest.approx(0.0, abs=1e-7)
    assert balance_penalty(z.bfloat16()).dtype == torch.float32


def test_negative_entropy_of_known_predictions():
    z = torch.tensor([[0.0, 0.0], [math.log(3.0), 0.0], [1e4, -1e4]], dtype=torch.float64, requires_grad=True)
    values = negative_entropy(z)
    known = [-math.log(2), 0.75 * math.log(0.75) + 0.25 * math.log(0.25), 0.0]
    torch.testing.assert_close(values, torch.tensor(known, dtype=torch.float64), rtol=1e-12, atol=1e-12)
    (slope,) = torch.autograd.grad(values.sum(), z)
    # d/dz_0 = p_0 (log p_0 - sum p log p) = p_0 p_1 log(p_0 / p_1)
    expected = [[0.0, 0.0], [0.1875 * math.log(3), -0.1875 * math.log(3)], [0.0, 0.0]]
    torch.testing.assert_close(slope, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("others", [1, 2, 9, 99])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.4, 0.49])
def test_the_noise_rate_is_found_again_from_the_agreement_it_causes(others, rate):
    agreement = (1 - rate) ** 2 + rate**2 / others
    assert noise_from_agreement(agreement, others) == pytest.approx(rate, abs=1e-9)


def test_agreement_below_chance_is_the_rate_of_labels_that_say_nothing():
    assert noise_from_agreement(0.0, 9) == pytest.approx(0.9)
    assert noise_from_agreement(1.0, 9) == 0.0
    assert noise_from_agreement(0.37, 9) == pytest.approx(0.4071, abs=1e-4)  # .5929^2 + .4071^2 / 9


def test_noise_of_selected_labels():
    assert noise_of_selected(0.5, 9) == pytest.approx(0.1)
    assert noise_of_selected(0.4, 1) == pytest.approx(0.16 / 0.52)
    assert noise_of_selected(0.0, 9) == 0.0


# DivideMix and its oracle.


def recorded(method, names):
    """Wrap the steps of a method; returns a list that fills with (name, arguments, loss) as it trains."""
    calls = []

    def wrap(name):
        own = getattr(method, name)

        def wrapped(*args):
            result = own(*args)
            calls.append((name, args, result.loss.item()))
            return result

        setattr(method, name, wrapped)

    for name in names:
        wrap(name)
    return calls


def draw(clock, alpha, size, *, per_example):
    """mixup's draw, made once more from the counted generator."""
    rng = clock.rng("mixup")
    ell = rng.beta(alpha, alpha, size=size if per_example else None)
    weight = np.maximum(ell, 1 - ell).astype(np.float32).astype(np.float64)
    return (weight.tolist() if per_example else float(weight)), rng.permutation(size).tolist()


def dividemix_visits(calls, alpha, warm):
    """epochs[t][k] = visits of network k."""
    epochs = {}
    for name, args, _ in calls:
        k, *_, batch, clock = args
        if name == "warm_up":
            visit = dividemix_oracle.Visit(batch.index.tolist(), [batch.x])
        else:
            beside = batch.beside
            views, others = [batch.x, *batch.views], ([beside.x, *beside.views] if beside is not None else [])
            rows = beside.index.tolist() if beside is not None else []
            weight, partner = draw(clock, alpha, 2 * len(batch.index) + 2 * len(rows), per_example=False)
            place = clock.epoch - warm + clock.batch / clock.batches
            visit = dividemix_oracle.Visit(batch.index.tolist(), views, rows, others, weight, partner, place)
        epochs.setdefault(clock.epoch, {}).setdefault(k, []).append(visit)
    return [[passes[0], passes[1]] for _, passes in sorted(epochs.items())]


def follow_dividemix(epochs=14, **settings):
    method = DivideMix(warmup=3, ramp_length=4, **settings)
    calls = recorded(method, ["warm_up", "semi"])
    run = watch(method, step="warm_up", n=30, batch=9, epochs=epochs)
    run.trajectory.loss = [loss for _, _, loss in calls]
    lambda_u = method.lambda_u
    if lambda_u is None:
        lambda_u = published_lambda_u(float(method.noise_rate), 3)
    rules = dividemix_oracle.Settings(
        3,
        3,
        method.threshold,
        method.temperature,
        lambda_u,
        4.0,
        method.confidence_penalty,
        method.loss_memory,
    )
    visits = dividemix_visits(calls, method.alpha, 3)
    oracle, splits = dividemix_oracle.train(run.start, run.x, run.y, visits, rules, **OPTIM)
    return method, run, oracle, splits, visits


@pytest.mark.parametrize(
    "settings",
    [
        {"lambda_u": 25.0},
        {"lambda_u": 0.0},
        {"lambda_u": 25.0, "confidence_penalty": True, "temperature": 0.8, "alpha": 0.75},
        {"lambda_u": 5.0, "threshold": 0.6, "loss_memory": 3},
        {},
    ],
    ids=lambda settings: ",".join(f"{name}={value}" for name, value in settings.items()) or "defaults",
)
def test_dividemix_follows_its_oracle(settings):
    method, run, oracle, splits, visits = follow_dividemix(**settings)
    assert any(visit.beside_rows for passes in visits for batches in passes for visit in batches)
    assert_same(run.trajectory, oracle, rtol=RTOL, names=("weights",))
    for ours, theirs in zip(run.trajectory.statistics, oracle.statistics, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            if a.is_floating_point():
                torch.testing.assert_close(a, b, rtol=RTOL, atol=RTOL)
    clean = torch.tensor([split.clean for split in splits[-1]]).T
    torch.testing.assert_close(method.clean.values, clean, rtol=1e-3, atol=1e-3)


def test_every_element_of_dividemix_changes_the_trajectory():
    """Else the comparison above would not tell them apart."""
    ends = []
    for settings in (
        {},
        {"lambda_u": 0.0},
        {"temperature": 1.0},
        {"alpha": 0.5},
        {"confidence_penalty": True},
        {"threshold": 0.9},
    ):
        method = DivideMix(**{"warmup": 3, "ramp_length": 4, "lambda_u": 25.0, **settings})
        run = watch(method, step="warm_up", n=30, batch=9, epochs=8)
        ends.append(run.trajectory.weights[-1][0])
    for i, a in enumerate(ends):
        for b in ends[:i]:
            assert (a - b).abs().max() > 1e-3


@pytest.fixture
def divided():
    """A DivideMix in training, and its data."""
    job = tiny_job(DivideMix(warmup=0.5, lambda_u=25.0), epochs=2)
    seen = []
    own = job.method.epoch

    def epoch(data, clock):
        seen.append(data)
        yield from own(data, clock)

    job.method.epoch = epoch
    train(job)
    return job.method, seen[0]


@pytest.mark.parametrize("k", [0, 1])
def test_each_network_trains_on_the_split_of_the_other(divided, k):
    method, data = divided
    method.clean.values.zero_()
    method.clean.values[:10, 0] = 1.0
    method.clean.values[20:40, 1] = 1.0
    stream = method._pass(k, 25.0, 0.3).stream
    assert stream.indices.tolist() == (list(range(20, 40)) if k == 0 else list(range(10)))
    assert sorted([*stream.indices.tolist(), *stream.beside.indices.tolist()]) == list(range(len(data)))
    assert (stream.views, stream.beside.views) == (2, 2)


def test_both_splits_are_decided_before_the_first_network_moves(divided):
    method, data = divided
    passes = method.epoch(data, Clock(0, 0, 1, 2))
    next(passes)
    decided = method.clean.values.clone()
    for parameter in method.nets[0].parameters():
        parameter.data.normal_()
    second = next(passes)
    assert torch.equal(method.clean.values, decided)
    assert second.stream.indices.tolist() == (decided[:, 0] > 0.5).nonzero().squeeze(1).tolist()


@pytest.mark.parametrize("make", [DivideMix, MixMatch])
@pytest.mark.parametrize("kept", [0, 1, 2, 66, 67], ids="{} labelled".format)
def test_any_size_of_the_labelled_part_trains(monkeypatch, make, kept):
    """Users meet empty parts on their own data (DivideMix issues 18 and 49)."""
    n = len(tiny_data().train)
    assert n == 67
    clean = torch.zeros(n)
    clean[:kept] = 1.0
    module = f"elr.methods.{make.__name__.lower()}"
    monkeypatch.setattr(f"{module}.gaussian_clean_probability", lambda losses: clean)
    method = make(warmup=0.3)
    names = []
    for name in ("warm_up", "semi", "step"):
        if hasattr(make, name):
            own = getattr(method, name)
            setattr(
                method, name, lambda *args, own=own, name=name: (names.append((name, args[-1].epoch)), own(*args))[1]
            )
    outcome = train(tiny_job(method, epochs=3))
    assert all(math.isfinite(record["loss"]) for record in outcome.records)
    later = {name for name, epoch in names if epoch > 0}
    assert later == ({"semi"} if kept > 1 else {"warm_up" if make is DivideMix else "step"})


def test_the_other_network_guesses_in_evaluation_mode_and_is_left_as_it_is():
    torch.manual_seed(0)
    method = DivideMix(lambda_u=25.0)
    method.build(lambda k=0: TinyNet(3, dropout=0.5), 20, 3)
    method.train()
    before = copy.deepcopy(method.nets[1].state_dict())
    x, view = torch.randn(6, FEATURES), torch.randn(6, FEATURES)
    beside = Batch(torch.arange(6, 12), torch.randn(6, FEATURES), torch.arange(6) % 3, (torch.randn(6, FEATURES),))
    batch = Batch(torch.arange(6), x, torch.arange(6) % 3, (view,), beside)
    step = method.semi(0, 25.0, {}, batch, Clock(0, epochs=10, epoch=5))
    step.loss.backward()
    assert method.nets[1].training
    assert all(torch.equal(before[name], value) for name, value in method.nets[1].state_dict().items())
    assert all(p.grad is None for p in method.nets[1].parameters())
    assert all(p.grad is not None for p in method.nets[0].parameters())
    assert step.seen[0].tolist() == list(range(12))
    assert step.count == 6


def test_the_estimated_rate_chooses_lambda_u_and_is_recorded():
    data = tiny_data(150)
    outcome = train(tiny_job(DivideMix(warmup=2), data=data, epochs=5))
    rates = {record["noise_rate"] for record in outcome.records[2:]}
    assert len(rates) == 1
    (rate,) = rates
    assert 0 < rate < 1
    assert "noise_rate" not in outcome.records[0]
    given = train(tiny_job(DivideMix(warmup=2, rate=0.85), data=data, epochs=5))
    assert given.records[-1]["noise_rate"] == pytest.approx(0.85)
    assert given.records[-1]["lambda_u"] == pytest.approx(50.0)  # the ramp of 16 / 300 is over


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threshold": 1.0}, "threshold must lie in"),
        ({"temperature": 0.0}, "temperature must lie in"),
        ({"lambda_u": -1.0}, "lambda_u must lie in"),
        ({"rate": 1.5}, "rate must lie in"),
        ({"loss_memory": 0}, "loss_memory must lie in"),
        ({"warmup": -1}, "warmup must lie in"),
    ],
)
def test_dividemix_refuses_bad_hyperparameters(settings, message):
    with pytest.raises(ValueError, match=message):
        DivideMix(**settings)


# MixMatch and its oracle.


def follow_mixmatch(**settings):
    method = MixMatch(warmup=4, ramp_length=4, **settings)
    calls = recorded(method, ["step", "semi"])
    run = watch(method, n=30, batch=9, epochs=24)
    run.trajectory.loss = [loss for _, _, loss in calls]
    epochs = {}
    for name, args, _ in calls:
        *_, batch, clock = args
        beside = batch.beside
        views = [beside.x, *beside.views] if beside is not None else []
        rows = beside.index.tolist() if beside is not None else []
        weight, partner = [], []
        if name == "semi":
            weight, partner = draw(clock, method.alpha, len(batch.index) + len(views) * len(rows), per_example=True)
        place = clock.epoch - 4 + clock.batch / clock.batches
        visit = mixmatch_oracle.Visit(batch.index.tolist(), batch.x, rows, views, weight, partner, place)
        epochs.setdefault(clock.epoch, []).append(visit)
    rules = mixmatch_oracle.Settings(
        3,
        4,
        method.threshold,
        method.temperature,
        22.5 if method.lambda_u is None else method.lambda_u,
        4.0,
        method.gamma if method.averaging else None,
    )
    return (
        method,
        run,
        *mixmatch_oracle.train(run.start[0], run.x, run.y, [v for _, v in sorted(epochs.items())], rules, **OPTIM),
    )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"averaging": True, "gamma": 0.9, "lambda_u": 75.0},
        {"augmentations": 3, "lambda_u": 10.0, "temperature": 0.8},
    ],
    ids=["defaults", "averaging", "three views"],
)
def test_mixmatch_follows_its_oracle(settings):
    method, run, oracle, splits = follow_mixmatch(**settings)
    assert any(len(split) < 30 for split in splits)
    names = ("weights", "averages") if method.averaging else ("weights",)
    assert_same(run.trajectory, oracle, rtol=RTOL, names=names)
    ours, theirs = run.trajectory.statistics[-1][:3], oracle.statistics[-1]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=RTOL, atol=RTOL)


def test_mixmatch_predicts_with_the_average_if_there_is_one():
    job = tiny_job(MixMatch(averaging=True, gamma=0.9))
    train(job)
    method = job.method.eval()
    x = torch.randn(5, FEATURES)
    torch.testing.assert_close(method.predict(x), method.averages[0].net(x).softmax(dim=1))
    assert not torch.allclose(method.predict(x), method.nets[0](x).softmax(dim=1))


# INCV and its oracle.


def follow_incv(epochs, **settings):
    method = INCV(**settings)
    calls = recorded(method, ["cross_validate", "step"])
    run = watch(method, step="cross_validate", n=36, batch=8, epochs=epochs)
    run.trajectory.loss = [loss for _, _, loss in calls]
    rounds, last = {}, {}
    for name, args, _ in calls:
        *_, batch, clock = args
        if name == "cross_validate":
            place = rounds.setdefault(clock.stage, {}).setdefault(clock.epoch, {})
            place.setdefault(args[0], []).append(batch.index.tolist())
        else:
            beside = batch.beside.index.tolist() if batch.beside is not None else []
            last.setdefault(clock.epoch, []).append((batch.index.tolist(), beside))

    def halves(r, candidates):
        order = Clock(0, r).rng("halves").permutation(len(candidates))
        first = {row for row, place in zip(candidates, order, strict=True) if place < len(candidates) // 2}
        return first, set(candidates) - first

    stages = method.plan(epochs)
    ramp = method.ramp_length * stages[-1].epochs
    warm = None if method.warmup is None else method.warmup * stages[-1].epochs
    rules = incv_oracle.Settings(3, method.pattern, method.rounds, warm, ramp, 8)
    oracle, state = incv_oracle.train(
        run.start[0],
        run.start[-2:],
        run.x,
        run.y,
        [[[passes[0], passes[1]] for _, passes in sorted(r.items())] for _, r in sorted(rounds.items())],
        [batches for _, batches in sorted(last.items())],
        halves,
        rules,
        **OPTIM,
    )
    return method, run, oracle, state


@pytest.mark.parametrize("pattern", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("more", [{}, {"warmup": 0.0, "ramp_length": 0.6, "rounds": 2}], ids=["defaults", "two rounds"])
def test_incv_follows_its_oracle(pattern, more):
    method, run, oracle, state = follow_incv(16, pattern=pattern, **more)
    assert_same(run.trajectory, oracle, rtol=1e-6, names=("weights",))
    status = method.status.values[:, 0]
    for code, rows in ((SELECTED, state.selected), (CANDIDATE, state.candidates), (REMOVED, state.removed)):
        assert set((status == code).nonzero().squeeze(1).tolist()) == rows
    assert float(method.noise_rate) == pytest.approx(state.rate, abs=2e-5)


def test_every_round_starts_from_the_same_weights_and_the_last_stage_does_not():
    method = INCV(rounds=2)
    starts = {}
    for name in ("cross_validate", "step"):
        own = getattr(method, name)

        def wrapped(*args, own=own):
            clock = args[-1]
            if clock.epoch == clock.batch == 0:
                k = clock.turn
                starts[clock.stage, k] = [p.detach().clone() for p in method.nets[k].parameters()]
                starts[clock.stage, 1 - k, "idle"] = [p.detach().clone() for p in method.nets[1 - k].parameters()]
            return own(*args)

        setattr(method, name, wrapped)
    train(tiny_job(method, epochs=6))
    first = starts[0, 0]
    for stage, k in ((0, 1), (1, 0), (1, 1)):
        assert all(torch.equal(a, b) for a, b in zip(first, starts[stage, k], strict=True))
    assert not torch.equal(first[0], starts[2, 0][0])
    assert not torch.equal(starts[2, 0][0], starts[2, 1, "idle"][0])


def test_a_round_has_the_authors_learning_rates_whatever_the_schedule_of_the_run():
    *rounds, last = INCV().plan(400)
    assert [stage.epochs for stage in rounds] == [50] * 4
    assert last.schedule is None
    for stage in rounds:
        rates = [stage.schedule(Clock(0, epoch=e, epochs=50, batches=7), 1e-3) for e in range(50)]
        assert rates == pytest.approx([1e-3] * 21 + [5e-4] * 10 + [2.5e-4] * 10 + [1e-4] * 9)


@pytest.mark.parametrize(
    ("pattern", "rate", "best_in"),
    [
        ("symmetric", 0.2, [True, True, True, True, False]),
        ("symmetric", 0.31, [True, True, False, False, False]),
        ("symmetric", 0.61, [True, False, False, False, False]),
        ("asymmetric", 0.2, [True, False, False, False, False]),
    ],
)
def test_the_best_epoch_of_a_round_counts_in_fewer_rounds_the_noisier_the_labels(pattern, rate, best_in):
    method = INCV(pattern=pattern, rate=rate, rounds=5)
    method.build(lambda k=0: TinyNet(3), 20, 3)
    assert [method._chooses_epoch(stage) for stage in range(5)] == best_in


def test_incv_takes_back_no_selection_and_returns_no_removed_example():
    method = INCV(rounds=3)
    seen = []
    own = method.finish

    def finish(stage, data):
        own(stage, data)
        seen.append(method.status.values[:, 0].clone())

    method.finish = finish
    train(tiny_job(method, data=tiny_data(150), epochs=8))
    for before, after in itertools.pairwise(seen):
        settled = before != CANDIDATE
        assert torch.equal(after[settled], before[settled])


def test_incv_trains_when_nothing_is_selected(monkeypatch):
    """A network that predicts no label: co-teaching then takes all examples."""
    monkeypatch.setattr(INCV, "_predict_held_out", lambda self, data: self.held_out.values.zero_())
    job = tiny_job(INCV(), epochs=6)
    outcome = train(job)
    assert all(math.isfinite(record["loss"]) for record in outcome.records)
    assert (job.method.status.values == SELECTED).sum() == 0


def test_incv_trains_when_everything_is_selected(monkeypatch):
    monkeypatch.setattr(INCV, "_predict_held_out", lambda self, data: self.held_out.values.fill_(1.0))
    job = tiny_job(INCV(), epochs=6)
    outcome = train(job)
    assert all(math.isfinite(record["loss"]) for record in outcome.records)
    assert (job.method.status.values == SELECTED).all()
    assert outcome.records[-1]["noise_rate"] == 0.0


def test_asymmetric_noise_removes_nothing():
    job = tiny_job(INCV(pattern="asymmetric"), data=tiny_data(150), epochs=8)
    train(job)
    assert (job.method.status.values != REMOVED).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pattern": "pair"}, "pattern must be one of symmetric, asymmetric"),
        ({"rounds": 0}, "rounds must lie in"),
        ({"rate": 1.0}, "rate must lie in"),
    ],
)
def test_incv_refuses_bad_hyperparameters(settings, message):
    with pytest.raises(ValueError, match=message):
        INCV(**settings)


# Digits at 40 % symmetric noise.


def trained_on(method, epochs):
    labels = digits(augment=True).train
    return teach(method, epochs, augment=True), labels.y == labels.y_true


def test_dividemix_tells_clean_labels_from_wrong_ones_on_digits():
    method = DivideMix(warmup=2)
    records, right = trained_on(method, 4)
    for k in range(2):
        assert roc_auc_score(right, method.clean.values[:, k].numpy()) >= 0.9
    assert records[-1]["noise_rate"] == pytest.approx(1 - right.mean(), abs=0.1)


def test_the_labels_mixmatch_keeps_are_cleaner_than_the_data_on_digits():
    method = MixMatch(warmup=3)
    _, right = trained_on(method, 5)
    clean = method.clean.values[:, 0].numpy()
    assert roc_auc_score(right, clean) >= 0.9
    assert right[clean > 0.5].mean() > right.mean() + 0.2


def test_the_labels_incv_selects_are_cleaner_than_the_data_on_digits():
    method = INCV(rounds=2, round_length=4)
    records, right = trained_on(method, 10)
    status = method.status.values[:, 0].numpy()
    assert right[status == SELECTED].mean() > right.mean() + 0.25
    assert right[status == REMOVED].mean() < right.mean() - 0.25
    assert (status == SELECTED).mean() > 0.4
    assert records[-1]["noise_rate"] == pytest.approx(1 - right.mean(), abs=0.15)  # see noise_from_agreement
    assert "noise_rate" not in records[0]


def test_one_network_with_a_linear_model_trains_too():
    """No batch norm, no dropout, nothing to put into evaluation mode."""
    for method in (DivideMix(), MixMatch(), INCV()):
        outcome = train(tiny_job(method, make_model=lambda: nn.Linear(FEATURES, 3), epochs=6))
        assert math.isfinite(outcome.records[-1]["loss"])
