"""A small convolutional network that reaches a given CIFAR-10 accuracy in the least CPU time.

The shape follows the line of speed-run networks of D. Page (ResNet-9, whitening), T. Balsam (hlb-CIFAR10) and K. Jordan
(airbench, arXiv 2404.00498): a frozen whitening convolution, three groups of two convolutions, no residual branches.
Measurements and the recipe: docs/fastnet.md.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

ACTIVATIONS = {"gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU}
SMALLEST = 9  # 2x2 stem, then three halvings: 9 -> 8 -> 4 -> 2 -> 1


class FastNet(nn.Module):
    """Whitening stem, three conv-pool-norm groups, global max pool, scaled linear head.

    Args:
        widths: output channels of the three groups; the stem has 24 channels for colour images.
        activation: gelu, relu or silu.
        head_scale: factor on the logits; small logits keep early gradients useful.
        bias_scale: learning-rate multiplier of the batch-norm biases, whose weight decay is divided by it.
        norm_momentum: weight of the newest batch in the running statistics.
        stem_bias: train the bias of the whitening layer; False saves the backward pass of the largest maps.
        whitening_eps: added to the eigenvalues, so that near-empty directions are not blown up to noise.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_classes: int,
        *,
        widths: tuple[int, int, int] = (24, 112, 128),
        activation: str = "gelu",
        head_scale: float = 1 / 9,
        bias_scale: float = 64.0,
        norm_momentum: float = 0.2,
        stem_bias: bool = False,
        whitening_eps: float = 5e-4,
    ) -> None:
        super().__init__()
        if len(input_shape) != 3 or min(input_shape[1:]) < SMALLEST:
            raise ValueError(
                f"fastnet needs images of at least {SMALLEST}x{SMALLEST} pixels, got inputs of shape"
                f" {tuple(input_shape)}; use small_cnn or mlp"
            )
        if len(widths) != 3:
            raise ValueError(f"fastnet has three groups, got widths {tuple(widths)}")
        if min(widths) < 1:
            raise ValueError(f"fastnet needs widths of at least 1, got {tuple(widths)}")
        if not (bias_scale > 0 and whitening_eps >= 0 and 0 < norm_momentum <= 1):
            raise ValueError(
                "fastnet needs a bias_scale above 0, a whitening_eps of at least 0 and a norm_momentum in (0, 1], got"
                f" {bias_scale}, {whitening_eps} and {norm_momentum}"
            )
        if activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}, choose one of {', '.join(ACTIVATIONS)}")
        self.head_scale = head_scale
        self.bias_scale = bias_scale
        self.whitening_eps = whitening_eps
        patch = input_shape[0] * 4  # values in a 2x2 patch
        self.stem = nn.Conv2d(input_shape[0], 2 * patch, 2)
        self._set_stem(nn.init.orthogonal_(torch.empty(patch, patch)))
        # Frozen from the start, prepared or not: a network rebuilt for resuming then has the same trainable parameters.
        self.stem.weight.requires_grad_(False)
        assert self.stem.bias is not None
        nn.init.zeros_(self.stem.bias).requires_grad_(stem_bias)
        act = ACTIVATIONS[activation]
        layers: list[nn.Module] = [act()]
        before = 2 * patch
        for width in widths:
            layers += [_conv(before, width), nn.MaxPool2d(2), _norm(width, norm_momentum), act()]
            layers += [_conv(width, width), _norm(width, norm_momentum), act()]
            before = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(before, num_classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, C) of images (B, channels, height, width)."""
        x = self.body(self.stem(x))
        logits: Tensor = self.head(x.amax((2, 3))) * self.head_scale
        return logits

    @torch.no_grad()
    def prepare(self, x: Tensor) -> None:
        """Set the stem to whiten the 2x2 patches of these normalised inputs (N, channels, height, width)."""
        weight = self.stem.weight
        size = weight.shape[1] * 4
        moment = torch.zeros(size, size, dtype=torch.float64)  # uncentred, as airbench has it; MPS has no float64
        count = 0
        for part in torch.split(x, 500):
            patches = functional.unfold(part.to(weight), 2).transpose(0, 1).flatten(1)  # (patch, 500 * places)
            moment += (patches @ patches.T).cpu()
            count += patches.shape[1]
        values, vectors = torch.linalg.eigh(moment / count)
        self._set_stem((vectors / (values + self.whitening_eps).sqrt()).T.to(weight.dtype))

    @torch.no_grad()
    def _set_stem(self, filters: Tensor) -> None:
        """Each filter and its negative: the activation then loses no half of any direction."""
        self.stem.weight.copy_(torch.cat([filters, -filters]).view_as(self.stem.weight))

    def optim_scales(self) -> dict[str, tuple[float, float]]:
        """(learning-rate, weight-decay) multipliers: fast biases make up for the frozen batch-norm scales."""
        return {
            f"body.{name}.bias": (self.bias_scale, 1 / self.bias_scale)
            for name, module in self.body.named_children()
            if isinstance(module, nn.BatchNorm2d)
        }


def _conv(before: int, after: int) -> nn.Conv2d:
    conv = nn.Conv2d(before, after, 3, padding=1, bias=False)
    with torch.no_grad():
        nn.init.dirac_(conv.weight[:before])  # the input passes through at the start, the other filters are random
    return conv


def _norm(width: int, momentum: float) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(width, momentum=momentum)
    norm.weight.requires_grad_(False)
    return norm
