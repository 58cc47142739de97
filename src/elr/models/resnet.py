"""Residual networks (He et al. 2016a), with CIFAR's stem for small images and ImageNet's for large ones."""

from typing import Literal, get_args

from torch import Tensor, nn
from torch.nn import functional

Stem = Literal["auto", "small", "large"]
LARGE = 64  # pixels: above this the small stem would cost sixteen times as much for nothing


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around an identity, or around a 1x1 projection where the shape changes."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        """(B, before, H, W) -> (B, after, H / stride, W / stride)."""
        out: Tensor = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    """Stem, four stages of basic blocks of 1, 2, 4 and 8 times ``width`` channels, global average pool, linear head."""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_classes: int,
        *,
        blocks: tuple[int, int, int, int],
        width: int,
        stem: Stem,
    ) -> None:
        super().__init__()
        if len(input_shape) != 3:
            raise ValueError(
                f"a ResNet needs images (channels, height, width), got inputs of shape {tuple(input_shape)}"
            )
        if width < 1:
            raise ValueError(f"a ResNet needs a width of at least 1, got {width}")
        if stem not in get_args(Stem):
            raise ValueError(f"stem must be one of {', '.join(get_args(Stem))}, got {stem!r}")
        large = stem == "large" or (stem == "auto" and min(input_shape[1:]) > LARGE)
        kernel, stride = (7, 2) if large else (3, 1)
        self.conv1 = nn.Conv2d(input_shape[0], width, kernel, stride, padding=kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.pool: nn.Module = nn.MaxPool2d(3, 2, padding=1) if large else nn.Identity()
        layers: list[nn.Module] = []
        before = width
        for stage, count in enumerate(blocks):
            after = width * 2**stage
            for block in range(count):
                layers.append(BasicBlock(before, after, 2 if stage and not block else 1))
                before = after
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(before, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, C) of images (B, channels, height, width) of any size."""
        x = self.layers(self.pool(functional.relu(self.bn1(self.conv1(x)))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


def resnet18(input_shape: tuple[int, ...], num_classes: int, *, width: int = 64, stem: Stem = "auto") -> ResNet:
    """ResNet-18.

    Args:
        width: channels of the first stage.
        stem: small (3x3, stride 1, as for CIFAR), large (7x7, stride 2, max pool), or auto: large above 64 pixels.
    """
    return ResNet(input_shape, num_classes, blocks=(2, 2, 2, 2), width=width, stem=stem)


def resnet34(input_shape: tuple[int, ...], num_classes: int, *, width: int = 64, stem: Stem = "auto") -> ResNet:
    """ResNet-34; with the small stem the network of the paper's ELR rows on CIFAR.

    Args:
        width: channels of the first stage.
        stem: small (3x3, stride 1, as for CIFAR), large (7x7, stride 2, max pool), or auto: large above 64 pixels.
    """
    return ResNet(input_shape, num_classes, blocks=(3, 4, 6, 3), width=width, stem=stem)
