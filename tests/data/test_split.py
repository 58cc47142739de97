import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elr.data.split import stratified


@given(st.lists(st.integers(2, 40), min_size=2, max_size=6), st.floats(0.0, 0.9), st.integers(0, 3))
def test_parts_are_disjoint_complete_exact_and_proportional(sizes, fraction, seed):
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    count = min(round(fraction * len(y)), len(y) - len(sizes))
    rest, chosen = stratified(y, count, np.random.default_rng(seed), keep=1)
    assert len(chosen) == count
    assert np.array_equal(np.sort(np.concatenate([rest, chosen])), np.arange(len(y)))
    assert set(y[rest]) == set(range(len(sizes)))
    share = np.array(sizes) * count / len(y)
    got = np.bincount(y[chosen], minlength=len(sizes))
    free = got < np.array(sizes) - 1
    assert (got[free] >= np.floor(share[free])).all()
    if free.all():
        assert (np.abs(got - share) < 1).all()


def test_same_generator_same_rows_other_generator_other_rows():
    y = np.repeat([0, 1], 50)
    first, again, other = (stratified(y, 20, np.random.default_rng(seed))[1] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_more_than_there_is_is_refused():
    with pytest.raises(ValueError, match="cannot choose 10 of 10 examples and leave 1 of every class"):
        stratified(np.repeat([0, 1], 5), 10, np.random.default_rng(0), keep=1)
