"""Rows to check, and what they say: unbiased whatever the audit thinks, and intervals that cover what they promise."""

import csv

import numpy as np
import pytest

from elr.audit.review import LEAST, chances, draw, drawn, rate, read_review, review, typed_answers, write_review

DRAWS = 1000


def calibrated(rng, n):
    """Qualities that mean what they say."""
    q = np.where(rng.random(n) < 0.2, rng.beta(1, 4, n), rng.beta(8, 0.6, n)).clip(1e-4, 1 - 1e-4)
    return q, rng.random(n) > q


def reversed_(rng, n):
    """Labels that are trusted are the wrong ones."""
    q = rng.random(n)
    return q, rng.random(n) < q


def unrelated(rng, n):
    """Sure of everything, and knowing nothing."""
    return rng.beta(0.2, 0.2, n).clip(1e-6, 1 - 1e-6), rng.random(n) < 0.25


def too_trusting(rng, n):
    q = np.where(rng.random(n) < 0.3, rng.beta(1, 6, n), rng.beta(8, 1, n))
    return 1 - (1 - q) ** 3, rng.random(n) > q


def sharp(rng, n):
    """So good that a draw holds a surprise or two."""
    q = np.where(rng.random(n) < 0.2, rng.beta(0.3, 30, n), rng.beta(60, 0.3, n)).clip(1e-4, 1 - 1e-4)
    return q, rng.random(n) > q


def hidden(rng, n):
    """Half a percent of wrong labels that nothing hints at."""
    return rng.beta(100, 0.5, n), np.arange(n) < n // 200


def rates(world, count, draws, n=4000):
    rng = np.random.default_rng(3)
    q, wrong = world(rng, n)
    chance = chances(q, count)
    found = []
    for seed in range(draws):
        rows = draw(chance, seed)
        found.append(rate(1 - q, chance, rows, wrong[rows]))
    return wrong.mean(), found


def coverage(truth, found):
    return np.mean([r.low <= truth <= r.high for r in found])


# The draw


@pytest.mark.parametrize("count", [1, 7, 60, 99, 100])
def test_chances_are_as_the_doubt_none_above_one_and_add_up(count):
    q = np.random.default_rng(0).beta(0.3, 0.3, 100)
    chance = chances(q, count)
    assert chance.sum() == pytest.approx(count)
    assert chance.max() <= 1.0
    ratio = (chance / np.sqrt(q * (1 - q) + 0.01))[chance < 1]
    assert np.allclose(ratio, ratio[:1])


@pytest.mark.parametrize("count", [1, 7, 60, 99, 100])
def test_a_draw_has_exactly_as_many_rows_none_twice(count):
    chance = chances(np.random.default_rng(0).beta(0.3, 0.3, 100), count)
    for seed in range(50):
        rows = draw(chance, seed)
        assert len(rows) == count
        assert len(set(rows.tolist())) == count


def test_every_row_is_drawn_as_often_as_its_chance_says():
    chance = chances(np.random.default_rng(1).beta(0.5, 0.5, 40), 15)
    times = np.zeros(40)
    for seed in range(4000):
        times[draw(chance, seed)] += 1
    error = np.sqrt(chance * (1 - chance) / 4000)
    assert np.all(np.abs(times / 4000 - chance) <= 4.5 * error + 1e-12)


def test_the_first_rows_of_a_draw_are_no_different_from_the_last():
    q = np.linspace(0.01, 0.99, 500)
    chance = chances(q, 100)
    first, last = (
        np.mean([q[draw(chance, seed)[part]].mean() for seed in range(300)]) for part in (slice(30), slice(70, 100))
    )
    assert first == pytest.approx(last, abs=0.02)


def test_the_same_seed_draws_the_same_rows_and_another_does_not():
    chance = chances(np.linspace(0.01, 0.99, 500), 100)
    assert draw(chance, 5).tolist() == draw(chance, 5).tolist()
    assert draw(chance, 5).tolist() != draw(chance, 6).tolist()


@pytest.mark.parametrize("count", [0, -1, 11])
def test_a_draw_that_cannot_be_is_refused(count):
    with pytest.raises(ValueError, match=f"{count} rows cannot be drawn of 10"):
        chances(np.full(10, 0.5), count)


# The interval


@pytest.mark.parametrize("world", [reversed_, unrelated])
def test_the_interval_of_200_rows_covers_the_truth_as_often_as_it_says(world):
    truth, found = rates(world, 200, DRAWS)
    assert 0.93 <= coverage(truth, found) <= 0.97
    assert np.mean([r.bound == "normal" for r in found]) > 0.9


def over_sure(rng, n):
    """Unsure of a few rows, which surprise it often; among the many it is sure of, one in two hundred is wrong."""
    unsure = rng.random(n) < 0.02
    return np.where(unsure, 0.55, 0.999), np.where(unsure, rng.random(n) > 0.55, rng.random(n) < 0.005)


@pytest.mark.parametrize(
    ("world", "count"), [(calibrated, 200), (too_trusting, 200), (over_sure, 300), (over_sure, 400)]
)
def test_surprises_where_the_audit_was_unsure_do_not_make_a_normal_interval(world, count):
    truth, found = rates(world, count, DRAWS // 4)
    assert coverage(truth, found) >= 0.93
    assert np.mean([r.bound == "betting" for r in found]) > 0.2


@pytest.mark.parametrize("world", [calibrated, reversed_, unrelated, too_trusting])
def test_the_estimate_is_right_on_average_however_wrong_the_audit_is(world):
    truth, found = rates(world, 200, DRAWS)
    estimates = np.array([r.estimate for r in found])
    assert abs(estimates.mean() - truth) <= 4 * estimates.std() / np.sqrt(DRAWS) + 5e-4  # what clipping may do


@pytest.mark.parametrize("world", [sharp, hidden])
def test_with_few_surprises_the_interval_is_wider_and_still_holds(world):
    truth, found = rates(world, 200, 60)
    assert all(r.bound == "betting" for r in found)
    assert coverage(truth, found) >= 0.95
    assert np.mean([r.high - r.low for r in found]) < 0.08
    assert np.mean([r.estimate for r in found]) == pytest.approx(truth, abs=0.004)


@pytest.mark.parametrize("world", [calibrated, reversed_, sharp, hidden])
def test_with_few_rows_the_interval_holds_too(world):
    truth, found = rates(world, 60, 100)
    assert all(r.bound == "betting" for r in found)
    assert coverage(truth, found) >= 0.95


def test_knowing_helps():
    _, informed = rates(calibrated, 200, 50)
    _, blind = rates(unrelated, 200, 50)
    width = [np.mean([r.high - r.low for r in found]) for found in (informed, blind)]
    assert width[0] < 0.6 * width[1]


def test_no_wrong_label_found_does_not_mean_that_there_is_none():
    q, rows = np.full(2000, 1 - 1e-6), np.arange(200)
    found = rate(1 - q, chances(q, 200), rows, np.zeros(200, dtype=bool))
    assert found.estimate < 1e-3
    assert 3 / 200 <= found.high <= 8 / 200  # no better than the rule of three


def test_checking_every_row_is_counting():
    q = np.linspace(0.1, 0.9, 30)
    wrong = np.arange(30) % 3 == 0
    rows = draw(chances(q, 30), 0)
    found = rate(1 - q, chances(q, 30), rows, wrong[rows])
    assert (found.estimate, found.low, found.high, found.bound) == (1 / 3, 1 / 3, 1 / 3, "counted")


def test_nearly_all_rows_checked_leave_an_interval_of_next_to_nothing():
    q = np.concatenate([np.full(4998, 0.5), np.ones(2)])
    chance = chances(q, 4999)
    rows = draw(chance, 0)
    found = rate(1 - q, chance, rows, np.zeros(len(rows), dtype=bool))
    assert found.low <= 0.0 <= found.high < 0.01


def test_rows_that_are_certain_to_be_drawn_are_counted_and_the_rest_is_estimated():
    q = np.concatenate([np.full(20, 0.5), np.full(980, 1.0)])
    wrong = np.arange(1000) < 10
    chance = chances(q, 60)
    assert (chance[:20] < 1).all()
    chance = chances(q, 300)
    assert (chance[:20] == 1).all()
    for seed in range(20):
        rows = draw(chance, seed)
        found = rate(1 - q, chance, rows, wrong[rows])
        assert found.low <= 0.01 <= found.high
        assert found.estimate == pytest.approx(0.01, abs=1e-9)  # the rest is right, as the audit says


# The file


@pytest.fixture
def audit(made):
    rng = np.random.default_rng(0)
    return made(calibrated(rng, 900)[0])


def fill(path, answer, rows=slice(None)):
    """Answer these rows of a review.csv."""
    with open(path, newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    for row in table[rows]:
        row["is_wrong"] = answer(row)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, table[0])
        writer.writeheader()
        writer.writerows(table)


def answered(audit, path):
    rows, typed = read_review(audit, path)
    return review(audit, rows, typed_answers(typed, path))


def test_a_drawn_file_has_what_a_person_needs_and_comes_back(audit, tmp_path):
    rows = drawn(audit, 200, seed=4)
    write_review(audit, rows, tmp_path / "review.csv")
    with open(tmp_path / "review.csv", newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    # Nothing of what the audit thinks: whoever checks it must not be led by it.
    assert list(table[0]) == ["place", "id", "given_label", "chance", "is_wrong"]
    assert {row["is_wrong"] for row in table} == {""}
    again, typed = read_review(audit, tmp_path / "review.csv")
    assert again.tolist() == rows.tolist()
    assert list(typed) == [row["id"] for row in table]


@pytest.mark.parametrize("column", ["chance", "given_label", "id"])
def test_a_spreadsheet_may_sort_a_draw_but_the_first_rows_of_it_are_to_be_answered(audit, tmp_path, column):
    path = tmp_path / "review.csv"
    rows = drawn(audit, 100)
    write_review(audit, rows, path)
    fill(path, lambda row: "no", slice(80))
    with open(path, newline="", encoding="utf-8") as file:
        table = sorted(csv.DictReader(file), key=lambda row: row[column])
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, table[0])
        writer.writeheader()
        writer.writerows(table)
    assert read_review(audit, path)[0].tolist() == rows.tolist()
    assert answered(audit, path).overall.checked == 80
    fill(path, lambda row: "")
    fill(path, lambda row: "no", slice(80))  # the first as they were sorted
    with pytest.raises(ValueError, match="rows drawn have no answer, and not the last ones"):
        answered(audit, path)


def test_answers_give_the_rate_and_that_of_classes_with_enough_rows(audit, tmp_path):
    path = tmp_path / "review.csv"
    write_review(audit, drawn(audit, 200), path)
    quality = dict(zip(audit["id"], audit["label_quality"], strict=True))
    fill(path, lambda row: "Yes" if quality[row["id"]] < 0.5 else " no ")
    found = answered(audit, path)
    assert found.overall.checked == 200
    assert found.overall.low < (audit["label_quality"] < 0.5).mean() < found.overall.high
    assert set(found.classes) == {"a", "b", "c"}
    assert all(r.checked >= LEAST for r in found.classes.values())
    assert sum(r.checked for r in found.classes.values()) == 200
    assert found.notes == []
    for name, own in found.classes.items():
        assert own.low <= (audit["label_quality"][audit["given_label"] == name] < 0.5).mean() <= own.high


def test_few_rows_of_a_class_give_it_no_interval(audit, tmp_path):
    path = tmp_path / "review.csv"
    write_review(audit, drawn(audit, 60), path)
    fill(path, lambda row: "no")
    assert answered(audit, path).classes == {}


def test_unsure_is_left_out_and_said(audit, tmp_path):
    path = tmp_path / "review.csv"
    write_review(audit, drawn(audit, 100), path)
    fill(path, lambda row: "no")
    fill(path, lambda row: "unsure", slice(10, 15))
    found = answered(audit, path)
    assert (found.overall.checked, found.unsure) == (95, 5)
    assert found.notes[0].startswith("5 of 100 answers are unsure")
    fill(path, lambda row: "yes", slice(10, 15))
    assert f"if all were wrong: {100 * answered(audit, path).overall.estimate:.1f} %" in found.notes[0]


def test_answers_from_the_top_count_before_all_are_given(audit, tmp_path):
    path = tmp_path / "review.csv"
    write_review(audit, drawn(audit, 100), path)
    fill(path, lambda row: "no", slice(40))
    found = answered(audit, path)
    assert (found.overall.checked, found.unchecked) == (40, 60)
    assert found.notes == ["40 of the 100 rows drawn are answered: the interval shrinks with the rest"]


def test_rows_that_were_skipped_are_not_passed_over(audit, tmp_path):
    path = tmp_path / "review.csv"
    write_review(audit, drawn(audit, 100), path)
    fill(path, lambda row: "no" if int(row["place"]) % 2 else "")
    with pytest.raises(ValueError, match="have no answer, and not the last ones"):
        answered(audit, path)


def test_answers_about_rows_that_were_not_drawn_do_not_count(audit, tmp_path):
    rows = drawn(audit, 100)
    answers = dict.fromkeys(audit["id"][rows], False)
    others = {id_: True for id_ in audit["id"] if id_ not in answers}
    assert review(audit, rows, answers | others).overall == review(audit, rows, answers).overall


def test_an_existing_draw_is_not_replaced(audit, tmp_path):
    (tmp_path / "review.csv").write_text("hours of work")
    with pytest.raises(FileExistsError, match=r"review.csv exists already: give it as --checked"):
        write_review(audit, drawn(audit, 100), tmp_path / "review.csv")
    assert (tmp_path / "review.csv").read_text() == "hours of work"


def drop_a_row(text):
    return "\n".join(text.splitlines()[:-1]) + "\n"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: text.replace("is_wrong", "wrong", 1), "has no column 'is_wrong'"),
        (lambda text: text.splitlines()[0] + "\n", "has no rows"),
        (drop_a_row, "was drawn from another audit, or rows are missing"),
        (lambda text: text + text.splitlines()[-1] + "\n", "has an id more than once"),
        (lambda text: text.replace(",x", ",y", 1), "id 'y.*' of .* is not in this audit"),
        (lambda text: text.splitlines()[0] + "\n1,x1,a,low,\n", "that is not a number"),
        (lambda text: drop_a_row(text) + text.splitlines()[-1] + "maybe\n", "must be yes, no, unsure or empty"),
        (lambda text: text, "nothing has been checked yet"),
    ],
)
def test_a_file_that_does_not_fit_is_one_clear_line(audit, tmp_path, spoil, message):
    path = tmp_path / "review.csv"
    write_review(audit, drawn(audit, 100), path)
    path.write_text(spoil(path.read_text()))
    with pytest.raises(ValueError, match=message):
        answered(audit, path)
