"""In-memory CIFAR input (crop, flip, normalise, batch): the product's batched pipeline against per-image torchvision.

Both sides start from the same uint8 images in memory and end with shuffled float32 batches, in one process and one
thread (images one by one cannot use more). They take turns, pair by pair, so that what else the machine does meets
both.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.pairs import compare, interval, ratio
from elr.data import ImageTransform
from elr.data.augment import CIFAR10
from elr.data.inputs import TensorInputs
from elr.data.stream import Stream, TrainData
from elr.parts.clock import Clock

IMAGES = 10_240
SLOW_IMAGES = 1_024  # the per-image side is timed on fewer and scaled


def product(x: Tensor, y: Tensor, batch_size: int) -> Callable[[], int]:
    """A pass over the data as the engine makes it."""
    transform = ImageTransform(*CIFAR10, pad=4, flip=True)
    data = TrainData(
        TensorInputs(x),
        y,
        10,
        transform,
        ids=torch.arange(len(x)),
        batch_size=batch_size,
        device=torch.device("cpu"),
    )
    epochs = iter(range(1 << 30))

    def sweep() -> int:
        return sum(len(batch.x) for batch in data.batches(Stream(), Clock(0, epoch=next(epochs))))

    return sweep


def per_image(x: Tensor, y: Tensor, batch_size: int) -> Callable[[], int]:
    """The usual Dataset of PIL images with torchvision transforms behind a DataLoader, no workers."""
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset
    from torchvision import transforms

    class Pictures(Dataset[Any]):
        def __init__(self) -> None:
            self.pixels = x.permute(0, 2, 3, 1).contiguous().numpy()
            self.labels = y.tolist()
            self.transform = transforms.Compose(
                [
                    transforms.RandomCrop(32, padding=4),
                    transforms.RandomHorizontalFlip(),
                    transforms.ToTensor(),
                    transforms.Normalize(*CIFAR10),
                ]
            )

        def __len__(self) -> int:
            return len(self.labels)

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            return self.transform(Image.fromarray(self.pixels[index])), self.labels[index]

    loader: DataLoader[Any] = DataLoader(Pictures(), batch_size=batch_size, shuffle=True)
    return lambda: sum(len(images) for images, _ in loader)


def run(batch_size: int = 128, rounds: int = 21) -> dict[str, Any]:
    """Measure; microseconds per image of both sides and their ratio."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (IMAGES, 3, 32, 32), dtype=torch.uint8, generator=generator)
    y = torch.randint(0, 10, (IMAGES,), generator=generator)
    sides = {
        "elr": product(x, y, batch_size),
        "torchvision": per_image(x[:SLOW_IMAGES], y[:SLOW_IMAGES], batch_size),
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        taken = compare(sides, rounds)
    finally:
        torch.set_num_threads(threads)
    images = {"elr": IMAGES, "torchvision": SLOW_IMAGES}
    taken = {name: seconds / images[name] * 1e6 for name, seconds in taken.items()}
    return {
        "benchmark": "pipeline",
        "batch_size": batch_size,
        "rounds": rounds,
        "threads": 1,
        "microseconds_per_image": {name: interval(column) for name, column in taken.items()},
        "ratio": ratio(taken, "torchvision", "elr"),
    }
