import json

import numpy as np
import pytest
import torch

from elr.data.augment import ImageTransform, VectorTransform, describe, from_description, measure, pad
from elr.data.inputs import TensorInputs
from elr.data.stream import JITTER
from elr.parts.draw import normals, uniforms

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


def test_vectors_are_augmented_in_strong_views_only():
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


# Strong views


def naive_strong(x, ids, key, transform):
    """Pixel by pixel: moved, flipped, recoloured, cut out."""
    draws = uniforms(key, ids, 8).double().numpy()
    count, channels, height, width = x.shape
    raw = x.double().numpy() / (255 if x.dtype == torch.uint8 else 1)
    reach = transform.pad + max(1, min(height, width) // 16)
    out = np.zeros(x.shape)
    for b in range(count):
        dy, dx = (int(draws[b, axis] * (2 * reach + 1)) - reach for axis in (0, 1))
        moved = np.zeros((channels, height, width))
        for c, i, j in np.ndindex(moved.shape):
            row, column = i + dy, (width - 1 - j if transform.flip and draws[b, 2] < 0.5 else j) + dx
            if 0 <= row < height and 0 <= column < width:
                moved[c, i, j] = raw[b, c, row, column]
        brightness, contrast, saturation = 0.6 + 0.8 * draws[b, 3:6]
        moved *= brightness
        moved = moved.mean() + contrast * (moved - moved.mean())
        if channels == 3:
            grey = moved.mean(0)
            moved = grey + saturation * (moved - grey)
        if x.dtype == torch.uint8:
            moved = moved.clip(0, 1)
        middle = int(draws[b, 6] * height), int(draws[b, 7] * width)
        for c, i, j in np.ndindex(moved.shape):
            cut = all(
                m - side // 2 // 2 <= at < m - side // 2 // 2 + side // 2
                for m, at, side in zip(middle, (i, j), (height, width), strict=True)
            )
            value = transform.mean[c] if cut else moved[c, i, j]
            out[b, c, i, j] = (value - transform.mean[c]) / transform.std[c]
    return out


@pytest.mark.parametrize("kind", ["bytes", "floats"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("width", "flip"), [(0, False), (2, True)])
def test_strong_pixels_equal_a_naive_loop(images, width, flip, channels, kind):
    x = images[:, :channels] if kind == "bytes" else images[:, :channels].float() / 255 - 0.5
    transform = ImageTransform(MEAN[:channels], STD[:channels], pad=width, flip=flip)
    ids = torch.arange(100, 132)
    got = transform(x, ids, 7, strong=True)
    assert got.dtype == torch.float32
    np.testing.assert_allclose(got.numpy(), naive_strong(x, ids, 7, transform), atol=2e-5)


@pytest.mark.parametrize("transform", [ImageTransform(MEAN, STD), ImageTransform(MEAN, STD, pad=2, flip=True)])
def test_strong_views_differ_from_weak_ones_even_without_augmentation(images, transform):
    ids = torch.arange(32)
    weak, strong = transform(images, ids, 5), transform(images, ids, 5, strong=True)
    assert (strong - weak).abs().mean() > 0.3
    assert torch.equal(transform(images, ids, 5), weak)
    assert torch.equal(transform(images, ids, None, strong=True), transform(images, ids, None))


@pytest.mark.parametrize("transform", [ImageTransform(MEAN, STD, pad=1, flip=True), VectorTransform()])
def test_same_example_gets_same_strong_view_whatever_the_batch(images, transform):
    x = images if isinstance(transform, ImageTransform) else images.flatten(1).float()
    ids = torch.randperm(32, generator=torch.Generator().manual_seed(1))
    whole = transform(x, ids, 11, strong=True)
    for rows in torch.randperm(32, generator=torch.Generator().manual_seed(2)).tensor_split(5):
        assert torch.equal(transform(x[rows], ids[rows], 11, strong=True), whole[rows])
    assert not torch.equal(transform(x, ids, 12, strong=True), whole)


def test_a_quarter_of_the_image_is_cut_out_less_what_lies_beyond_the_border():
    x = torch.full((4000, 3, 16, 16), 255, dtype=torch.uint8)
    strong = ImageTransform((0.2, 0.3, 0.4), (1.0,) * 3, padding="reflect")(x, torch.arange(4000), 3, strong=True)
    gone = (strong == 0).all(dim=1)  # the mean, after normalisation
    share = gone.float().mean(dim=(1, 2))
    assert share.max() == 0.25
    assert share.min() >= 1 / 16 - 1e-6
    assert abs(share.mean() - (7 / 16) ** 2) < 0.01  # each side keeps 7 of its 8 pixels on average
    assert gone.float().mean(dim=0).min() > 0.05  # any pixel may go


def test_the_raw_batch_is_left_alone_by_strong_views(images):
    before, floats = images.clone(), images.float()
    for transform in (ImageTransform(MEAN, STD), ImageTransform(MEAN, STD, pad=2, flip=True)):
        transform(images, torch.arange(32), 1, strong=True)
        transform(floats, torch.arange(32), 1, strong=True)
    VectorTransform()(floats, torch.arange(32), 1, strong=True)
    assert torch.equal(images, before)
    assert torch.equal(floats, before.float())


@pytest.mark.parametrize("padding", ["zeros", "reflect"])
def test_the_smallest_images_have_strong_views(padding):
    for side in (1, 2, 3):
        x = torch.full((4, 1, side, side), 7, dtype=torch.uint8)
        strong = ImageTransform((0.5,), (0.5,), padding=padding)(x, torch.arange(4), 1, strong=True)
        assert strong.shape == x.shape
        assert strong.isfinite().all()


def test_strong_vectors_are_jittered_three_times_as_much_as_views():
    x = torch.randn(4000, 6, generator=torch.Generator().manual_seed(0))
    ids = torch.arange(4000)
    transform = VectorTransform((1.0,) * 6, (2.0,) * 6)
    noise = transform(x, ids, 3, strong=True) - transform(x, ids, 3)
    assert noise.std().item() == pytest.approx(3 * JITTER, rel=0.02)
    assert abs(noise.mean().item()) < 0.01
    ordinary = normals(3, ids, 6)  # the jitter that a second view gets on top
    assert abs(np.corrcoef(noise.flatten(), ordinary.flatten())[0, 1]) < 0.03
