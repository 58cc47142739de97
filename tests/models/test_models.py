"""Every network by name: shapes, gradients, sizes, and errors a user can cause."""

import inspect

import pytest
import torch
from torch import nn

from elr.models import MODELS, constructor, hyperparameters, make_model

IMAGE_SHAPES = [(1, 8, 8), (3, 12, 10), (3, 32, 32)]
ANY_SHAPES = [(16,), *IMAGE_SHAPES]
SMALL = {
    "resnet18": {"width": 8},
    "resnet34": {"width": 8},
    "preact_resnet18": {"width": 8},
    "fastnet": {"widths": (16, 32, 32)},
}


def cases() -> list[tuple[str, tuple[int, ...]]]:
    pairs = []
    for name in MODELS:
        shapes = ANY_SHAPES if name in ("linear", "mlp") else IMAGE_SHAPES
        pairs += [(name, shape) for shape in shapes if not (name == "fastnet" and shape[1] < 9)]
    return pairs


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(("name", "shape"), cases())
def test_logits_have_one_column_per_class_and_gradients_are_finite(name: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model = make_model(name, shape, 7, **SMALL.get(name, {}))
    logits = model(torch.randn(4, *shape))
    assert logits.shape == (4, 7)
    nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2, 6])).backward()
    trained = [p for p in model.parameters() if p.requires_grad]
    assert trained
    assert all(p.grad is not None and p.grad.isfinite().all() for p in trained)
    assert any((p.grad != 0).any() for p in trained if p.grad is not None)


@pytest.mark.parametrize("name", MODELS)
def test_initialisation_depends_on_torchs_global_seed_only(name: str) -> None:
    shape = (3, 12, 12)
    states = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        states.append(torch.cat([p.flatten() for p in make_model(name, shape, 5, **SMALL.get(name, {})).parameters()]))
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


@pytest.mark.parametrize("name", [name for name in MODELS if name != "linear"])
def test_evaluation_mode_gives_each_example_its_own_answer(name: str) -> None:
    model = make_model(name, (3, 16, 16), 4, **SMALL.get(name, {})).eval()
    x = torch.randn(5, 3, 16, 16)
    torch.testing.assert_close(model(x)[2:3], model(x[2:3]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("linear", "mlp")])
def test_channels_last_changes_nothing_but_rounding(name: str) -> None:
    model = make_model(name, (3, 16, 16), 4, **SMALL.get(name, {})).eval()
    x = torch.randn(3, 3, 16, 16)
    expected = model(x)
    model = model.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), expected, rtol=1e-4, atol=1e-5)


# By hand, bias-free convolutions k*k*in*out, BN 2*channels, per basic block of equal width c: 18c^2 + 4c.
#   stem                     3*3*3*64 + 128                                    =      1,856
#   stage 64:   per block    2*36,864 + 256                                    =     73,984
#   stage 128:  first        73,728 + 147,456 + 512 + (64*128 + 256)           =    230,144   further    295,424
#   stage 256:  first        294,912 + 589,824 + 1,024 + (128*256 + 512)       =    919,040   further  1,180,672
#   stage 512:  first        1,179,648 + 2,359,296 + 2,048 + (256*512 + 1,024) =  3,673,088   further  4,720,640
#   head                     512*10 + 10                                       =      5,130
RESNET18 = 1_856 + 2 * 73_984 + 230_144 + 295_424 + 919_040 + 1_180_672 + 3_673_088 + 4_720_640 + 5_130
RESNET34 = 1_856 + 3 * 73_984 + 230_144 + 3 * 295_424 + 919_040 + 5 * 1_180_672 + 3_673_088 + 2 * 4_720_640 + 5_130
# Pre-activation: no BN on projections (-256 -512 -1,024), first BN of a widening block on its input (-128 -256 -512),
# no stem BN (-128), a final BN of 512 channels (+1,024).
PREACT18 = RESNET18 - 1_792 - 896 - 128 + 1_024


@pytest.mark.parametrize(
    ("name", "arguments", "count"),
    [
        ("resnet18", {}, 11_173_962),
        ("resnet34", {}, 21_282_122),
        ("preact_resnet18", {}, 11_172_170),
        ("preact_resnet18", {"final_bn": False}, 11_172_170 - 1_024 + 128),
        (
            "fastnet",
            {},
            24 * 12
            + 24  # whitening
            + 9 * (24 * 24 + 24 * 24 + 24 * 112 + 112 * 112 + 112 * 128 + 128 * 128)
            + 2 * (2 * 24 + 2 * 112 + 2 * 128)
            + 1280,
        ),
    ],
)
def test_parameter_counts_are_those_of_the_published_architectures(name: str, arguments: dict, count: int) -> None:
    assert parameters(make_model(name, (3, 32, 32), 10, **arguments)) == count


def test_the_hand_computed_counts_are_the_literal_ones() -> None:
    assert (RESNET18, RESNET34, PREACT18) == (11_173_962, 21_282_122, 11_172_170)


def test_authors_preact_variant_has_its_norm_after_the_stem_and_not_before_the_pool() -> None:
    standard = make_model("preact_resnet18", (3, 8, 8), 10, width=8)
    authors = make_model("preact_resnet18", (3, 8, 8), 10, width=8, final_bn=False)
    assert standard.stem_bn is None
    assert isinstance(standard.final_bn, nn.BatchNorm2d)
    assert isinstance(authors.stem_bn, nn.BatchNorm2d)
    assert authors.final_bn is None
    assert (authors.layers(torch.randn(2, 8, 8, 8)).mean((2, 3)) < 0).any()  # what is pooled is not rectified


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("resnet43", (3, 32, 32), 10), "unknown model 'resnet43'; did you mean 'resnet34'?"),
        (("zzz", (3, 32, 32), 10), "choose one of linear, mlp"),
        (("fastnet", (3, 8, 8), 10), "at least 9x9 pixels"),
        (("fastnet", (64,), 10), "use small_cnn or mlp"),
        (("small_cnn", (64,), 10), "use mlp"),
        (("resnet18", (64,), 10), "needs images"),
        (("preact_resnet18", (64,), 10), "needs images"),
        (("linear", (4,), 1), "at least 2 classes"),
    ],
)
def test_a_name_or_shape_that_cannot_work_gets_one_clear_sentence(call: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")) as error:
        make_model(*call)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("mlp", {"hiden": (3,)}, "model 'mlp' has no argument 'hiden'; did you mean 'hidden'"),
        ("mlp", {"zzz": 1}, "it takes hidden, dropout, batch_norm"),
        ("mlp", {"hidden": (0,)}, "at least 1"),
        ("mlp", {"dropout": 1.0}, r"dropout in \[0, 1\)"),
        ("fastnet", {"widths": (8, 8)}, "three groups"),
        ("fastnet", {"activation": "tanh"}, "gelu, relu, silu"),
        ("fastnet", {"widths": (0, 8, 8)}, "widths of at least 1"),
        ("fastnet", {"bias_scale": 0.0}, "bias_scale"),
        ("fastnet", {"whitening_eps": -1.0}, "whitening_eps"),
        ("fastnet", {"norm_momentum": 5.0}, "norm_momentum"),
        ("small_cnn", {"dropout": float("nan")}, r"dropout in \[0, 1\)"),
        ("resnet18", {"width": 0}, "width of at least 1"),
        ("preact_resnet18", {"width": -1}, "width of at least 1"),
    ],
)
def test_an_argument_that_cannot_work_gets_one_clear_sentence(name: str, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_model(name, (3, 32, 32), 10, **arguments)


@pytest.mark.parametrize("name", [*MODELS, "timm:resnet18", "torchvision:resnet18"])
def test_hyperparameters_are_keyword_only_with_defaults_and_annotations(name: str) -> None:
    known = hyperparameters(name)
    assert all(p.default is not p.empty and p.annotation is not p.empty for p in known.values())
    positional = [p for p in inspect.signature(constructor(name)).parameters.values() if p.name not in known]
    assert [p.name for p in positional] == ["input_shape", "num_classes"]


@pytest.mark.parametrize("name", ["resnet18", "resnet34"])
@pytest.mark.parametrize(
    ("side", "stem", "kernel"), [(32, "auto", 3), (64, "auto", 3), (96, "auto", 7), (96, "small", 3), (32, "large", 7)]
)
def test_the_stem_of_a_resnet_fits_the_image(name, side, stem, kernel):
    net = make_model(name, (3, side, side), 4, width=8, stem=stem)
    assert net.conv1.kernel_size == (kernel, kernel)
    with torch.no_grad():
        reach = net.pool(net.conv1(torch.zeros(1, 3, side, side))).shape[-1]
    assert reach == (side if kernel == 3 else side // 4)
    assert net(torch.zeros(2, 3, side, side)).shape == (2, 4)
