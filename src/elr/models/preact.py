"""Pre-activation residual network (He et al. 2016b) in its CIFAR form; the network of the paper's ELR+ rows."""

from torch import Tensor, nn
from torch.nn import functional


class PreActBlock(nn.Module):
    """BN-ReLU-conv twice; a projection shortcut starts from the activated input, an identity from the raw one."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(before)
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.shortcut: nn.Conv2d | None = None
        if stride != 1 or before != after:
            self.shortcut = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, before, H, W) -> (B, after, H / stride, W / stride)."""
        out: Tensor = functional.relu(self.bn1(x))
        skip = x if self.shortcut is None else self.shortcut(out)
        out = self.conv2(functional.relu(self.bn2(self.conv1(out)))) + skip
        return out


class PreActResNet18(nn.Module):
    """Four stages of two pre-activation blocks, global average pool, linear head.

    Args:
        width: channels of the first stage.
        final_bn: True is the published architecture: plain stem, BN-ReLU before pooling. False is the layout of the
            authors' code: BN-ReLU after the stem, none before pooling.
    """

    def __init__(
        self, input_shape: tuple[int, ...], num_classes: int, *, width: int = 64, final_bn: bool = True
    ) -> None:
        super().__init__()
        if len(input_shape) != 3:
            raise ValueError(
                f"preact_resnet18 needs images (channels, height, width), got inputs of shape {tuple(input_shape)}"
            )
        if width < 1:
            raise ValueError(f"preact_resnet18 needs a width of at least 1, got {width}")
        # DEVIATES from authors' code: a final BN by default, because without it the pooled sum of two branches is
        # neither normalised nor rectified and the architecture is not the cited one; final_bn=False restores theirs.
        self.conv1 = nn.Conv2d(input_shape[0], width, 3, padding=1, bias=False)
        self.stem_bn = None if final_bn else nn.BatchNorm2d(width)
        layers: list[nn.Module] = []
        before = width
        for stage in range(4):
            after = width * 2**stage
            layers += [PreActBlock(before, after, 2 if stage else 1), PreActBlock(after, after, 1)]
            before = after
        self.layers = nn.Sequential(*layers)
        self.final_bn = nn.BatchNorm2d(before) if final_bn else None
        self.fc = nn.Linear(before, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, C) of images (B, channels, height, width) of any size."""
        x = self.conv1(x)
        if self.stem_bn is not None:
            x = functional.relu(self.stem_bn(x))
        x = self.layers(x)
        if self.final_bn is not None:
            x = functional.relu(self.final_bn(x))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits
