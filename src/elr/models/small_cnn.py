"""Three convolutions: quick on 8x8 digits, sensible up to 32x32."""

from torch import nn


class SmallCNN(nn.Sequential):
    """Conv-BN-ReLU three times, halving the map after the second and third, then a linear head on a 2x2 summary.

    Args:
        width: channels of the first convolution; the third has twice as many.
        dropout: probability of zeroing a feature before the head.
    """

    def __init__(
        self, input_shape: tuple[int, ...], num_classes: int, *, width: int = 32, dropout: float = 0.0
    ) -> None:
        if len(input_shape) != 3 or min(input_shape[1:]) < 4:
            raise ValueError(
                f"small_cnn needs images of at least 4x4 pixels, got inputs of shape {tuple(input_shape)}; use mlp"
            )
        if width < 1:
            raise ValueError(f"small_cnn needs a width of at least 1, got {width}")
        if not 0 <= dropout < 1:
            raise ValueError(f"small_cnn needs a dropout in [0, 1), got {dropout}")
        super().__init__(
            *_block(input_shape[0], width),
            *_block(width, width),
            nn.MaxPool2d(2),
            *_block(width, 2 * width),
            nn.MaxPool2d(2),
            nn.AdaptiveAvgPool2d(2),  # not 1: where a stroke is matters for digits
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(8 * width, num_classes),
        )


def _block(before: int, after: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()
