"""What is special about fastnet: the whitening stem, the fast biases, the identity start."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from elr.models.fastnet import FastNet


def correlated(channels: int = 3) -> Tensor:
    """Smooth images whose channels share most of their content, like photographs."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, channels, 14, 14, generator=generator)
    shared = torch.randn(300, 1, 14, 14, generator=generator)
    return functional.avg_pool2d(x + 2 * shared, 3, stride=1) + 0.3


@pytest.mark.parametrize("channels", [1, 3])
def test_prepared_stem_whitens_the_patches_it_was_shown(channels: int) -> None:
    x = correlated(channels)
    net = FastNet((channels, 12, 12), 10, whitening_eps=0.0)
    net.prepare(x)
    patch = 4 * channels
    out = net.stem(x).transpose(0, 1).flatten(1)  # (2 * patch, N * places)
    moment = out[:patch] @ out[:patch].T / out.shape[1]
    torch.testing.assert_close(moment, torch.eye(patch), atol=2e-3, rtol=0)
    torch.testing.assert_close(out[patch:], -out[:patch])


def test_unprepared_stem_does_not_whiten_correlated_data() -> None:
    x = correlated()
    out = FastNet((3, 12, 12), 10).stem(x).transpose(0, 1).flatten(1)
    moment = out[:12] @ out[:12].T / out.shape[1]
    assert (moment - torch.eye(12)).abs().max() > 0.5


def test_eps_keeps_empty_directions_finite() -> None:
    net = FastNet((3, 12, 12), 10)
    net.prepare(torch.zeros(10, 3, 12, 12))
    assert net.stem.weight.isfinite().all()


def test_preparing_leaves_trainable_parameters_and_random_state_alone() -> None:
    net = FastNet((3, 12, 12), 10)
    before = {name: p.clone() for name, p in net.named_parameters() if p.requires_grad}
    state = torch.get_rng_state()
    net.prepare(correlated())
    assert torch.equal(torch.get_rng_state(), state)
    after = {name: p for name, p in net.named_parameters() if p.requires_grad}
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_stem_and_norm_scales_are_frozen_and_stem_bias_is_a_choice() -> None:
    frozen = {name for name, p in FastNet((3, 32, 32), 10).named_parameters() if not p.requires_grad}
    norms = {f"body.{i}.weight" for i, m in enumerate(FastNet((3, 32, 32), 10).body) if isinstance(m, nn.BatchNorm2d)}
    assert len(norms) == 6
    assert frozen == {"stem.weight", "stem.bias"} | norms
    assert FastNet((3, 32, 32), 10, stem_bias=True).stem.bias.requires_grad


def test_optim_scales_name_exactly_the_trainable_norm_biases() -> None:
    net = FastNet((3, 32, 32), 10, bias_scale=32.0)
    scales = net.optim_scales()
    assert set(scales.values()) == {(32.0, 1 / 32)}
    trainable = {name for name, p in net.named_parameters() if p.requires_grad}
    assert scales.keys() <= trainable
    assert trainable - scales.keys() == {name for name in trainable if name.endswith("weight")}


def test_first_filters_of_every_convolution_start_as_the_identity() -> None:
    net = FastNet((3, 32, 32), 10)
    for conv in (m for m in net.body if isinstance(m, nn.Conv2d)):
        same = min(conv.in_channels, conv.out_channels)
        x = torch.randn(1, conv.in_channels, 5, 5)
        torch.testing.assert_close(conv(x)[:, :same], x[:, :same])


def test_logits_scale_with_head_scale() -> None:
    x = torch.randn(2, 3, 16, 16)
    torch.manual_seed(0)
    small = FastNet((3, 16, 16), 10).eval()
    torch.manual_seed(0)
    large = FastNet((3, 16, 16), 10, head_scale=1.0).eval()
    torch.testing.assert_close(small(x) * 9, large(x))


def test_a_few_steps_learn_a_separable_problem_with_and_without_preparation() -> None:
    x = correlated()[:64]
    y = (x.mean((1, 2, 3)) > 0.3).long()
    for prepare in (False, True):
        torch.manual_seed(0)
        net = FastNet((3, 12, 12), 2, widths=(16, 16, 16))
        if prepare:
            net.prepare(x)
        optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.5, momentum=0.9)
        losses = []
        for _ in range(30):
            loss = functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.5 * losses[0]
