"""ELRLoss, the module for a loop of one's own: all that its documentation promises."""

import copy
import io

import pytest
import torch
from reference.tiny import FEATURES, blobs
from torch import nn
from torch.nn.functional import one_hot
from torch.utils.data import DataLoader, TensorDataset

from elr.data import WithIndex
from elr.losses import ELRLoss, cross_entropy, elr_penalty
from elr.losses.elr import floored

N, C, B = 12, 4, 5


def batch(g, rows=B, dtype=torch.float32):
    z = torch.randn(rows, C, generator=g, dtype=dtype, requires_grad=True)
    return z, torch.randint(C, (rows,), generator=g), torch.randperm(N, generator=g)[:rows]


def visited(g, **settings):
    """A criterion whose targets are not zero any more."""
    criterion = ELRLoss(N, C, **settings)
    for _ in range(3):
        criterion(3 * torch.randn(N, C, generator=g), torch.zeros(N, dtype=torch.int64), torch.arange(N))
    return criterion


def expected_terms(criterion, before, z, y, index):
    """Cross entropy and penalty of each row with the target after this visit."""
    p = floored(z.detach().softmax(dim=1), criterion.floor)
    t = criterion.beta * before[index] + (1 - criterion.beta) * p
    return t, cross_entropy(z, y), elr_penalty(z, t)


def test_target_is_updated_first_and_the_loss_uses_the_new_one(g):
    criterion = visited(g)
    before = criterion.targets.values.clone()
    z, y, index = batch(g)
    t, ce, penalty = expected_terms(criterion, before, z, y, index)
    loss = criterion(z, y, index)
    torch.testing.assert_close(criterion.targets.values[index], t)
    torch.testing.assert_close(loss, (ce + 3.0 * penalty).mean())
    others = torch.ones(N, dtype=torch.bool).index_fill(0, index, False)
    assert torch.equal(criterion.targets.values[others], before[others])


def test_reductions(g):
    z, y, index = batch(g)
    values = {kind: ELRLoss(N, C, reduction=kind)(z, y, index) for kind in ("none", "sum", "mean")}
    assert values["none"].shape == (B,)
    torch.testing.assert_close(values["sum"], values["none"].sum())
    torch.testing.assert_close(values["mean"], values["none"].mean())
    with pytest.raises(ValueError, match="reduction must be mean, sum or none, got 'average'"):
        ELRLoss(N, C, reduction="average")


def test_probabilities_as_labels_are_the_same_as_ids(g):
    z, y, index = batch(g)
    by_id, by_probability = ELRLoss(N, C), ELRLoss(N, C)
    torch.testing.assert_close(by_id(z, y, index), by_probability(z, one_hot(y, C).float(), index))
    soft = torch.rand(B, C, generator=g).softmax(dim=1)
    criterion = visited(g)
    before = criterion.targets.values.clone()
    _, _, penalty = expected_terms(criterion, before, z, y, index)
    expected = (-(soft * z.log_softmax(dim=1)).sum(dim=1) + 3.0 * penalty).mean()
    torch.testing.assert_close(criterion(z, soft, index), expected)


@pytest.mark.parametrize("ignore_index", [-100, 2])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ignored_rows_add_nothing_and_keep_their_target(g, ignore_index, reduction):
    criterion = visited(g, ignore_index=ignore_index, reduction=reduction)
    twin = copy.deepcopy(criterion.state_dict())
    z, _, index = batch(g)
    y = torch.tensor([0, ignore_index, 1, ignore_index, 3])
    before = criterion.targets.values.clone()
    loss = criterion(z, y, index)
    kept = y != ignore_index
    alone = ELRLoss(N, C, reduction=reduction)
    alone.load_state_dict(twin)
    expected = alone(z[kept], y[kept], index[kept])
    torch.testing.assert_close(loss[kept] if reduction == "none" else loss, expected)
    if reduction == "none":
        assert torch.equal(loss[~kept], torch.zeros(2))
    assert torch.equal(criterion.targets.values[index[~kept]], before[index[~kept]])
    torch.testing.assert_close(criterion.targets.values, alone.targets.values)
    loss.sum().backward()
    assert torch.equal(z.grad[~kept], torch.zeros(2, C))
    assert (z.grad[kept] != 0).all()


def test_last_does_not_count_ignored_rows(g):
    z, _, index = batch(g)
    y = torch.tensor([0, -100, 1, -100, 3])
    criterion = ELRLoss(N, C, ignore_index=-100)
    loss = criterion(z, y, index)
    torch.testing.assert_close(criterion.last.ce + 3.0 * criterion.last.penalty, loss.detach())


def test_last_holds_cross_entropy_penalty_and_agreement(g):
    criterion = visited(g)
    before = criterion.targets.values.clone()
    z, y, index = batch(g)
    t, ce, penalty = expected_terms(criterion, before, z, y, index)
    loss = criterion(z, y, index)
    last = criterion.last
    torch.testing.assert_close(last.ce, ce.mean().detach())
    torch.testing.assert_close(last.penalty, penalty.mean().detach())
    torch.testing.assert_close(last.agreement, (z.detach().softmax(dim=1) * t).sum(dim=1).mean())
    torch.testing.assert_close(last.ce + 3.0 * last.penalty, loss.detach())
    assert not any(term.requires_grad for term in last)


def test_loss_may_be_negative():
    criterion = ELRLoss(1, 2)
    sure = torch.tensor([[8.0, 0.0]])
    losses = [criterion(sure, torch.tensor([0]), torch.tensor([0])).item() for _ in range(10)]
    assert losses[-1] < 0 < criterion.last.agreement


def test_state_dict_carries_the_targets_through_a_file(g):
    criterion = visited(g)
    assert len(criterion.state_dict()) == 1
    file = io.BytesIO()
    torch.save(criterion.state_dict(), file)
    file.seek(0)
    other = ELRLoss(N, C)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other.targets.values, criterion.targets.values)
    assert other.targets.values.abs().sum() > 0
    z, y, index = batch(g)
    assert torch.equal(other(z, y, index), criterion(z, y, index))
    assert torch.equal(other.targets.values, criterion.targets.values)
    with pytest.raises(ValueError, match="shape"):
        ELRLoss(N + 1, C).load_state_dict(criterion.state_dict())


def test_targets_are_no_parameters():
    assert list(ELRLoss(N, C).parameters()) == []


def test_eval_freezes_the_targets_and_train_thaws_them(g):
    criterion = visited(g)
    before = criterion.targets.values.clone()
    z, y, index = batch(g)
    frozen = criterion.eval()(z, y, index)
    assert torch.equal(criterion.targets.values, before)
    expected = cross_entropy(z, y) + 3.0 * elr_penalty(z, before[index])
    torch.testing.assert_close(frozen, expected.mean())
    criterion.train()(z, y, index)
    assert not torch.equal(criterion.targets.values, before)


def test_update_false_leaves_the_targets_and_gives_the_loss_of_the_same_step(g):
    criterion = visited(g)
    z, y, index = batch(g)
    first = criterion(z, y, index)
    after = criterion.targets.values.clone()
    again = criterion(z, y, index, update=False)
    assert torch.equal(criterion.targets.values, after)
    assert torch.equal(first, again)


def test_an_example_twice_in_a_batch_is_updated_once_with_the_mean_whatever_the_order(g):
    p = torch.randn(5, C, generator=g).softmax(dim=1)
    z, index, y = p.log(), torch.tensor([3, 7, 3, 3, 1]), torch.zeros(5, dtype=torch.int64)
    start = visited(g).state_dict()
    tables = []
    for order in ([0, 1, 2, 3, 4], [3, 4, 2, 1, 0], [2, 0, 3, 4, 1]):
        criterion = ELRLoss(N, C)
        criterion.load_state_dict(start)
        before = criterion.targets.values.clone()
        criterion(z[order], y, index[order])
        tables.append(criterion.targets.values)
        torch.testing.assert_close(tables[-1][3], 0.7 * before[3] + 0.3 * p[[0, 2, 3]].mean(dim=0))
        torch.testing.assert_close(tables[-1][7], 0.7 * before[7] + 0.3 * p[1])
    for table in tables[1:]:
        torch.testing.assert_close(table, tables[0], rtol=0, atol=1.2e-7)  # sums of three in another order
    repeated = ELRLoss(N, C)
    repeated.load_state_dict(start)
    repeated(z, y, index)
    assert torch.equal(repeated.targets.values, tables[0])


def test_a_batch_of_one_example_repeated_keeps_the_target_a_probability():
    for repeats in range(1, 40):
        criterion = ELRLoss(1, 2, beta=0.0, reduction="none")
        z = torch.tensor([[200.0, -200.0]]).repeat(repeats, 1).requires_grad_()
        loss = criterion(z, torch.zeros(repeats, dtype=torch.int64), torch.zeros(repeats, dtype=torch.int64))
        loss.sum().backward()
        assert criterion.targets.values.max() <= 1.0
        assert z.grad.isfinite().all()


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_nan_row_leaves_its_target_alone_and_only_that_one(g, poison):
    criterion = visited(g, reduction="none")
    before = criterion.targets.values.clone()
    z, y, index = batch(g)
    with torch.no_grad():
        z[2, 1] = poison
    loss = criterion(z, y, index)
    after = criterion.targets.values
    assert torch.equal(after[index[2]], before[index[2]])
    good = torch.tensor([0, 1, 3, 4])
    t, ce, penalty = expected_terms(criterion, before, z[good], y[good], index[good])
    torch.testing.assert_close(after[index[good]], t)
    torch.testing.assert_close(loss[good], ce + 3.0 * penalty)
    assert not loss[2].isfinite()


def test_probabilities_are_normalised_targets_and_uniform_where_never_visited(g):
    criterion = ELRLoss(N, C)
    z, y, index = batch(g)
    criterion(z, y, index)
    probabilities = criterion.probabilities()
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(N))
    torch.testing.assert_close(probabilities[index], floored(z.detach().softmax(dim=1), 1e-4))
    others = torch.ones(N, dtype=torch.bool).index_fill(0, index, False)
    torch.testing.assert_close(probabilities[others], torch.full((N - B, C), 1 / C))
    assert torch.equal(criterion.targets.values[others], torch.zeros(N - B, C))


@pytest.mark.parametrize(
    ("index", "error", "words"),
    [
        (None, TypeError, "WithIndex"),
        (torch.tensor([0, 1, 2, 3, N]), IndexError, f"index {N} is outside the {N} rows"),
        (torch.tensor([0, -1, 2, 3, 4]), IndexError, "index -1 is outside"),
        (torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0]), IndexError, "1-D integer tensor.*float32"),
        (torch.arange(5)[:, None], IndexError, r"1-D integer tensor.*\(5, 1\)"),
        (torch.ones(5, dtype=torch.bool), IndexError, "1-D integer tensor.*bool"),
        (torch.arange(4), ValueError, "5 logits, 5 labels, 4 indices"),
    ],
    ids=["missing", "too large", "negative", "float", "2-D", "bool", "too few"],
)
def test_a_wrong_index_is_a_clear_error_and_changes_nothing(g, index, error, words):
    criterion = visited(g)
    before = criterion.targets.values.clone()
    z, y, _ = batch(g)
    for mode in (True, False):
        with pytest.raises(error, match=words):
            criterion.train(mode)(z, y, index)
    assert torch.equal(criterion.targets.values, before)
    z, y, index = batch(g)
    twin = copy.deepcopy(criterion.state_dict())
    fresh = ELRLoss(N, C).eval()
    fresh.load_state_dict(twin)
    assert torch.equal(criterion(z, y, index), fresh(z, y, index))  # and the next batch is computed as ever


def test_an_int32_index_is_as_good_as_int64(g):
    z, y, index = batch(g)
    assert torch.equal(ELRLoss(N, C)(z, y, index.int()), ELRLoss(N, C)(z, y, index))


@pytest.mark.parametrize(
    ("shape", "labels"),
    [
        ((B, C + 1), torch.zeros(B, dtype=torch.int64)),
        ((B, C, 1), torch.zeros(B, dtype=torch.int64)),
        ((B,), torch.zeros(B, dtype=torch.int64)),
        ((B, C), torch.zeros(B - 1, dtype=torch.int64)),
        ((B, C), torch.zeros(B, 1, dtype=torch.int64)),  # would broadcast, and train on nonsense
        ((B, C), torch.zeros(B, C + 1)),
        ((B, C), torch.zeros(B, C, 1)),
        ((B, C), torch.zeros(B)),  # ids as floats
    ],
    ids=[
        "too many classes",
        "3-D logits",
        "1-D logits",
        "labels short",
        "(B, 1)",
        "(B, C+1)",
        "3-D labels",
        "float ids",
    ],
)
def test_wrong_shapes_are_refused_with_the_name_of_the_culprit(g, shape, labels):
    criterion = visited(g)
    before = criterion.targets.values.clone()
    with pytest.raises(ValueError, match=r"logits|labels"):
        criterion(torch.randn(shape, generator=g), labels, torch.arange(B))
    assert torch.equal(criterion.targets.values, before)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"beta": 1.0}, "beta"),
        ({"beta": -0.1}, "beta"),
        ({"beta": float("nan")}, "beta"),
        ({"lam": -1.0}, "lam"),
        ({"lam": float("inf")}, "lam"),
        ({"lam": float("nan")}, "lam"),
        ({"floor": 0.25}, "floor"),
        ({"floor": -1e-4}, "floor"),
    ],
    ids=str,
)
def test_hyperparameters_outside_their_range_are_refused(settings, words):
    with pytest.raises(ValueError, match=f"^{words} must"):
        ELRLoss(N, C, **settings)


def test_half_precision_modules_keep_float32_targets(g):
    for criterion in (visited(g).to(dtype=torch.half), visited(g).half(), visited(g).bfloat16(), visited(g).double()):
        assert criterion.targets.values.dtype == torch.float32
        assert criterion.targets.values.abs().sum() > 0
        z, y, index = batch(g)
        assert criterion(z.half(), y, index).dtype == torch.float32


def test_half_precision_logits_give_the_loss_of_float32_ones(g):
    z, y, index = batch(g)
    low = z.detach().bfloat16().requires_grad_()
    same = low.detach().float()
    assert torch.equal(ELRLoss(N, C)(low, y, index), ELRLoss(N, C)(same, y, index))
    ELRLoss(N, C)(low, y, index).backward()
    assert low.grad.dtype == torch.bfloat16


def test_saturated_predictions_stay_finite_for_ever():
    """1 - 1e-4 is 1 in bfloat16; and the pull of the penalty ends because targets stop short of 1."""
    criterion = ELRLoss(2, 3)
    for k in range(200):
        z = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 0.0, 1e4]], dtype=torch.bfloat16, requires_grad=True)
        loss = criterion(z, torch.tensor([0, 0]), torch.tensor([0, 1]))
        loss.backward()
        assert loss.isfinite(), k
        assert z.grad.isfinite().all(), k
    assert 0.999 < criterion.targets.values.max() < 1.0


def test_logits_without_a_gradient_update_the_targets(g):
    criterion = ELRLoss(N, C)
    z, y, index = batch(g)
    with torch.no_grad():
        loss = criterion(z, y, index)
    assert not loss.requires_grad
    assert criterion.targets.values[index].sum() > 0
    assert not criterion(z.detach(), y, index).requires_grad


def test_targets_never_hold_a_graph(g):
    criterion = ELRLoss(N, C)
    z, y, index = batch(g)
    criterion(z, y, index).backward()
    criterion(z, y, index).backward()
    assert not criterion.targets.values.requires_grad


def test_a_deep_copy_has_targets_of_its_own_before_and_after_a_step(g):
    criterion = visited(g)
    z, y, index = batch(g)
    twin = copy.deepcopy(criterion)
    criterion(z, y, index)
    assert not torch.equal(twin.targets.values, criterion.targets.values)
    again = copy.deepcopy(criterion)  # models and their criteria are copied in the middle of training
    assert torch.equal(again.targets.values, criterion.targets.values)


def test_last_before_any_batch_says_so():
    with pytest.raises(RuntimeError, match="no last batch yet"):
        _ = ELRLoss(N, C).last


def test_inference_mode_before_training_does_not_spoil_the_targets(g):
    criterion = ELRLoss(N, C)
    z, y, index = batch(g)
    with torch.inference_mode():
        criterion.eval()(z.detach(), y, index)
    criterion.train()(z, y, index).backward()
    assert z.grad.isfinite().all()


def test_ten_lines_of_ones_own_learn_and_do_not_memorise():
    torch.manual_seed(0)
    x, y, y_true = (torch.from_numpy(a) for a in blobs(300, 3, wrong=0.4))
    train = WithIndex(TensorDataset(x, y))
    criterion = ELRLoss(len(train), num_classes=3, lam=3.0, beta=0.7)
    model = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(40):
        for inputs, labels, index in DataLoader(train, batch_size=50, shuffle=True):
            loss = criterion(model(inputs), labels, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    predicted = model(x).argmax(dim=1)
    assert (y != y_true).float().mean() > 0.2
    assert (predicted == y_true).float().mean() > 0.9
    assert (criterion.probabilities().argmax(dim=1) == y_true).float().mean() > 0.9
