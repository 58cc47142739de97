from collections import OrderedDict

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from elr.data import WithIndex

PAIRS = TensorDataset(torch.arange(10.0), torch.arange(10) % 2)


def test_index_follows_its_example_through_a_shuffled_loader():
    seen = []
    for x, y, index in DataLoader(WithIndex(PAIRS), batch_size=3, shuffle=True):
        assert torch.equal(x, index.float())
        assert torch.equal(y, index % 2)
        seen += index.tolist()
    assert sorted(seen) == list(range(10))


def test_index_counts_within_the_dataset_wrapped():
    rows = [4, 7]
    assert WithIndex(Subset(PAIRS, rows))[1][2] == 1
    assert Subset(WithIndex(PAIRS), rows)[1][2] == 7


def test_longer_items_get_the_index_last_and_dictionaries_a_key():
    assert WithIndex([("x", "y", "extra")])[0] == ("x", "y", "extra", 0)
    assert WithIndex([["x", "y"]])[0] == ("x", "y", 0)
    assert WithIndex([OrderedDict(x=1)])[0] == {"x": 1, "index": 0}


def test_negative_indices_come_back_positive_and_others_end_iteration():
    dataset = WithIndex(PAIRS)
    assert dataset[-1][2] == 9
    assert len(list(dataset)) == 10
    with pytest.raises(IndexError, match="index 10 is outside a dataset of 10"):
        dataset[10]


def test_what_has_no_index_is_refused():
    class Endless(IterableDataset):
        def __iter__(self):
            yield 1

    with pytest.raises(ValueError, match="an iterable one has no index"):
        WithIndex(iter([]))
    with pytest.raises(ValueError, match="an iterable one has no index"):
        WithIndex(Endless())
    with pytest.raises(ValueError, match="a key 'index' already"):
        WithIndex([{"index": 3}])[0]
    with pytest.raises(ValueError, match="got Tensor"):
        WithIndex([torch.zeros(2)])[0]
