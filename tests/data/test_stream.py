"""Batches of a stream: order, views, jitter, and a second stream beside the first."""

from itertools import chain, pairwise

import pytest
import torch

from elr.data.augment import ImageTransform, VectorTransform
from elr.data.inputs import TensorInputs
from elr.data.stream import JITTER, Stream, TrainData, batch_sizes
from elr.parts.clock import Clock


def vectors(n=40, features=5, *, batch_size=8, ids=None):
    x = torch.arange(n * features, dtype=torch.float32).view(n, features)
    y = torch.arange(n) % 3
    ids = torch.arange(n) + 1000 if ids is None else ids
    return TrainData(
        TensorInputs(x), y, 3, VectorTransform(), ids=ids, batch_size=batch_size, device=torch.device("cpu")
    )


def images(n=40, *, batch_size=8):
    x = torch.randint(0, 256, (n, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    transform = ImageTransform((0.5,), (0.5,), pad=2, flip=True)
    return TrainData(
        TensorInputs(x),
        torch.arange(n) % 3,
        3,
        transform,
        ids=torch.arange(n),
        batch_size=batch_size,
        device=torch.device("cpu"),
    )


def rows(batches):
    return [batch.index.tolist() for batch in batches]


def test_a_lap_visits_every_row_once_in_an_order_of_its_clock():
    data, clock = vectors(), Clock(0, 1, 2, 9)
    order = rows(data.batches(Stream(), clock))
    assert sorted(chain.from_iterable(order)) == list(range(40))
    assert order == rows(data.batches(Stream(), clock))
    for other in (clock._replace(seed=1), clock._replace(stage=0), clock._replace(epoch=3), clock._replace(turn=1)):
        assert rows(data.batches(Stream(), other)) != order


def test_rows_labels_and_inputs_belong_together():
    data = vectors()
    chosen = torch.tensor([5, 30, 7, 2, 11])
    for batch in data.batches(Stream(chosen), Clock(0)):
        assert set(batch.index.tolist()) == set(chosen.tolist())
        assert torch.equal(batch.y, batch.index % 3)
        assert torch.equal(batch.x[:, 0], batch.index.float() * 5)
        assert batch.views == ()
        assert batch.beside is None


def test_without_shuffling_the_given_order_stays():
    data, chosen = vectors(), torch.tensor([9, 3, 30, 1])
    (batch,) = data.batches(Stream(chosen, shuffle=False), Clock(0))
    assert batch.index.tolist() == [9, 3, 30, 1]


def test_a_stream_without_rows_has_no_batches():
    data, nothing = vectors(), torch.zeros(0, dtype=torch.int64)
    assert data.num_batches(Stream(nothing)) == 0
    assert list(data.batches(Stream(nothing), Clock(0))) == []
    assert list(data.batches(Stream(nothing, beside=Stream()), Clock(0))) == []


@pytest.mark.parametrize("size", [1, 2, 3, 8, 39, 40, 41, 100])
@pytest.mark.parametrize("n", [1, 2, 17, 33, 40])
def test_no_row_is_left_out_and_none_is_alone_unless_it_is_the_only_one(n, size):
    sizes = batch_sizes(n, size)
    assert sum(sizes) == n
    assert all(count > 1 for count in sizes) or size == 1 or n == 1
    data = vectors(n, batch_size=size)
    assert data.num_batches(Stream()) == len(list(data.batches(Stream(), Clock(0)))) == len(sizes)


# A stream beside.


def test_the_stream_beside_is_drawn_in_step_and_started_anew():
    data = vectors()
    first, second = torch.arange(30), torch.arange(30, 40)
    stream = Stream(first, beside=Stream(second, 4))
    batches = list(data.batches(stream, Clock(0)))
    assert len(batches) == data.num_batches(stream) == 4
    assert sorted(chain.from_iterable(rows(batches))) == first.tolist()
    beside = rows([batch.beside for batch in batches])
    assert [len(part) for part in beside] == [4, 4, 2, 4]
    assert sorted(chain.from_iterable(beside[:3])) == second.tolist()  # a whole lap before the next begins
    assert set(beside[3]) <= set(second.tolist())


def test_each_lap_beside_has_an_order_of_its_own():
    data = vectors()
    batches = list(data.batches(Stream(batch_size=2, beside=Stream(torch.arange(8), 8)), Clock(0)))
    orders = [tuple(batch.beside.index.tolist()) for batch in batches]
    assert len(orders) == 20
    assert len(set(orders)) == 20
    assert all(sorted(order) == list(range(8)) for order in orders)


def test_a_longer_stream_beside_is_cut():
    data = vectors()
    batches = list(data.batches(Stream(torch.arange(8), 4, beside=Stream(torch.arange(8, 40), 4)), Clock(0)))
    assert len(batches) == 2
    assert all(len(batch.beside.index) == 4 for batch in batches)


def test_an_empty_stream_beside_is_none():
    data = vectors()
    stream = Stream(beside=Stream(torch.zeros(0, dtype=torch.int64)))
    batches = list(data.batches(stream, Clock(0)))
    assert len(batches) == 5
    assert all(batch.beside is None for batch in batches)


def test_the_first_stream_does_not_depend_on_the_one_beside():
    for data in (vectors(), images()):
        alone = list(data.batches(Stream(views=2), Clock(0)))
        accompanied = list(data.batches(Stream(views=2, beside=Stream(views=2)), Clock(0)))
        for a, b in zip(alone, accompanied, strict=True):
            assert torch.equal(a.index, b.index)
            assert torch.equal(a.x, b.x)
            assert torch.equal(a.views[0], b.views[0])


def test_a_row_in_both_streams_is_augmented_differently_in_each_and_in_each_lap():
    data = images()
    stream = Stream(torch.arange(8), 2, beside=Stream(torch.arange(8), 8))
    seen = []
    for batch in data.batches(stream, Clock(0)):
        row = batch.index[0]
        place = (batch.beside.index == row).nonzero().item()
        assert torch.equal(batch.beside.index.sort().values, torch.arange(8))
        seen.append((batch.x[0], batch.beside.x[place]))
    assert any(not torch.equal(a, b) for a, b in seen)
    laps = [
        batch.beside.x[batch.beside.index.argsort()] for batch in data.batches(stream, Clock(0))
    ]  # the same rows four times
    assert not torch.equal(laps[0], laps[1])


def test_the_same_call_gives_the_same_batches_beside():
    data = vectors()
    stream = Stream(torch.arange(30), views=2, beside=Stream(torch.arange(30, 40), 4, views=2))
    for a, b in zip(data.batches(stream, Clock(3)), data.batches(stream, Clock(3)), strict=True):
        assert torch.equal(a.beside.index, b.beside.index)
        assert torch.equal(a.beside.x, b.beside.x)
        assert torch.equal(a.beside.views[0], b.beside.views[0])


# Views.


def test_views_of_an_image_differ_and_each_is_an_augmentation_of_its_row():
    data = images()
    for batch in data.batches(Stream(views=3), Clock(0)):
        assert len(batch.views) == 2
        stack = [batch.x, *batch.views]
        assert all(not torch.equal(a, b) for a, b in pairwise(stack))
        assert all(view.shape == batch.x.shape for view in stack)


def test_the_first_view_of_an_image_is_the_only_one_of_a_stream_with_one():
    data = images()
    for one, two in zip(data.batches(Stream(), Clock(0)), data.batches(Stream(views=2), Clock(0)), strict=True):
        assert torch.equal(one.x, two.x)


def test_an_example_looks_the_same_whatever_batch_it_is_in():
    for make in (vectors, images):
        small, large = make(batch_size=4), make(batch_size=16)
        by_row = {}
        for batch in small.batches(Stream(views=2), Clock(0)):
            by_row |= {int(i): (x, v) for i, x, v in zip(batch.index, batch.x, batch.views[0], strict=True)}
        for batch in large.batches(Stream(views=2), Clock(0)):
            for i, x, v in zip(batch.index, batch.x, batch.views[0], strict=True):
                assert torch.equal(by_row[int(i)][0], x)
                assert torch.equal(by_row[int(i)][1], v)


def test_without_augmentation_all_views_are_the_plain_input():
    for data in (vectors(), images()):
        (plain,) = data.batches(Stream(torch.arange(6), augment=False, shuffle=False), Clock(0))
        (batch,) = data.batches(Stream(torch.arange(6), views=2, augment=False, shuffle=False), Clock(0))
        assert torch.equal(batch.x, plain.x)
        assert torch.equal(batch.views[0], plain.x)


# Jitter.


def test_one_view_of_a_vector_is_the_vector():
    data = vectors()
    for batch in data.batches(Stream(), Clock(0)):
        assert torch.equal(batch.x[:, 0], batch.index.float() * 5)


def test_views_of_a_vector_are_jittered_independently():
    n, features = 400, 50
    data = vectors(n, features, batch_size=n)
    data.inputs = TensorInputs(torch.zeros(n, features))
    (batch,) = data.batches(Stream(views=2), Clock(0))
    first, second = batch.x, batch.views[0]
    assert first.dtype == torch.float32
    for view in (first, second):
        assert view.mean().abs() < 0.003  # 20,000 draws
        assert view.std() == pytest.approx(JITTER, rel=0.03)
    assert torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1].abs() < 0.03
    assert torch.corrcoef(first.T).fill_diagonal_(0).abs().max() < 0.25  # features, 400 rows
    (later,) = data.batches(Stream(views=2), Clock(0, 0, 1, 2))
    assert not torch.equal(later.x[later.index.argsort()], first[batch.index.argsort()])


def test_jitter_belongs_to_the_id_of_the_example():
    ids = torch.arange(40) + 1000
    data, moved = vectors(ids=ids), vectors(ids=ids.flip(0))
    data.inputs = moved.inputs = TensorInputs(torch.zeros(40, 5))
    x = torch.cat([b.x[b.index.argsort()] for b in data.batches(Stream(views=2, batch_size=40), Clock(0))])
    y = torch.cat([b.x[b.index.argsort()] for b in moved.batches(Stream(views=2, batch_size=40), Clock(0))])
    assert torch.equal(x, y.flip(0))
