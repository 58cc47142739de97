"""What changes from one epoch to the next: sides of images in turn, and sizes that grow."""

import pytest
import torch

from elr.cli import main
from elr.data.augment import ImageTransform
from elr.data.inputs import TensorInputs
from elr.data.stream import Stream, TrainData
from elr.parts.clock import Clock


def images(**options):
    raw = torch.arange(40 * 3 * 8 * 8).reshape(40, 3, 8, 8).remainder(251).to(torch.uint8)
    transform = ImageTransform((0.5,) * 3, (0.25,) * 3)
    return TrainData(
        TensorInputs(raw), torch.zeros(40, dtype=torch.long), 2, transform, ids=torch.arange(40), batch_size=16,
        device=torch.device("cpu"), **options,
    )  # fmt: skip


def epoch(data, number, epochs=6, stream=None):
    """Inputs by row, as they come in an epoch."""
    found = {}
    for batch in data.batches(stream or Stream(), Clock(3, epoch=number, epochs=epochs)):
        found |= dict(zip(batch.index.tolist(), batch.x, strict=True))
    return found


def test_every_image_is_seen_from_both_sides_in_two_epochs():
    data, plain = images(alternate=True), images()
    first, second, third = (epoch(data, number) for number in range(3))
    as_it_is = epoch(plain, 0)
    for row in range(40):
        assert torch.equal(second[row], first[row].flip(-1))
        assert torch.equal(third[row], first[row])
        assert torch.equal(first[row], as_it_is[row]) or torch.equal(first[row], as_it_is[row].flip(-1))
    mirrored = sum(not torch.equal(first[row], as_it_is[row]) for row in range(40))
    assert 10 < mirrored < 30  # half of them, by their own draws


def test_a_sweep_shows_images_as_they_are():
    still = Stream(augment=False, shuffle=False)
    swept = epoch(images(alternate=True, sizes=(4, 8)), 1, stream=still)
    as_it_is = epoch(images(), 0, stream=still)
    assert all(torch.equal(swept[row], as_it_is[row]) for row in range(40))


def test_sizes_grow_in_equal_parts_of_a_stage():
    data = images(sizes=(4, 6, 8))
    sides = [epoch(data, number)[0].shape[-1] for number in range(6)]
    assert sides == [4, 4, 6, 6, 8, 8]
    assert [epoch(data, number, epochs=2)[0].shape[-1] for number in range(2)] == [4, 6]  # too short for all three
    assert torch.equal(epoch(data, 5)[7], epoch(images(), 5)[7])


def test_a_smaller_image_has_the_same_mean():
    small, whole = epoch(images(sizes=(4,)), 0), epoch(images(), 0)
    assert small[5].mean().item() == pytest.approx(whole[5].mean().item(), abs=0.02)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--data.alternate --data.flip true", "leave data.flip out"),
        ("--data.alternate --data.augment false", "data.alternate is for images that are augmented"),
        ("--data.sizes 0,8", "data.sizes must be numbers of pixels"),
    ],
)
def test_mistakes_are_one_line(words, message, capsys):
    assert main(["train", "digits", *words.split(), "--dry-run"]) == 2
    assert message in capsys.readouterr().err
