import json

import numpy as np
import pytest
import torch

from elr.data.augment import ImageTransform, VectorTransform, describe, from_description, measure, pad
from elr.data.inputs import TensorInputs
from elr.parts.draw import uniforms

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


@pytest.fixture
def images():
    return torch.randint(0, 256, (32, 3, 9, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def naive(x, ids, key, transform):
    """Pixel by pixel, from the definition."""
    draws = uniforms(key, ids, 3).double().numpy()
    count, channels, height, width = x.shape
    out = np.zeros(x.shape)
    p = transform.pad
    for b in range(count):
        dy, dx = (int(draws[b, axis] * (2 * p + 1)) - p for axis in (0, 1))
        for c in range(channels):
            for i in range(height):
                for j in range(width):
                    source = width - 1 - j if transform.flip and draws[b, 2] < 0.5 else j
                    row, column = i + dy, source + dx
                    if transform.padding == "reflect":
                        row = height - 1 - abs(height - 1 - abs(row))
                        column = width - 1 - abs(width - 1 - abs(column))
                    inside = 0 <= row < height and 0 <= column < width
                    value = x[b, c, row, column].item() / 255 if inside else 0.0
                    out[b, c, i, j] = (value - transform.mean[c]) / transform.std[c]
    return out


@pytest.mark.parametrize("padding", ["zeros", "reflect"])
@pytest.mark.parametrize(("width", "flip"), [(0, True), (2, False), (3, True)])
def test_augmented_pixels_equal_a_naive_loop(images, width, flip, padding):
    transform = ImageTransform(MEAN, STD, pad=width, flip=flip, padding=padding)
    ids = torch.arange(100, 132)
    got = transform(images, ids, 7)
    assert got.dtype == torch.float32
    np.testing.assert_allclose(got.numpy(), naive(images, ids, 7, transform), atol=2e-6)


def test_without_a_key_only_normalises(images):
    plain = ImageTransform(MEAN, STD)(images, torch.arange(32), 5)
    augmenting = ImageTransform(MEAN, STD, pad=2, flip=True)(images, torch.arange(32), None)
    assert torch.equal(plain, augmenting)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (MEAN, STD))
    torch.testing.assert_close(plain, (images.float() / 255 - mean) / std)


def test_same_example_gets_same_crop_whatever_the_batch(images):
    transform = ImageTransform(MEAN, STD, pad=2, flip=True)
    ids = torch.randperm(32, generator=torch.Generator().manual_seed(1))
    whole = transform(images, ids, 11)
    order = torch.randperm(32, generator=torch.Generator().manual_seed(2))
    for rows in order.tensor_split(5):
        assert torch.equal(transform(images[rows], ids[rows], 11), whole[rows])
    assert not torch.equal(transform(images, ids, 12), whole)


def test_every_offset_and_both_sides_are_used():
    x = torch.zeros(4000, 1, 3, 3, dtype=torch.uint8)
    x[:, 0, 1, 1] = 255  # one lit pixel: its place after the crop is the offset
    shifted = ImageTransform((0.0,), (1.0,), pad=1)(x, torch.arange(4000), 3)
    share = (shifted > 0).float().mean(dim=(0, 1))
    np.testing.assert_allclose(share, 1 / 9, atol=0.02)
    x = torch.tensor([0, 255], dtype=torch.uint8).expand(4000, 1, 2, 2).contiguous()
    flipped = ImageTransform((0.0,), (1.0,), flip=True)(x, torch.arange(4000), 3)
    assert abs(flipped[:, 0, 0, 0].mean() - 0.5) < 0.03


def test_the_raw_batch_is_left_alone(images):
    before = images.clone()
    floats = images.float()
    for width in (0, 2):
        transform = ImageTransform(MEAN, STD, pad=width, flip=True)
        transform(images, torch.arange(32), 1)
        transform(floats, torch.arange(32), 1)
        transform(floats, torch.arange(32), None)
    assert torch.equal(images, before)
    assert torch.equal(floats, before.float())


def test_float_images_are_in_their_own_units(images):
    as_bytes = ImageTransform(MEAN, STD, pad=2, flip=True)(images, torch.arange(32), 4)
    as_floats = ImageTransform(MEAN, STD, pad=2, flip=True)(images.float() / 255, torch.arange(32), 4)
    torch.testing.assert_close(as_bytes, as_floats, atol=1e-5, rtol=0)


def test_reflection_equals_numpy(images):
    expected = np.pad(images.numpy(), ((0, 0), (0, 0), (4, 4), (4, 4)), mode="reflect")
    assert np.array_equal(pad(images, 4, "reflect").numpy(), expected)


def test_reflection_wider_than_the_image_is_refused(images):
    with pytest.raises(ValueError, match="cannot reflect 7 pixels of an image of 9 x 7"):
        pad(images, 7, "reflect")


def test_vectors_are_never_augmented():
    x = torch.randn(10, 4)
    transform = VectorTransform((1.0,) * 4, (2.0,) * 4)
    assert torch.equal(transform(x, torch.arange(10), 1), transform(x, torch.arange(10), None))
    torch.testing.assert_close(transform(x, torch.arange(10), 1), (x - 1) / 2)
    assert torch.equal(VectorTransform()(x, torch.arange(10), 1), x)


def test_measured_statistics_equal_numpy(images):
    mean, std = measure(TensorInputs(images))
    np.testing.assert_allclose(mean, (images.numpy() / 255).mean((0, 2, 3)))
    np.testing.assert_allclose(std, (images.numpy() / 255).std((0, 2, 3)))


def test_measuring_survives_a_large_offset_and_a_constant_feature():
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(1e4, 1, 3000), np.full(3000, 0.1)], axis=1).astype(np.float32)
    mean, std = measure(TensorInputs(torch.from_numpy(x)))
    np.testing.assert_allclose(mean, x.astype(np.float64).mean(0))
    np.testing.assert_allclose(std, [x[:, 0].astype(np.float64).std(), 1.0], rtol=1e-9)


@pytest.mark.parametrize(
    "transform",
    [
        ImageTransform(MEAN, STD, pad=4, flip=True, padding="reflect"),
        VectorTransform((0.5,), (2.0,)),
        VectorTransform(),
    ],
)
def test_a_transform_survives_json(transform):
    assert from_description(json.loads(json.dumps(describe(transform)))) == transform


def test_an_unknown_description_is_refused():
    with pytest.raises(ValueError, match="unknown transform 'sound'"):
        from_description({"kind": "sound"})
