"""Methods that change labels: vectors, oracles, what their parts mean, and that they correct labels on digits."""

import copy
import math

import numpy as np
import pytest
import torch
from on_digits import digits, taught
from reference import d2l, joint_optim, m_dyr_h, md_dyr_sh, pencil
from reference.tiny import FEATURES, tiny_data, tiny_job
from reference.watch import OPTIM, assert_same, watch
from sklearn.metrics import roc_auc_score
from torch import nn

from elr.data.stream import Batch
from elr.engine.train import _train_data, train
from elr.losses import cross_entropy
from elr.losses.corrected import corrected_labels
from elr.losses.correction import backward_loss, forward_loss
from elr.losses.pencil import compatibility, label_gradient, reverse_divergence
from elr.losses.semi import balance_penalty, negative_entropy
from elr.methods import METHODS
from elr.methods.d2l import trust
from elr.methods.md_dyr_sh import by_trust, temperature
from elr.models.fastnet import FastNet
from elr.parts.clock import Clock
from elr.parts.dimension import dimension_of_distances, local_dimension
from elr.parts.mixture import BetaMixture, estimate_noise_rate, gaussian_clean_probability

RTOL = 1e-5  # networks are float64; tables, and what is computed from the logits, float32

# p = (.1, .2, .3, .4), label 1.
Z = torch.log(torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64))
Y = torch.tensor([1])


def built(name, net=None, *, n=8, num_classes=4, **settings):
    method = METHODS[name](**settings)
    method.build(lambda k=0: net or nn.Linear(FEATURES, num_classes), n, num_classes)
    return method


def batch_of(logits, y):
    """A batch for a network that passes its input on."""
    return Batch(torch.arange(len(y)), logits, torch.as_tensor(y))


# Vectors.


def test_joint_optim_vector():
    s = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1]])
    step = built("joint_optim", nn.Identity()).step(batch_of(s.log(), [0, 1]), Clock(0, epochs=10))
    assert step.log["ce"].item() == pytest.approx(0.3566749, abs=5e-7)
    assert step.log["penalty"].item() == pytest.approx(0.2231436, abs=5e-7)
    assert step.log["penalty"].item() + math.log(4) == pytest.approx(1.6094379, abs=5e-7)  # as their code prints it
    assert step.log["entropy"].item() == pytest.approx(0.9404480, abs=5e-7)
    assert step.loss.item() + 1.2 * math.log(4) == pytest.approx(3.0403588, abs=2e-6)


def test_pencil_vector():
    labels = torch.tensor([[0.0, 10.0, 0.0, 0.0]], dtype=torch.float64)
    assert reverse_divergence(Z, labels).item() == pytest.approx(6.7202820, abs=5e-8)
    assert reverse_divergence(Z, labels).item() / 4 == pytest.approx(1.6800705, abs=5e-8)  # as their code prints it
    assert compatibility(labels, Y).item() == pytest.approx(1.3619e-4, abs=5e-9)
    assert compatibility(labels, Y, double_softmax=True).item() == pytest.approx(0.7437636, abs=5e-8)
    assert -negative_entropy(Z).item() / 4 == pytest.approx(0.3199636, abs=5e-8)
    z = Z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(reverse_divergence(z, labels), z)
    assert slope[0].tolist() == pytest.approx([0.0977269, -1.6659167, 0.6227644, 0.9454254], abs=2e-7)
    moves = 4 * label_gradient(Z, labels, Y, 0.0)[0]  # of the divergence: d - f
    assert moves.tolist() == pytest.approx([-0.0999546, 0.7998638, -0.2999546, -0.3999546], abs=5e-8)


@pytest.mark.parametrize(("num_classes", "share"), [(10, 0.99959), (100, 0.99553)])
def test_pencil_starts_close_to_the_given_labels(num_classes, share):
    job = tiny_job(METHODS["pencil"](), data=tiny_data(60, 3))
    job.method.build(lambda k=0: nn.Linear(FEATURES, num_classes), 4, num_classes)

    class Data:
        y = torch.tensor([3, 0, 9, 9])

    Data.num_classes = num_classes
    job.method.finish(0, Data)
    d = job.method.label_logits.values.softmax(dim=1)
    assert d[torch.arange(4), Data.y].tolist() == pytest.approx([share] * 4, abs=5e-6)


@pytest.mark.parametrize(("num_classes", "least"), [(10, 1.4612), (100, 3.6222)])
def test_the_double_softmax_of_pencil_never_falls_below(num_classes, least):
    sure = 1e4 * torch.eye(num_classes)[:1]
    assert compatibility(sure, torch.tensor([0]), double_softmax=True).item() == pytest.approx(least, abs=5e-5)


def test_lid_vector():
    assert dimension_of_distances(torch.tensor([[1.0, 2.0, 4.0, 8.0]])).item() == pytest.approx(0.9617967, abs=5e-8)
    assert d2l.lid([1.0, 2.0, 4.0, 8.0]) == pytest.approx(0.9617967, abs=5e-8)


def test_d2l_vector():
    assert trust(60 / 120, 3.0, 3.0) == pytest.approx(0.6065307, abs=5e-8)
    assert trust(60 / 120, 4.5, 3.0) == pytest.approx(0.4723666, abs=5e-8)


def test_a_balanced_batch_has_no_penalty():
    assert balance_penalty(torch.zeros(3, 10)).item() == pytest.approx(0.0, abs=1e-6)
    sure = torch.where(torch.eye(4) > 0, 1e4, -1e4)
    assert balance_penalty(sure).item() == pytest.approx(0.0, abs=1e-6)
    assert math.isfinite(balance_penalty(sure[:1]).item())


# Oracles.


def epochs_of(run):
    """Rows of the batches, an epoch a list; stage by stage."""
    stages = {}
    for batches in run.passes:
        stages.setdefault(batches[0][1].stage, []).append([rows.tolist() for rows, _ in batches])
    return list(stages.values())


@pytest.mark.parametrize("labels", ["soft", "hard"])
def test_joint_optim_follows_its_oracle(labels):
    method = METHODS["joint_optim"](first=8.0, start=2.0, window=3, labels=labels)
    run = watch(method)
    assert list(map(len, epochs_of(run))) == [8, 5]
    oracle = joint_optim.train(
        run.start,
        run.x,
        run.y,
        epochs_of(run),
        3,
        alpha=1.2,
        beta=0.8,
        start=2,
        window=3,
        hard=labels == "hard",
        second_lr=2.5,
        **OPTIM,
    )
    assert_same(run.trajectory, oracle, rtol=RTOL, names=("targets", "weights"))
    assert (method.corrected.values.argmax(dim=1) != run.y).sum() > 3  # else the new labels would not matter


@pytest.mark.parametrize("double_softmax", [False, True])
def test_pencil_follows_its_oracle(double_softmax):
    method = METHODS["pencil"](warmup=4.0, correct=5.0, lam=20.0, double_softmax=double_softmax)
    run = watch(method)
    assert list(map(len, epochs_of(run))) == [4, 5, 4]
    oracle = pencil.train(
        run.start[0],
        run.x,
        run.y,
        epochs_of(run),
        3,
        alpha=0.1 if double_softmax else 1 / 6,
        beta=0.8,
        lam=20.0,
        sharpness=10.0,
        double_softmax=double_softmax,
        last_lr=20 / 3,
        **OPTIM,
    )
    assert_same(run.trajectory, oracle, rtol=RTOL, names=("targets", "weights"))
    assert (method.label_logits.values.argmax(dim=1) != run.y).sum() > 1


def mixup_draws(run):
    """Coefficients and partners from the same counted generators, made here once more."""
    epochs = []
    for batches in run.passes:
        epochs.append([])
        for rows, clock in batches:
            rng = clock.rng("mixup")
            ell = float(rng.beta(32.0, 32.0))
            weight = float(np.float32(max(ell, 1.0 - ell)))
            epochs[-1].append(m_dyr_h.Draws(rows.tolist(), weight, rng.permutation(len(rows)).tolist()))
    return epochs


def test_m_dyr_h_follows_its_oracle():
    method = METHODS["m_dyr_h"](start=4.0)
    run = watch(method)
    oracle, mixtures = m_dyr_h.train(run.start[0], run.x, run.y, mixup_draws(run), 3, start=4, reg=1.0, **OPTIM)
    assert_same(run.trajectory, oracle, rtol=RTOL, names=("weights",))
    assert len(mixtures) == 9
    last = mixtures[-1]
    expected = torch.tensor([*last.w, *last.a, *last.b, last.low, last.high])
    torch.testing.assert_close(method.mixture, expected, rtol=1e-4, atol=1e-4)


def test_md_dyr_sh_follows_its_oracle():
    run = watch(METHODS["md_dyr_sh"](start=3.0, guide=2.0, cool=7.0))
    heats = np.linspace(1.0, 0.001, 7).tolist()
    oracle = md_dyr_sh.train(
        run.start[0], run.x, run.y, mixup_draws(run), 3, start=3, guide=2, temperatures=heats, reg=1.0, **OPTIM
    )
    # Predictions are divided by a temperature of down to .001, and so is their rounding.
    assert_same(run.trajectory, oracle, rtol=10 * RTOL, names=("weights",))


@pytest.mark.parametrize("rollback", [False, True])
def test_d2l_follows_its_oracle(rollback):
    method = METHODS["d2l"](first=2.0, window=2, neighbours=5, rollback=rollback)
    run = watch(method)
    (epochs,) = epochs_of(run)
    oracle, lids, turning = d2l.train(
        run.start[0], run.x, run.y, epochs, 3, first=2, window=2, neighbours=5, rollback=rollback, **OPTIM
    )
    assert_same(run.trajectory, oracle, rtol=RTOL, names=("weights",))
    assert method.turning.item() == turning
    assert 0 < turning < 12  # labels have given way for an epoch at least
    torch.testing.assert_close(method.recent, torch.tensor(lids[-3:]), rtol=1e-4, atol=1e-4)
    assert method.smallest.item() == pytest.approx(min(lids), rel=1e-4)


# What the parts mean.


@pytest.mark.parametrize("double_softmax", [False, True])
def test_label_gradient_is_that_of_autograd(g, double_softmax):
    z = torch.randn(6, 5, generator=g, dtype=torch.float64)
    labels = (2 * torch.randn(6, 5, generator=g, dtype=torch.float64)).requires_grad_()
    y = torch.arange(6) % 5
    f, log_d = z.softmax(dim=1), labels.log_softmax(dim=1)
    loss = (f * (f.log() - log_d)).sum(dim=1) / 5 + 0.3 * compatibility(labels, y, double_softmax=double_softmax)
    (expected,) = torch.autograd.grad(loss.sum(), labels)
    torch.testing.assert_close(label_gradient(z, labels, y, 0.3, double_softmax=double_softmax), expected)


@pytest.mark.parametrize("double_softmax", [False, True])
def test_a_pencil_label_gives_way_to_a_prediction_of_more_than_three_quarters(double_softmax):
    method = built("pencil", num_classes=10, double_softmax=double_softmax)
    for sure, gives_way in [(0.70, False), (0.80, True)]:
        f = torch.full((1, 10), 1e-6)
        f[0, 0], f[0, 1] = 1.0 - sure, sure
        labels = 10.0 * torch.eye(10)[:1]
        for _ in range(4000):
            gradient = label_gradient(
                f.log(), labels, torch.tensor([0]), method._alpha(10), double_softmax=double_softmax
            )
            labels = labels - gradient
        assert (labels.argmax().item() == 1) is gives_way


def test_once_it_has_moved_only_the_double_softmax_lets_go_of_a_label():
    moved, y = torch.tensor([[-30.0, 30.0, 0.0]]), torch.tensor([0])
    agrees = torch.tensor([[-30.0, 30.0, 0.0]])
    single, double = (label_gradient(agrees, moved, y, 0.1, double_softmax=two) for two in (False, True))
    assert single[0, 0].item() == pytest.approx(-0.1)
    assert double.abs().max().item() < 1e-12


def test_the_step_of_a_pencil_label_does_not_depend_on_its_batch(g):
    logits, y = torch.randn(8, 4, generator=g), torch.arange(8) % 4
    clock, moved = Clock(0, stage=1, epochs=10), []
    for size in (2, 8):
        method = built("pencil", nn.Identity())
        method.step(batch_of(logits[:size], y[:size]), clock).then()
        moved.append(method.label_logits.values[:2])
    assert torch.equal(*moved)


def test_the_labels_of_pencil_move_in_the_second_stage_only():
    method = METHODS["pencil"]()
    seen = []

    class Watch:
        def batch(self, epoch, done, total):
            pass

        def epoch(self, record, seconds):
            seen.append((record["stage"], method.label_logits.values.clone()))

    train(tiny_job(method, epochs=10, progress=Watch()))
    stages = {s: [values for stage, values in seen if stage == s] for s in range(3)}
    given = stages[0][-1]
    assert torch.equal(given, 10.0 * (given == 10.0))
    assert not torch.equal(stages[1][0], given)
    assert all(torch.equal(values, stages[1][-1]) for values in stages[2])


@pytest.mark.parametrize(("name", "lengths", "scale"), [("joint_optim", [5, 3], 2.5), ("pencil", [2, 3, 3], 20 / 3)])
def test_labels_are_found_at_a_constant_learning_rate_and_learned_on_the_schedule(name, lengths, scale):
    outcome = train(tiny_job(METHODS[name](), epochs=8))
    rates = [record["lr"] for record in outcome.records]
    constant = sum(lengths[:-1])
    assert [record["stage"] for record in outcome.records] == [s for s, k in enumerate(lengths) for _ in range(k)]
    assert rates[:constant] == [0.1] * constant
    falling = [scale * (0.01 + 0.09 * (1 + math.cos(math.pi * e / 3)) / 2) for e in range(lengths[-1])]
    assert rates[constant:] == pytest.approx(falling)


def test_joint_optim_averages_only_the_epochs_there_were():
    method = METHODS["joint_optim"](window=10, start=1.0)
    train(tiny_job(method, epochs=4))  # two or three epochs of predictions
    torch.testing.assert_close(method.corrected.values.sum(dim=1), torch.ones(len(method.corrected.values)))


def test_joint_optim_forgets_epochs_before_the_window():
    method = METHODS["joint_optim"](window=1, start=1.0, first=3.0)
    train(tiny_job(method, epochs=4))
    assert torch.equal(method.corrected.values, method.recent.values)


def test_a_right_label_is_kept_and_a_wrong_one_replaced(g):
    y, guess = torch.tensor([0, 1, 2]), torch.tensor([2, 2, 1])
    hard = corrected_labels(y, guess, torch.tensor([0.0, 1.0, 0.25]), 3)
    torch.testing.assert_close(hard, torch.tensor([[1.0, 0, 0], [0, 0, 1.0], [0, 0.25, 0.75]]))
    z, p = torch.randn(3, 3, generator=g), torch.randn(3, 3, generator=g).softmax(dim=1)
    w = torch.tensor(0.3)
    both = 0.7 * cross_entropy(z, y) + 0.3 * cross_entropy(z, p)
    torch.testing.assert_close(cross_entropy(z, corrected_labels(y, p, w, 3)), both)


def test_m_dyr_without_doubt_is_mixup():
    """Until labels give way its loss is mixup's, draw for draw."""
    ours, plain = METHODS["m_dyr_h"](start=1.0), METHODS["mixup"](alpha=32.0)
    records = [train(tiny_job(method, epochs=3)).records for method in (ours, plain)]
    for a, b in zip(*records, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)


def test_dynamic_mixup_gives_the_larger_weight_to_the_more_trusted():
    mix = by_trust(torch.tensor([0.1, 0.9, 1 - 1e-4, 1 - 1e-4]), torch.tensor([1, 0, 3, 2]))
    torch.testing.assert_close(mix.weight, torch.tensor([0.9, 0.1, 0.5, 0.5]), rtol=0, atol=1e-3)


def test_predictions_go_from_soft_to_hard():
    assert [temperature(e, 89) for e in (0, 88, 89, 500)] == pytest.approx([1.0, 0.001, 0.001, 0.001])
    assert temperature(1, 89) == pytest.approx(np.linspace(1, 0.001, 89)[1])
    assert METHODS["md_dyr_sh"]().cool * 300 == pytest.approx(200 - 111)  # the authors' epochs
    assert [temperature(e, 0) for e in (0, 1)] == pytest.approx([1.0, 0.001])


def test_lid_is_the_dimension_of_a_plane_in_space(g):
    flat = torch.rand(1500, 2, generator=g) @ torch.randn(2, 30, generator=g)
    assert 1.8 < local_dimension(flat, 20).mean() < 2.3
    assert local_dimension(torch.randn(1500, 30, generator=g), 20).mean() > 8


def test_lid_does_not_depend_on_scale_or_order(g):
    x = torch.randn(40, 5, generator=g)
    order = torch.randperm(40, generator=g)
    torch.testing.assert_close(local_dimension(1000 * x[order], 7), local_dimension(x, 7)[order], rtol=1e-5, atol=1e-5)


class LikeMPS(torch.Tensor):
    """A tensor on a device that has no float64, and with what does not come from the CPU."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.cpu:
            return args[0].as_subclass(torch.Tensor)
        result = super().__torch_function__(func, types, args, kwargs)
        if isinstance(result, cls) and result.dtype == torch.float64:
            raise TypeError("MPS has no float64")
        return result


@pytest.mark.parametrize(
    "use",
    [
        gaussian_clean_probability,
        estimate_noise_rate,
        lambda x: BetaMixture.fit(x).numbers(),
        lambda x: local_dimension(x.view(20, 3), 5),
        lambda x: forward_loss(x.view(20, 3), x.view(20, 3).softmax(dim=1), torch.eye(3)),
        lambda x: backward_loss(x.view(20, 3), x.view(20, 3).softmax(dim=1), torch.eye(3)),
        lambda x: FastNet((1, 9, 9), 3).prepare(x.view(15, 1, 2, 2)),
    ],
    ids=["gaussians", "noise rate", "betas", "dimension", "forward", "backward", "fastnet"],
)
def test_nothing_is_float64_where_the_device_may_have_none(g, use):
    x = torch.rand(60, generator=g)
    result = use(x.as_subclass(LikeMPS))
    if result is not None:
        torch.testing.assert_close(torch.as_tensor(result).as_subclass(torch.Tensor), torch.as_tensor(use(x)))


@pytest.mark.parametrize("kind", ["duplicates", "all equal", "two points", "not finite"])
def test_features_without_neighbours_to_tell_apart_do_not_stop_d2l(g, kind):
    x = torch.randn(20, 3, generator=g)
    if kind == "duplicates":
        x[10:] = x[:10]
        assert local_dimension(x, 5).isfinite().all()
    if kind == "all equal":
        x[:] = 1.0
        assert local_dimension(x, 5).isfinite().all()
    method = built("d2l")
    for epoch, lid in enumerate([math.nan, 3.0, math.nan, -1.0, math.inf] if kind == "not finite" else [1.0]):
        method._observe(lid, epoch)
        assert method.recent.isfinite().all()
        assert method.smallest > 0


def test_d2l_looks_for_a_turning_point_after_its_first_epochs_only():
    method = built("d2l", first=3.0, window=2)
    for epoch, lid in enumerate([9.0, 5.0, 5.0, 5.1, 5.0, 4.0, 5.0, 5.7]):
        method._observe(lid, epoch)
        assert method._rises(Clock(0, epoch=epoch, epochs=10)) == (epoch == 7)
    assert method.smallest == 4.0


def test_d2l_leaves_the_network_in_training_mode_and_its_statistics_alone():
    job = tiny_job(METHODS["d2l"](), epochs=1)
    job.method.build(lambda k=0: job.make_model(), len(job.data.train.y), 3)
    job.method.train()
    before = copy.deepcopy(job.method.nets.state_dict())
    next(iter(job.method.epoch(_train_data(job, torch.device("cpu")), Clock(0, epochs=3))))
    assert job.method.nets[0].training
    assert all(torch.equal(value, before[key]) for key, value in job.method.nets.state_dict().items())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("joint_optim", {"window": 0}),
        ("joint_optim", {"labels": "firm"}),
        ("pencil", {"alpha": -1.0}),
        ("m_dyr_h", {"alpha": 0.0}),
        ("md_dyr_sh", {"cool": -1.0}),
        ("d2l", {"neighbours": 1}),
    ],
)
def test_a_setting_out_of_range_is_one_clear_line(name, settings):
    with pytest.raises(ValueError, match=rf"^{next(iter(settings))} must "):
        METHODS[name](**settings)


# On digits, 40 % of whose labels are replaced.


def accuracy(labels, truth):
    return float((np.asarray(labels) == truth).mean())


@pytest.mark.parametrize(("name", "table"), [("joint_optim", "corrected"), ("pencil", "label_logits")])
def test_corrected_labels_are_more_accurate_than_the_given_ones(name, table):
    method, records = taught(name, 24)
    given = accuracy(digits().train.y, digits().train.y_true)
    found = accuracy(getattr(method, table).values.argmax(dim=1), digits().train.y_true)
    assert given < 0.67
    assert found > 0.9
    assert records[-1]["relabelled"] > 0.25


@pytest.mark.parametrize("name", ["m_dyr_h", "md_dyr_sh"])
def test_the_mixture_tells_wrong_labels_from_right_ones(name):
    method, records = taught(name, 18)
    x = digits().transform(digits().train.inputs.fetch(torch.arange(len(digits().train.y))), digits().train.keys, None)
    y = torch.from_numpy(digits().train.y)
    with torch.no_grad():
        losses = cross_entropy(method.eval().nets[0](x), y)
    wrong = BetaMixture.of(method.mixture).wrong_probability(losses)
    assert roc_auc_score(digits().train.y != digits().train.y_true, wrong) >= 0.9
    assert 0.25 < records[-1]["noise_rate"] < 0.5  # 36 % are wrong


def test_d2l_reaches_its_turning_point():
    method, records = taught("d2l", 24)
    assert method.turning >= 0
    alphas = [record["alpha"] for record in records]
    assert alphas[0] == 1.0
    assert alphas[-1] < 0.7
