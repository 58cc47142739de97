"""The parts of the theory lab: data, dynamics, counts, and the command."""

import csv
import itertools
import json
import math

import numpy as np
import pytest
import torch

import elr
from elr.cli import main
from elr.theory.check import CLAIMS
from elr.theory.dynamics import coefficients, descend_to_t, project, train, weighted_mean
from elr.theory.limit import start_rows
from elr.theory.mixture import draw_mixture, draw_start
from elr.theory.plan import sizes_from
from elr.theory.separable import cover_share, crossing, exact_threshold, is_separable, sharp_bound, tail_bound

SEEDS = (3, 4)


# Data


def test_examples_are_truth_times_v_minus_sigma_z():
    data = draw_mixture(400, 30, 0.3, 0.4, SEEDS)
    z = data.z()
    assert abs(float(z.mean())) < 0.02
    assert abs(float(z.std()) - 1.0) < 0.02
    torch.testing.assert_close(data.v.norm(dim=1), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(data.truth[:, :, None] * (data.v[:, None] - 0.3 * z), data.x)


def test_a_seed_draws_the_same_clouds_for_every_sigma_and_delta_and_whatever_its_neighbours():
    one, other = draw_mixture(20, 5, 0.3, 0.4, [3]), draw_mixture(20, 5, 0.6, 0.1, [7, 3])
    torch.testing.assert_close(one.z()[0], other.z()[1])
    assert torch.equal(one.truth[0], other.truth[1])


def test_replacing_wrongs_half_of_what_flipping_does():
    replaced, flipped = (draw_mixture(5000, 2, 0.1, 0.4, SEEDS, reading=r) for r in ("replaced", "flipped"))
    assert flipped.wrong.sum(dim=1).tolist() == [2000, 2000]
    assert abs(float(replaced.wrong.double().mean()) - 0.2) < 0.015


def test_starts_lie_on_the_sphere_of_radius_two():
    torch.testing.assert_close(draw_start(50, SEEDS).norm(dim=1), torch.full((2,), 2.0, dtype=torch.float64))


# Dynamics


def test_descent_on_theta_rows_is_descent_on_theta_at_twice_the_step():
    data, start = draw_mixture(60, 30, 0.2, 0.4, SEEDS), draw_start(30, SEEDS)
    rows = descend_to_t(data, start, 0.02, "softmax")
    loss = descend_to_t(data, start, 0.04, "loss")
    torch.testing.assert_close(rows.last, loss.last)
    assert torch.equal(rows.time, loss.time)


def test_eq_10_as_printed_is_descent_on_half_the_difference_of_the_rows():
    data, theta = draw_mixture(60, 30, 0.2, 0.4, SEEDS), draw_start(30, SEEDS)
    half = theta / 2
    for _ in range(30):
        half = half - 0.3 * weighted_mean(data, coefficients(data, half, "printed"))
        theta = theta - 2 * 0.3 * weighted_mean(data, coefficients(data, theta, "softmax"))
    torch.testing.assert_close(half, theta / 2)


def test_t_is_the_first_step_that_reaches_a_tenth():
    data, start = draw_mixture(400, 300, 0.05, 0.4, SEEDS), draw_start(300, SEEDS)
    path = descend_to_t(data, start, 0.02, "loss")
    for place, time in enumerate(path.time.tolist()):
        assert path.along[time, place] >= 0.1
        assert (path.along[1:time, place] < 0.1).all()
        assert path.along[time + 1 :, place].isnan().all()


def test_cross_entropy_and_elr_are_what_the_package_trains():
    data, start = draw_mixture(20, 10, 0.5, 0.4, [3]), draw_start(10, [3])
    labels = (data.labels[0] < 0).long()
    for lam in (0.0, 3.0):
        weights = torch.stack([start[0], -start[0]]).div(2).requires_grad_()
        criterion = elr.ELRLoss(20, 2, lam=lam, beta=0.7)
        for _ in range(25):
            loss = criterion(data.x[0] @ weights.T, labels, torch.arange(20))
            (gradient,) = torch.autograd.grad(loss, weights)
            weights = (weights - 0.5 * gradient).detach().requires_grad_()
        p = (data.x[0] @ weights.T).softmax(dim=1).detach()
        y = torch.nn.functional.one_hot(labels, 2)
        pull = (p - y)[torch.arange(20), (data.truth[0] < 0).long()]
        fit = train(data, start, 0.5, [25], lam=lam)
        assert float(fit.clean_pull[0, 0]) == pytest.approx(float(pull[~data.wrong[0]].mean()), abs=1e-5)
        assert float(fit.wrong_pull[0, 0]) == pytest.approx(float(pull[data.wrong[0]].mean()), abs=1e-5)


def test_accuracy_on_new_examples_is_phi():
    data, theta = draw_mixture(20_000, 10, 0.7, 0.4, [3]), draw_start(10, [3])
    fit = train(data, theta, 0.1, [0])
    counted = float((project(data, theta).sign() == data.truth).double().mean())
    assert float(fit.fresh_right[0, 0]) == pytest.approx(counted, abs=0.015)


def test_the_law_of_the_start_needs_no_vectors():
    drawn = [float(torch.special.ndtr((s * v).sum() / (2 * 0.2))) for s, v in _starts(300, 25)]
    rows = start_rows(10**6, 25, 0.2, 0.4, 4000)
    assert np.std([row["accuracy_0"] for row in rows]) == pytest.approx(np.std(drawn), rel=0.12)
    assert np.mean([row["accuracy_0"] for row in rows]) == pytest.approx(0.5, abs=0.02)


def _starts(count, p):
    v = torch.nn.functional.one_hot(torch.tensor(0), p).double()
    return ((start, v) for start in draw_start(p, range(count)))


# Separability


def test_the_linear_programme_counts_what_schlaefli_counts():
    x = np.random.default_rng(0).standard_normal((6, 3))
    found = sum(is_separable(x, np.array(signs)) for signs in itertools.product((-1.0, 1.0), repeat=6))
    assert found == 2 * sum(math.comb(5, k) for k in range(3))
    assert found / 2**6 == pytest.approx(cover_share(6, 3))


def test_contradicting_labels_are_not_separable():
    x = np.array([[1.0, 2.0], [1.0, 2.0]])
    assert is_separable(x, np.array([1.0, 1.0]))
    assert not is_separable(x, np.array([1.0, -1.0]))


@pytest.mark.parametrize("p", [7, 10, 13])
def test_the_sharp_bound_is_the_value_of_the_papers_programme(p):
    n, q = 14, 0.2
    left, value = 2 * sum(math.comb(n - 1, k) for k in range(n - p)), 0.0
    for k in range(n + 1):  # the programme is a knapsack: fill the likeliest subsets first
        taken = min(left, math.comb(n, k))
        value, left = value + taken * q**k * (1 - q) ** (n - k), left - taken
    assert sharp_bound(n, p, 2 * q) == pytest.approx(value)
    assert value <= tail_bound(n, p, 2 * q)


def test_the_exact_threshold_is_covers_one_half_for_pure_noise_and_falls_with_the_noise():
    limits = [exact_threshold(delta, 0.1) for delta in (1.0, 0.5, 0.4, 0.2, 0.01)]
    assert limits[0] == pytest.approx(0.5, abs=1e-6)
    assert limits == sorted(limits, reverse=True)
    assert limits[2] == pytest.approx(0.376, abs=0.002)
    assert all(limit < 1 - delta / 2 for limit, delta in zip(limits[1:], (0.5, 0.4, 0.2, 0.01), strict=True))


def test_a_crossing_is_where_the_curve_first_passes_the_level():
    assert crossing([0.1, 0.2, 0.3], [0.0, 0.4, 0.8]) == pytest.approx(0.225)
    assert crossing([0.1, 0.2], [0.0, 0.4]) is None


# The command


def test_the_command_writes_table_numbers_and_figures(tmp_path, capsys):
    asked = "noise_share,correlation,clean_shrinks,gradient"
    words = ["theory", "--quick", "--p", "300,100", "--sigma", "0.1,0.3", "--seeds", "2", "--claims", asked]
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    shown = capsys.readouterr()
    assert "correlation" in shown.out
    assert "early stage" in shown.err
    found = json.loads((tmp_path / "a" / "theory.json").read_text())
    assert [row["name"] for row in found["claims"]] == asked.split(",")
    assert found["plan"]["sizes"] == [[333, 300], [111, 100]]
    assert str(tmp_path) not in json.dumps(found)
    rows = list(csv.DictReader((tmp_path / "a" / "early.csv").read_text(encoding="utf-8").splitlines()))
    assert {row["form"] for row in rows} == {"loss", "softmax", "printed"}
    assert main([*words, "--quiet", "--out", str(tmp_path / "b")]) == 0
    assert capsys.readouterr().err == ""
    for name in ("early.csv", "time.png", "convergence.svg", "accuracy.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_far_start_under_much_noise_is_waited_for():
    data = draw_mixture(111, 100, 0.1, 0.8, range(12))
    path = descend_to_t(data, draw_start(100, range(12)), 0.05, "loss")
    assert (path.time > 0).all()
    assert path.time.max() > 3 / 0.05  # more than a start near 0 needs


def test_sizes_are_pairs_whatever_is_repeated_in_either_list():
    assert sizes_from((100, 200, 200), (90, 90, 180)) == ((100, 90), (200, 90), (200, 180))
    assert sizes_from((100, 100, 200), (50, 60, 70)) == ((100, 50), (100, 60), (200, 70))
    assert sizes_from((), (90, 90)) == ((100, 90),)


@pytest.mark.parametrize("delta", ["1", "0.01"])
def test_extreme_noise_is_judged_and_drawn(delta, tmp_path, capsys):
    asked = "time,time_growth,end_accuracy,clean_shrinks,supremum_proof,separable,tail,threshold"
    words = ["--quick", "--delta", delta, "--p", "60", "--seeds", "2", "--claims", asked, "--quiet"]
    assert main(["theory", *words, "--out", str(tmp_path)]) == 0
    assert (tmp_path / "separability.png").exists()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--claims", "correlations"], "correlation"),
        (["--claims", ","], "--claims is empty"),
        (["--eta", "1.5"], "eta must lie between 0 and 1, got 1.5"),
        (["--noise", "0"], "delta must lie between"),
        (["--sigma", "wide"], "--sigma"),
        (["--seeds", "1"], "at least 2 seeds"),
        (["--n", "10,20", "--p", "5,6,7"], "--n has 2 values and --p has 3"),
        (["--p", "90000"], "GB"),
        (["--sgima", "1"], "--sigma"),
        (["--p", "1"], "2 dimensions"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, said, capsys, tmp_path):
    assert main(["theory", "--out", str(tmp_path / "new"), *words]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.err.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_sizes_follow_each_other_at_nine_tenths():
    assert sizes_from((), (900,)) == ((1000, 900),)
    assert sizes_from((1000,), ()) == ((1000, 900),)
    assert sizes_from((100, 200), (50,)) == ((100, 50), (200, 50))


def test_the_committed_results_hold_every_claim():
    from pathlib import Path

    path = Path(__file__).parents[2] / "results" / "theory" / "theory.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    assert [row["name"] for row in found["claims"]] == list(CLAIMS)
    assert {row["verdict"] for row in found["claims"]} <= {"holds", "holds corrected"}
