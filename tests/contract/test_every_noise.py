"""What every noise process promises, checked on all of them."""

import numpy as np
import pytest

from elr.noise import NOISES, Clean, transition
from elr.noise.inject import CIFAR10_CLASSES

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CLASSES = 10
N = 20_000
RATES = (0.0, 0.1, 0.4, 1.0)
MATRIX = np.full((CLASSES, CLASSES), 0.02) + 0.8 * np.eye(CLASSES)


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def clean():
    y = rng(1).integers(CLASSES, size=N)
    x = rng(2).normal(size=(N, 8)).astype(np.float32)
    return Clean(y, CIFAR10, features=lambda rows: x[rows], matrix=MATRIX, key=77)


def expected_flip_rate(kind, rate):
    """Fraction that ends up wrong; asymmetric noise touches half of CIFAR-10's classes."""
    shares = {"symmetric": 0.9 * rate, "asymmetric": 0.5 * rate, "matrix": 0.18}
    return shares.get(kind, rate)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("kind", NOISES)
def test_observed_flip_rate_is_the_one_asked_for(clean, kind, rate):
    new = NOISES[kind](clean, rate, rng())
    flips = np.mean(new != clean.y)
    if kind == "instance" and rate == 1.0:
        assert 0.9 < flips < 0.95  # the normal around 1 is cut at 1: its mean is 0.92
    elif kind == "instance" and rate == 0.1:
        assert 0.11 < flips < 0.14  # cut at 0: its mean is 0.129
    else:
        assert abs(flips - expected_flip_rate(kind, rate)) < 0.012


@pytest.mark.parametrize("kind", NOISES)
def test_labels_stay_labels(clean, kind):
    before = clean.y.copy()
    new = NOISES[kind](clean, 0.4, rng())
    assert new.dtype == np.int64
    assert new.shape == clean.y.shape
    assert set(new) <= set(range(CLASSES))
    assert np.array_equal(clean.y, before)


@pytest.mark.parametrize("kind", NOISES)
def test_same_seed_same_labels_other_seed_other_labels(clean, kind):
    first, again, other = (NOISES[kind](clean, 0.4, rng(seed)) for seed in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("kind", NOISES)
def test_transition_rows_sum_to_one(clean, kind):
    table = transition(clean.y, NOISES[kind](clean, 0.4, rng()), CLASSES)
    np.testing.assert_allclose(table.sum(axis=1), 1)
    assert (table >= 0).all()


@pytest.mark.parametrize("kind", [kind for kind in NOISES if kind != "matrix"])
def test_rate_zero_changes_nothing(clean, kind):
    assert np.array_equal(NOISES[kind](clean, 0.0, rng()), clean.y)


@pytest.mark.parametrize("kind", [kind for kind in NOISES if kind not in ("instance", "matrix")])
def test_the_count_is_exact(clean, kind):
    """Not a coin flip per example: the same count whatever the seed, per class where the process knows classes."""
    if kind in ("symmetric", "symmetric_exclusive"):
        if kind == "symmetric_exclusive":
            assert {int(np.sum(NOISES[kind](clean, 0.3, rng(seed)) != clean.y)) for seed in range(3)} == {6000}
        return
    table = transition(clean.y, NOISES[kind](clean, 0.3, rng()), CLASSES)
    counts = np.bincount(clean.y)
    moved = (1 - np.diag(table)) * counts
    for label in range(CLASSES):
        assert moved[label] == pytest.approx(0, abs=1e-6) or moved[label] == pytest.approx(
            np.round(0.3 * counts[label])
        )


def test_symmetric_includes_the_true_class_and_exclusive_does_not(clean):
    table = transition(clean.y, NOISES["symmetric"](clean, 1.0, rng()), CLASSES)
    np.testing.assert_allclose(table, 0.1, atol=0.03)
    table = transition(clean.y, NOISES["symmetric_exclusive"](clean, 1.0, rng()), CLASSES)
    np.testing.assert_allclose(table, (1 - np.eye(CLASSES)) / 9, atol=0.03)


def test_asymmetric_is_decided_on_clean_labels_and_leaves_five_classes_alone(clean):
    table = transition(clean.y, NOISES["asymmetric"](clean, 0.4, rng()), CLASSES)
    place = {name: index for index, name in enumerate(CIFAR10)}
    for source, target in (
        ("truck", "automobile"),
        ("bird", "airplane"),
        ("cat", "dog"),
        ("dog", "cat"),
        ("deer", "horse"),
    ):
        assert table[place[source], place[target]] == pytest.approx(0.4, abs=1e-3)
        assert table[place[source], place[source]] == pytest.approx(0.6, abs=1e-3)
    for name in ("airplane", "automobile", "frog", "horse", "ship"):
        assert table[place[name], place[name]] == 1


def test_asymmetric_goes_by_class_names_not_by_their_order(clean):
    shuffled = tuple(sorted(CIFAR10_CLASSES, reverse=True))
    table = transition(clean.y, NOISES["asymmetric"](Clean(clean.y, shuffled), 0.4, rng()), CLASSES)
    assert table[shuffled.index("cat"), shuffled.index("dog")] == pytest.approx(0.4, abs=1e-3)
    assert table[shuffled.index("frog"), shuffled.index("frog")] == 1


def test_asymmetric_stays_inside_the_superclass():
    superclass = np.array([3, 1, 3, 1, 3, 7])
    y = rng().integers(6, size=600)
    new = NOISES["asymmetric"](Clean(y, tuple("abcdef"), superclass=superclass), 0.5, rng())
    assert np.array_equal(superclass[new], superclass[y])
    table = transition(y, new, 6)
    for source, target in ((0, 2), (2, 4), (4, 0), (1, 3), (3, 1)):
        assert table[source, target] == pytest.approx(0.5, abs=0.01)
    assert table[5, 5] == 1  # alone in its superclass


def test_asymmetric_blocks_are_five_consecutive_class_numbers(clean):
    new = NOISES["asymmetric_blocks"](clean, 1.0, rng())
    assert np.array_equal(new, np.array([1, 2, 3, 4, 0, 6, 7, 8, 9, 5])[clean.y])


def test_pair_goes_to_the_next_class(clean):
    assert np.array_equal(NOISES["pair"](clean, 1.0, rng()), (clean.y + 1) % CLASSES)


def test_instance_noise_depends_on_the_input(clean):
    """Equal inputs of one class go to the same wrong class; other inputs go elsewhere."""
    y = np.zeros(4000, dtype=np.int64)
    directions = np.eye(4, 30, dtype=np.float32) * 40
    x = directions[np.arange(4000) % 4]
    new = NOISES["instance"](Clean(y, CIFAR10, features=lambda rows: x[rows], key=3), 0.5, rng())
    favourites = []
    for kind in range(4):
        wrong = new[(np.arange(4000) % 4 == kind) & (new != 0)]
        counts = np.bincount(wrong, minlength=CLASSES)
        assert counts.max() > 0.9 * counts.sum()
        favourites.append(int(counts.argmax()))
    assert len(set(favourites)) > 1


def test_instance_noise_is_one_annotator_for_all_parts(clean):
    """The direction belongs to the key, not to the draw: training and validation parts meet the same confusions."""
    y = np.zeros(2000, dtype=np.int64)
    x = np.full((2000, 5), 20, dtype=np.float32)
    first, second, other = (
        NOISES["instance"](Clean(y, CIFAR10, features=lambda rows: x[rows], key=key), 0.5, rng(seed))
        for key, seed in ((1, 0), (1, 1), (9, 0))
    )
    peaks = [np.bincount(new[new != 0], minlength=CLASSES).argmax() for new in (first, second, other)]
    assert peaks[0] == peaks[1] != peaks[2]


def test_instance_noise_survives_inputs_of_any_scale(clean):
    x = np.full((100, 3), 1e30, dtype=np.float32)
    y = np.arange(100) % 3
    new = NOISES["instance"](Clean(y, ("a", "b", "c"), features=lambda rows: x[rows]), 0.5, rng())
    assert set(new) <= {0, 1, 2}
    assert 0.3 < np.mean(new != y) < 0.7


def test_instance_noise_reads_few_rows_at_a_time():
    sizes = []

    def features(rows):
        sizes.append(len(rows))
        return np.ones((len(rows), 2), dtype=np.float32)

    y = np.zeros(10_000, dtype=np.int64)
    new = NOISES["instance"](Clean(y, ("a", "b"), features=features), 0.4, rng())
    assert max(sizes) <= 1024
    assert sum(sizes) == np.sum(new != y)


def test_matrix_noise_follows_the_matrix():
    table = np.array([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.1, 0.2, 0.7]])
    y = rng().integers(3, size=30_000)
    new = NOISES["matrix"](Clean(y, tuple("abc"), matrix=table), 0.0, rng())
    np.testing.assert_allclose(transition(y, new, 3), table, atol=0.015)
    assert transition(y, new, 3)[1, 1] == 1
    assert transition(y, new, 3)[0, 2] == 0


def test_a_class_without_examples_keeps_its_row():
    assert np.array_equal(transition(np.array([0, 0]), np.array([1, 0]), 3), [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize(
    ("kind", "classes", "message"),
    [
        ("asymmetric", tuple("abc"), "'asymmetric' is defined for cifar10 and cifar100 only; use 'pair'"),
        ("asymmetric_blocks", tuple("abc"), "divisible by 5, got 3"),
        ("instance", tuple("abc"), "'instance' needs the inputs"),
        ("matrix", tuple("abc"), "needs a 3 x 3 matrix for these classes, got None"),
    ],
)
def test_noise_that_does_not_fit_gets_one_clear_line(kind, classes, message):
    with pytest.raises(ValueError, match=message):
        NOISES[kind](Clean(np.arange(9) % 3, classes), 0.4, rng())
