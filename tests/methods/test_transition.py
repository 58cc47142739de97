"""Methods with a transition matrix: the losses' vectors, the oracles, and how near the learned T is to the true one."""

import json
import math

import numpy as np
import pytest
import torch
from on_digits import digits, teach
from reference import backward, forward, noise_adaptation, t_revision, trace
from reference.tiny import FEATURES, TinyNet, tiny_data, tiny_job
from reference.watch import OPTIM, assert_same, watch
from torch import nn

from elr.config import resolve
from elr.engine.optim import scales
from elr.engine.train import train
from elr.losses import cross_entropy
from elr.losses.correction import backward_loss, forward_loss, noisy_nll, reweighted_loss
from elr.methods import METHODS
from elr.methods.base import shares
from elr.methods.noise_adaptation import confusion
from elr.noise import transition
from elr.parts.anchors import anchor_matrix, well_conditioned
from elr.parts.clock import Clock
from elr.parts.features import head, penultimate

# p = (.1, .2, .3, .4), label 1. Symmetric noise of 30 %, and class 1 taken for class 0 at 40 %.
Z = torch.log(torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64))
Y = torch.tensor([1])
SYMMETRIC = 0.6 * torch.eye(4, dtype=torch.float64) + 0.1
ASYMMETRIC = torch.eye(4, dtype=torch.float64)
ASYMMETRIC[1] = torch.tensor([0.4, 0.6, 0.0, 0.0], dtype=torch.float64)


def value_and_gradient(loss):
    z = Z.clone().requires_grad_()
    value = loss(z)
    return value.item(), torch.autograd.grad(value.sum(), z)[0][0].tolist()


def test_forward_vector():
    value, gradient = value_and_gradient(lambda z: forward_loss(z, Y, SYMMETRIC))
    assert value == pytest.approx(1.5141277, abs=5e-8)
    assert gradient == pytest.approx([0.0545455, -0.4363636, 0.1636364, 0.2181818], abs=5e-8)
    assert forward_loss(Z, Y, ASYMMETRIC).item() == pytest.approx(2.1202635, abs=5e-8)
    assert forward_loss(Z, Y, ASYMMETRIC.T).item() == pytest.approx(1.8325815, abs=5e-8)  # the wrong orientation


def test_backward_vector():
    value, gradient = value_and_gradient(lambda z: backward_loss(z, Y, torch.linalg.inv(SYMMETRIC)))
    assert value == pytest.approx(1.6770154, abs=5e-8)
    row = [-1 / 6, 1.5, -1 / 6, -1 / 6]  # of the inverse: the gradient is p - row
    assert gradient == pytest.approx([p - r for p, r in zip([0.1, 0.2, 0.3, 0.4], row, strict=True)], abs=5e-8)
    assert backward_loss(Z, Y, torch.linalg.inv(ASYMMETRIC)).item() == pytest.approx(1.1473398, abs=5e-8)


def test_reweighting_vector():
    value, gradient = value_and_gradient(lambda z: reweighted_loss(z, Y, SYMMETRIC))
    assert value == pytest.approx(0.2 / 0.22 * 1.6094379, abs=5e-8)
    assert gradient == pytest.approx([0.0909091, -0.7272727, 0.2727273, 0.3636364], abs=5e-8)
    value, gradient = value_and_gradient(lambda z: reweighted_loss(z, Y, SYMMETRIC, through_weight=True))
    assert value == pytest.approx(0.2 / 0.22 * 1.6094379, abs=5e-8)
    assert gradient == pytest.approx([0.0244034, -0.1952271, 0.0732102, 0.0976136], abs=5e-8)


def test_noise_adaptation_vector():
    assert noisy_nll(Z, Y, SYMMETRIC.log()).item() == pytest.approx(1.5141277, abs=5e-8)
    scores = 1e3 * torch.eye(4, dtype=torch.float64)
    torch.testing.assert_close(noisy_nll(Z, Y, scores.log_softmax(dim=1)), cross_entropy(Z, Y))


def test_trace_starts_near_the_identity():
    method = built("trace", num_classes=10)
    diagonal = method.transition.diagonal()
    torch.testing.assert_close(diagonal, torch.full((10,), 0.9560033))


def test_without_noise_every_correction_is_cross_entropy(g):
    z, eye = torch.randn(9, 5, generator=g, dtype=torch.float64), torch.eye(5, dtype=torch.float64)
    for y in (torch.arange(9) % 5, torch.rand(9, 5, generator=g, dtype=torch.float64).softmax(dim=1)):
        for loss in (forward_loss, backward_loss, reweighted_loss):
            torch.testing.assert_close(loss(z, y, eye), cross_entropy(z, y))


@pytest.mark.parametrize("clip", [0.0, 1e-7])
def test_backward_correction_is_unbiased(g, clip):
    """Its mean over the labels that T gives to a class is the loss of that class, for every network."""
    z = 3.0 * torch.randn(6, 4, generator=g, dtype=torch.float64)
    inverse = torch.linalg.inv(ASYMMETRIC @ SYMMETRIC)
    each = torch.stack([backward_loss(z, torch.full((6,), j), inverse, clip=clip) for j in range(4)], dim=1)  # (6, 4)
    torch.testing.assert_close(each @ (ASYMMETRIC @ SYMMETRIC).T, -z.log_softmax(dim=1))


def test_backward_loss_has_no_floor_without_a_clip():
    inverse = torch.linalg.inv(SYMMETRIC).float()
    sure = torch.tensor([[0.0, 1e4, 0.0, 0.0]])
    assert backward_loss(sure, Y, inverse).item() < -4000.0
    assert backward_loss(sure, Y, inverse, clip=1e-7).item() == pytest.approx(-0.5 * 16.1180957, rel=1e-5)


def test_an_impossible_label_gives_a_finite_loss_and_gradient():
    for z in (torch.tensor([[1e4, -1e4, 0.0, 0.0]]), torch.tensor([[-1e4, 1e4, 1e4, -1e4]])):
        for y in (torch.tensor([2]), torch.tensor([[0.25, 0.25, 0.25, 0.25]])):
            for loss in (forward_loss, reweighted_loss):
                z = z.detach().requires_grad_()
                value = loss(z, y, ASYMMETRIC.float())
                assert value.isfinite().all()
                assert torch.autograd.grad(value.sum(), z)[0].isfinite().all()


def test_probabilities_and_ids_agree_where_the_product_would_underflow():
    z = torch.tensor([[0.0, -95.0, -1e4, -1e4]])  # sure of class 0, which is never labelled 1
    hard, soft = (forward_loss(z, y, ASYMMETRIC.float()) for y in (Y, torch.tensor([[0.0, 1.0, 0.0, 0.0]])))
    torch.testing.assert_close(hard, soft)
    assert 80.0 < hard.item() < 95.6


def test_a_matrix_for_each_example_is_the_same_as_one_for_all(g):
    z, y = torch.randn(5, 4, generator=g, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 1])
    each = SYMMETRIC.log().expand(5, 4, 4)
    torch.testing.assert_close(noisy_nll(z, y, each), noisy_nll(z, y, SYMMETRIC.log()))
    soft = torch.rand(5, 4, generator=g, dtype=torch.float64)
    torch.testing.assert_close(noisy_nll(z, soft, each), noisy_nll(z, soft, SYMMETRIC.log()))


# Parts.


@pytest.mark.parametrize("percentile", [0.0, 50.0, 97.0, 99.9, 100.0])
@pytest.mark.parametrize("n", [1, 2, 20, 101, 700])
def test_anchors_are_those_of_the_oracle(g, n, percentile):
    p = (3.0 * torch.randn(n, 5, generator=g, dtype=torch.float64)).softmax(dim=1)
    expected = torch.tensor(forward.anchors(p.tolist(), percentile), dtype=torch.float64)
    torch.testing.assert_close(anchor_matrix(p, percentile), expected)


def test_anchors_of_equal_predictions_are_these_predictions():
    p = torch.tensor([0.2, 0.3, 0.5]).expand(40, 3)
    torch.testing.assert_close(anchor_matrix(p), p[:3])


def test_the_filter_is_off_for_more_than_ten_classes(g):
    p = torch.randn(200, 11, generator=g).softmax(dim=1)
    assert torch.equal(anchor_matrix(p), anchor_matrix(p, 100.0))
    assert torch.equal(anchor_matrix(p[:, :10]), anchor_matrix(p[:, :10], 97.0))
    assert not torch.equal(anchor_matrix(p[:, :10]), anchor_matrix(p[:, :10], 100.0))


def test_a_matrix_is_left_alone_unless_it_can_hardly_be_inverted():
    assert torch.equal(well_conditioned(SYMMETRIC, 100.0), SYMMETRIC)
    singular = torch.full((3, 3), 1 / 3)
    drawn = well_conditioned(singular, 100.0)
    assert torch.linalg.cond(drawn) <= 100.0
    torch.testing.assert_close(drawn.sum(dim=1), torch.ones(3))


def test_confusion_counts_labels_among_predictions():
    p = torch.tensor([[0.9, 0.1, 0.0], [0.6, 0.4, 0.0], [0.2, 0.8, 0.0]])
    y = torch.tensor([0, 1, 1])
    hard = confusion(p, y, hard=True)
    torch.testing.assert_close(hard, torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.23, 0.23, 0.54]]))
    soft = confusion(p, y, hard=False)
    torch.testing.assert_close(soft[0], torch.tensor([0.9 / 1.7, 0.8 / 1.7, 0.0]))


def test_penultimate_features_are_what_the_classifier_sees():
    net, x = TinyNet(3), torch.randn(7, FEATURES)
    with penultimate(net) as features:
        logits = net(x)
    assert len(features) == 1
    torch.testing.assert_close(head(net)(features[0]), logits)
    assert features[0].requires_grad
    net(x)
    assert len(features) == 1  # nothing is left behind


def test_a_network_without_a_linear_layer_has_no_features():
    with pytest.raises(ValueError, match="Sequential has no linear layer"), penultimate(nn.Sequential(nn.Tanh())):
        pass
    with pytest.raises(RuntimeError, match="no forward pass reached the last linear layer"), penultimate(TinyNet(3)):
        pass


# Oracles.


def stages_of(run):
    """Batches of each stage."""
    found: dict[int, list[list[int]]] = {}
    for batches in run.passes:
        for rows, clock in batches:
            found.setdefault(clock.stage, []).append(rows.tolist())
    return list(found.values())


def matrix_file(folder, matrix, name="T.csv"):
    path = folder / name
    np.savetxt(path, np.asarray(matrix), delimiter=",")
    return str(path)


TILTED = [[0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.3, 0.1, 0.6]]


def rounded(matrix):
    """As the product keeps it: float32."""
    return torch.tensor(matrix, dtype=torch.float32).double().tolist()


def test_forward_correction_with_a_given_matrix_follows_its_oracle(tmp_path):
    run = watch(METHODS["forward"](matrix=matrix_file(tmp_path, TILTED)))
    given = rounded(TILTED)
    oracle = forward.train_with(
        lambda z, label: forward.forward_loss(z, label, given), run.start[0], run.x, run.y, run.batches, **OPTIM
    )
    assert_same(run.trajectory, oracle, rtol=1e-11, names=("weights",))


@pytest.mark.parametrize("clip", [0.0, 1e-7, 0.05])
def test_backward_correction_with_a_given_matrix_follows_its_oracle(tmp_path, clip):
    method = METHODS["backward"](matrix=matrix_file(tmp_path, TILTED), clip=clip)
    run = watch(method)
    torch.testing.assert_close(
        method.inverse.double(), torch.tensor(backward.inverse(TILTED)).double(), rtol=1e-6, atol=1e-6
    )
    inverted = method.inverse.double().tolist()
    oracle = forward.train_with(
        lambda z, label: backward.backward_loss(z, label, inverted, clip),
        run.start[0],
        run.x,
        run.y,
        run.batches,
        **OPTIM,
    )
    assert_same(run.trajectory, oracle, rtol=1e-9, names=("weights",))


@pytest.mark.parametrize("percentile", [80.0, 100.0])
def test_forward_correction_with_an_estimated_matrix_follows_its_oracle(percentile):
    method = METHODS["forward"](percentile=percentile, estimate=0.4)
    run = watch(method)
    stages = stages_of(run)
    assert [len(stage) for stage in stages] == [5 * 4, 8 * 4]
    oracle, matrix = forward.train(run.start, run.x, run.y, stages, 3, percentile, **OPTIM)
    torch.testing.assert_close(method.transition, torch.tensor(matrix), rtol=1e-5, atol=1e-6)
    assert_same(run.trajectory, oracle, rtol=1e-5, names=("weights",))


@pytest.mark.parametrize(
    "settings",
    [{}, {"count": "soft"}, {"beta": 0.3}, {"form": "complex"}],
    ids=["simple", "soft", "beta", "complex"],
)
def test_noise_adaptation_follows_its_oracle(settings):
    method = METHODS["noise_adaptation"](**settings)
    run = watch(method)
    oracle, b = noise_adaptation.train(
        run.start[0],
        run.x,
        run.y,
        stages_of(run),
        3,
        form=method.form,
        hard=method.count == "hard",
        beta=method.beta,
        **OPTIM,
    )
    torch.testing.assert_close(method.bias.detach(), b, rtol=1e-4, atol=1e-5)
    assert_same(run.trajectory, oracle, rtol=2e-5, names=("weights",))


@pytest.mark.parametrize("objective", ["reweight", "forward"])
def test_t_revision_follows_its_oracle(objective):
    settings = {"objective": objective, "revision_lr": 0.5, "slack_lr": 2.0, "percentile": 90.0}
    method = METHODS["t_revision"](estimate=0.3, revision=0.4, **settings)
    run = watch(method)
    stages = stages_of(run)
    assert [len(stage) for stage in stages] == [4 * 4, 4 * 4, 5 * 4]
    oracle, matrix = t_revision.train(run.start[0], run.x, run.y, stages, 3, **settings, **OPTIM)
    assert (method.revised - method.transition).abs().max() > 1e-2  # there is something to compare
    torch.testing.assert_close(method.revised.detach(), matrix, rtol=1e-4, atol=1e-5)
    assert_same(run.trajectory, oracle, rtol=2e-5, names=("weights",))


@pytest.mark.parametrize("lam", [0.0, 0.3])
def test_trace_follows_its_oracle(lam):
    method = METHODS["trace"](lam=lam, warmup=0.0, matrix_lr=5.0)
    run = watch(method)
    oracle, matrix = trace.train(run.start[0], run.x, run.y, run.batches, 3, lam=lam, matrix_lr=5.0, **OPTIM)
    torch.testing.assert_close(method.transition.detach(), matrix, rtol=1e-4, atol=1e-5)
    assert_same(run.trajectory, oracle, rtol=2e-5, names=("weights",))


# What a user can set, and what he is told.


def built(name, num_classes=3, **settings):
    method = METHODS[name](**settings)
    method.build(lambda k=0: TinyNet(num_classes), 20, num_classes)
    return method


@pytest.mark.parametrize("suffix", ["csv", "npy", "json"])
@pytest.mark.parametrize("name", ["forward", "backward"])
def test_a_given_matrix_is_used_from_the_first_epoch(tmp_path, name, suffix):
    path = tmp_path / f"T.{suffix}"
    if suffix == "npy":
        np.save(path, TILTED)
    else:
        path.write_text(json.dumps(TILTED) if suffix == "json" else "\n".join(",".join(map(str, r)) for r in TILTED))
    config = resolve({"method.name": name, "method.matrix": str(path)})
    assert f'matrix = "{path}"' in config.toml()
    method = config.make_method()
    assert [stage.epochs for stage in method.plan(5)] == [5]
    train(tiny_job(method))
    torch.testing.assert_close(method.transition, torch.tensor(TILTED))


def test_a_matrix_that_does_not_fit_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"transition matrix .*missing.csv does not exist"):
        METHODS["forward"](matrix=str(tmp_path / "missing.csv"))
    with pytest.raises(ValueError, match=r"T\.csv is for 3 classes, the data have 4"):
        built("forward", num_classes=4, matrix=matrix_file(tmp_path, TILTED))
    flat = matrix_file(tmp_path, np.full((3, 3), 1 / 3), "flat.csv")
    with pytest.raises(ValueError, match=r"flat\.csv can hardly be inverted: use method forward"):
        built("backward", matrix=flat)
    built("forward", matrix=flat)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("forward", {"estimate": -1}, "estimate must lie in"),
        ("forward", {"percentile": 101}, "percentile must lie in"),
        ("backward", {"clip": 0.5}, "clip must lie in"),
        ("noise_adaptation", {"form": "other"}, "form must be one of simple, complex"),
        ("noise_adaptation", {"beta": 1.0}, "beta must lie in"),
        ("t_revision", {"objective": "other"}, "objective must be one of reweight, forward"),
        ("trace", {"lam": math.nan}, "lam must lie in"),
    ],
)
def test_hyperparameters_out_of_range_are_refused(name, settings, message):
    with pytest.raises(ValueError, match=message):
        METHODS[name](**settings)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("noise_adaptation", {"bias", "weight"}), ("trace", {"weight"}), ("t_revision", {"slack"})],
)
def test_a_learned_matrix_is_not_decayed_towards_uniform_rows(name, parameters):
    method = built(name, **({"form": "complex"} if name == "noise_adaptation" else {}))
    own = {key: value for key, value in method.named_parameters() if not key.startswith("nets.")}
    assert own.keys() == parameters
    assert all(scales(method)[value][1] == 0.0 for value in own.values())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("forward", {"estimate": 100.0}),
        ("forward", {"estimate": 0.0}),
        ("backward", {"clip": 0.0}),
        ("noise_adaptation", {"form": "complex"}),
        ("noise_adaptation", {"form": "complex", "pretrain": 0.0}),
        ("noise_adaptation", {"pretrain": 0.0, "beta": 0.5}),
        ("noise_adaptation", {"count": "soft", "pretrain": 50.0}),
        ("t_revision", {"objective": "forward"}),
        ("t_revision", {"estimate": 0.0, "revision": 0.0}),
        ("t_revision", {"estimate": 10.0, "revision": 10.0}),
        ("trace", {"lam": 1.0, "matrix_lr": 100.0}),
    ],
)
def test_every_switch_trains(name, settings):
    job = tiny_job(METHODS[name](**settings), data=tiny_data(20), epochs=4)
    records = train(job).records
    assert len(records) == 4
    assert all(math.isfinite(record["loss"]) for record in records)
    assert all(value.isfinite().all() for value in job.method.state_dict().values())


@pytest.mark.parametrize("weights", [(10.0, 0.0, 0.0), (0.0, 0.0, 10.0), (0.0, 0.0, 0.0), (0.1, 0.2, 0.0)])
def test_stages_of_weight_zero_get_an_epoch_each(weights):
    parts = shares(10, *weights)
    assert sum(parts) == 10
    assert all(part == 1 if weight == 0 else part >= 1 for part, weight in zip(parts[:-1], weights[:-1], strict=True))
    assert [stage.epochs for stage in METHODS["t_revision"](estimate=1.0, revision=0.0).plan(10)] == [8, 1, 1]


def test_t_is_revised_at_a_constant_rate_whatever_the_schedule_of_the_run():
    method = METHODS["t_revision"](estimate=3.0, revision=3.0, revision_lr=0.01)
    rates = [record["lr"] for record in train(tiny_job(method, epochs=9)).records]
    assert rates == pytest.approx([0.1, 0.0775, 0.0325] * 2 + [0.001] * 3)


@pytest.mark.parametrize(("name", "lr"), [("forward", 0.1), ("backward", 0.1), ("sl", 0.01)])
def test_the_authors_rates_drop_after_the_41st_epoch_and_the_81st(name, lr):
    """Their Keras code says epoch > 40 and epoch > 80, and counts from 0."""
    config = resolve({"method.name": name, **METHODS[name].authors})
    rate = [config.make_schedule()(Clock(0, epoch=epoch, epochs=120), config.optim.lr) for epoch in range(120)]
    assert rate == pytest.approx([lr] * 41 + [lr / 10] * 40 + [lr / 100] * 39)


@pytest.mark.parametrize("name", ["forward", "backward", "noise_adaptation", "t_revision", "trace"])
def test_predictions_are_p_and_not_what_the_matrix_makes_of_it(name):
    job = tiny_job(METHODS[name]())
    train(job)
    x = torch.randn(5, FEATURES)
    method = job.method.eval()
    torch.testing.assert_close(method.predict(x), method.nets[0](x).softmax(dim=1))


# Digits with 40 % of the labels replaced by any class: the true T is .64 on the diagonal and .04 beside it.

TRUE = 0.6 * torch.eye(10) + 0.04
# Sum of absolute errors of a row, on average: the identity is off by .72, a uniform matrix by 1.08, and the frequencies
# of the 1,293 labels themselves by .16. Half of what believing every label costs is the most that is allowed.
BOUND = 0.36


def error(matrix):
    return (matrix.detach() - TRUE).abs().sum().item() / 10


def test_the_bound_lies_between_the_frequencies_of_the_labels_and_no_knowledge():
    observed = transition(digits().train.y_true, digits().train.y, 10)
    assert error(torch.from_numpy(observed).float()) < 0.5 * BOUND < BOUND < 0.51 * error(torch.eye(10))


def test_anchors_give_the_transition_matrix_of_digits():
    method = METHODS["forward"](estimate=8.0)
    teach(method, 9)
    assert error(method.transition) < BOUND


def test_revision_brings_the_transition_matrix_nearer_and_the_network_does_not_memorise():
    method = METHODS["t_revision"](estimate=8.0, revision=4.0)
    last = teach(method, 15)[-1]
    assert error(method.revised) < error(method.transition) < BOUND
    assert last["test_accuracy"] > 0.9
    assert last["wrong_memorized"] < 0.1


def test_the_trace_penalty_drives_the_noise_from_the_network_into_the_matrix():
    method, free = METHODS["trace"](lam=0.06, warmup=2.0), METHODS["trace"](lam=0.0, warmup=2.0)
    last = teach(method, 12)[-1]
    assert error(method.transition) < BOUND
    assert last["test_accuracy"] > 0.9
    teach(free, 6)
    assert error(free.transition) > BOUND
