"""What the engine keeps of every example: against a naive account of the same visits."""

from itertools import groupby

import numpy as np
import pytest
import torch
from reference.tiny import Stop

import elr
from elr.engine.evaluate import EvaluateConfig
from elr.engine.witness import BYTES, FALL, MOST, Trace, Witness, normalised

N, C = 40, 5


def naive(labels, visits):
    """Row by row and visit by visit, as one would tell it."""
    start = {"first": 0, "last": 0, "learnt": 0, "forgotten": 0, "was": False, "loss": None, "met": 0}
    rows = [{"margins": [], **start} for _ in labels]
    for index, logits, epoch in visits:
        for i, z in zip(index.tolist(), logits.double().tolist(), strict=True):
            row, y = rows[i], int(labels[i])
            margin = z[y] - max(value for k, value in enumerate(z) if k != y)
            row["margins"].append(max(-MOST, min(MOST, margin)))
            if row["met"] == epoch:  # by another network, say
                continue
            row["met"] = epoch
            agrees = margin > 0
            row["first"] = row["first"] or (epoch if agrees else 0)
            row["last"] = epoch if agrees else row["last"]
            row["learnt"] += agrees and not row["was"]
            row["forgotten"] += row["was"] and not agrees
            row["was"] = agrees
            row["loss"] = float(np.logaddexp.reduce(z) - z[y])
    return rows


@pytest.fixture(params=[1, 2], ids=["one network", "two networks"])
def visits(request):
    """(labels, [(rows, logits, epoch)]); two networks see every row twice an epoch."""
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(C, (N,), generator=g)
    found = []
    for epoch in range(1, 13):
        for index in (part for _ in range(request.param) for part in torch.randperm(N, generator=g).split(16)):
            scale = 40.0 if epoch == 5 else 2.0
            found.append((index, scale * torch.randn(len(index), C, generator=g), epoch))
    return labels, found


def tell(trace, found):
    for epoch, visits in groupby(found, key=lambda visit: visit[2]):
        for index, logits, _ in visits:
            trace.see(index, logits, epoch)
        trace.end_epoch()


def test_a_trace_is_what_a_naive_account_gives(visits):
    labels, found = visits
    trace = Trace(labels)
    tell(trace, found)
    seen, rows = trace.seen(), naive(labels, found)
    np.testing.assert_allclose(seen.margin, [np.mean(row["margins"]) for row in rows], atol=1e-5)
    assert seen.visits.tolist() == [len(row["margins"]) for row in rows]
    for name in ("first", "last", "learnt", "forgotten"):
        assert getattr(seen, name).tolist() == [row[name] for row in rows], name
    assert max(seen.learnt) > 1  # the account has something to tell
    assert np.isnan(seen.peak_loss).all()


def test_the_peak_keeps_the_losses_of_its_epoch(visits):
    labels, found = visits
    trace = Trace(labels)
    until = [visit for visit in found if visit[2] <= 7]
    tell(trace, until)
    trace.mark_peak()
    tell(trace, found[len(until) :])
    expected = [row["loss"] for row in naive(labels, until)]
    np.testing.assert_allclose(trace.seen().peak_loss, expected, rtol=2e-3)


def test_margins_count_by_how_well_the_network_did_before(visits):
    """Weights of epochs are exp((accuracy after the one before - best) / FALL), whatever the order they come in."""
    labels, found = visits
    witness = Witness(labels, labels[:7].clone(), C, averages=False, every=5)
    accuracies = np.array([0.4, 0.42, 0.41, 0.47, 0.46, 0.46, 0.45, 0.44, 0.47, 0.43, 0.4, 0.4])
    before = np.array([1 / C, *accuracies[:-1]])
    weights = np.exp((before - accuracies.max()) / FALL)
    margins = np.zeros((12, N))
    for epoch in range(1, 13):
        for index, logits, when in found:
            if when == epoch:
                witness.step(index, logits, epoch)
                own = logits.gather(1, labels[index, None])
                others = logits.scatter(1, labels[index, None], -torch.inf).amax(dim=1, keepdim=True)
                margins[epoch - 1, index] = (own - others).clamp(-MOST, MOST)[:, 0]
        witness.take_in(epoch)
        witness.close(peak=False, accuracy=float(accuracies[epoch - 1]))
    expected = (weights[:, None] * margins).sum(axis=0) / weights.sum()
    np.testing.assert_allclose(witness.train.seen().margin, expected, atol=1e-4)


def test_a_network_that_begins_anew_is_not_trusted_for_what_the_last_one_knew():
    witness = Witness(torch.zeros(1, dtype=torch.int64), None, 2, averages=False, every=5)
    seen = [(5.0, 0.5), (3.0, 0.9), (-9.0, None)]  # margin of an epoch, and accuracy after it
    for epoch, (margin, accuracy) in enumerate(seen, 1):
        if accuracy is None:
            witness.begin_anew()
        witness.step(torch.tensor([0]), torch.tensor([[margin, 0.0]]), epoch)
        witness.take_in(epoch)
        witness.close(peak=False, accuracy=accuracy)
    assert witness.train.seen().margin[0] == pytest.approx(
        (5.0 + 3.0 - 9.0) / 3, abs=1e-4
    )  # all three after one in two


def test_a_row_takes_sixteen_bytes(visits):
    assert Trace(visits[0]).bytes.nbytes == 16 * N == BYTES * N


def test_counts_stop_before_they_wrap():
    trace = Trace(torch.zeros(1, dtype=torch.int64))
    for epoch in range(600):
        z = torch.tensor([[1.0, 0.0]]) if epoch % 2 else torch.tensor([[0.0, 1.0]])
        trace.see(torch.tensor([0]), z, epoch + 1)
        trace.end_epoch()
    seen = trace.seen()
    assert seen.learnt[0] == seen.forgotten[0] == 255


def test_logits_without_bound_and_nan_do_no_lasting_harm():
    trace = Trace(torch.zeros(2, dtype=torch.int64))
    trace.see(torch.tensor([0, 1]), torch.tensor([[1e9, 0.0], [torch.nan, 0.0]]), 1)
    assert trace.seen().margin.tolist() == [MOST, 0.0]


def test_belief_of_two_networks_is_their_mean_and_tells_where_they_differ():
    witness = Witness(torch.tensor([0, 1, 1]), torch.tensor([1]), 2, averages=False, every=5)
    witness.held_out(np.array([[0.25, 0.75]], dtype=np.float32), 1)
    belief = torch.tensor([[[0.6, 0.2], [0.1, 0.9], [0.0, 0.0]], [[0.25, 0.75], [0.2, 0.6], [0.0, 0.0]]])
    found = witness.gather(belief)
    np.testing.assert_allclose(found["belief"], [[0.5, 0.5], [0.175, 0.825], [0.5, 0.5], [0.25, 0.75]], atol=1e-6)
    assert found["agree"].tolist() == [False, True, True, True]
    assert found["held"].tolist() == [False, False, False, True]


def test_normalised_rows_sum_to_one_even_where_nothing_was_seen():
    assert torch.equal(normalised(torch.tensor([[1.0, 3.0], [0.0, 0.0]])), torch.tensor([[0.25, 0.75], [0.5, 0.5]]))


@pytest.fixture(scope="module")
def arrays():
    g = np.random.default_rng(0)
    y = g.integers(0, 3, 240)
    x = (np.eye(3)[y] * 3 + g.normal(size=(240, 3))).astype(np.float32)
    y[:24] = (y[:24] + 1) % 3
    return x, y


def fitted(arrays, out, method="elr", **settings):
    return elr.fit("mlp", arrays, method=method, epochs=6, out=out, runtime={"threads": 1}, **settings)


@pytest.mark.parametrize("method", ["ce", "elr", "elr_plus", "mixup", "dividemix"])
def test_every_row_has_evidence(arrays, tmp_path, method):
    run = fitted(arrays, tmp_path / "run", method, evaluate={"evidence_every": 2})
    issues = run.label_issues()
    assert len(issues) == 240
    assert set(issues["source"]) == {"train", "val"}
    assert sorted(map(int, issues["id"])) == list(range(240))
    assert np.isfinite(issues["mean_margin"]).all()
    assert np.isfinite(issues["peak_loss"]).all()
    assert ("networks_agree" in issues.columns) == (method == "elr_plus")


def test_a_method_of_mixed_inputs_is_swept_and_the_cost_is_told(arrays, tmp_path):
    run = fitted(arrays, tmp_path / "run", "mixup", evaluate={"evidence_every": 2})
    assert run.summary["evidence_seconds"] > 0
    assert fitted(arrays, tmp_path / "ce", "ce").summary["evidence_seconds"] == 0


def test_evidence_changes_nothing_in_training(arrays, tmp_path):
    a = fitted(arrays, tmp_path / "a", "elr_plus")
    b = fitted(arrays, tmp_path / "b", "elr_plus", evaluate={"evidence": False})
    assert (a.path / "model.safetensors").read_bytes() == (b.path / "model.safetensors").read_bytes()
    assert a.records == b.records
    with pytest.raises(FileNotFoundError, match="no evidence to audit: it was trained without"):
        b.label_issues()


@pytest.mark.parametrize("method", ["ce", "elr", "mixup"])
def test_resumed_evidence_is_the_same_bit_for_bit(arrays, tmp_path, method):
    whole = fitted(arrays, tmp_path / "whole", method)
    with pytest.raises(KeyboardInterrupt):
        fitted(arrays, tmp_path / "cut", method, progress=Stop(4))
    cut = fitted(arrays, tmp_path / "cut", method, resume=True)
    for name in ("evidence.safetensors", "rows.csv"):
        assert (whole.path / name).read_bytes() == (cut.path / name).read_bytes(), name


def test_a_run_begun_without_evidence_says_so_when_resumed_with(arrays, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fitted(arrays, tmp_path / "run", progress=Stop(2), evaluate={"evidence": False})
    with pytest.warns(UserWarning, match="begun without evidence"):
        run = fitted(arrays, tmp_path / "run", resume=True)
    with pytest.raises(FileNotFoundError, match="no evidence"):
        run.label_issues()


def test_sweeps_must_come_at_least_every_epoch():
    with pytest.raises(ValueError, match="evidence_every must be at least 1"):
        EvaluateConfig(evidence_every=0)
