"""Loss + target update, forward and backward: ELRLoss against a plain transcription of the authors' loss."""

import itertools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.pairs import compare, interval, ratio
from elr import ELRLoss

SIZES = ((128, 10), (128, 100), (128, 1000), (1024, 1000))
EXAMPLES = 300_000


class Transcription(nn.Module):
    """The authors' expressions as they stand in the fact sheet: clamp, normalise, average, two separate losses."""

    def __init__(self, num_examples: int, num_classes: int, lam: float = 3.0, beta: float = 0.7) -> None:
        super().__init__()
        self.target = torch.zeros(num_examples, num_classes)
        self.lam = lam
        self.beta = beta

    def forward(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        """The loss of a batch."""
        p = functional.softmax(logits, dim=1).clamp(1e-4, 1.0 - 1e-4)
        fixed = p.detach()
        fixed = fixed / fixed.sum(dim=1, keepdim=True)
        self.target[index] = self.beta * self.target[index] + (1.0 - self.beta) * fixed
        penalty = (1.0 - (self.target[index] * p).sum(dim=1)).log().mean()
        return functional.cross_entropy(logits, labels) + self.lam * penalty


def run(rounds: int = 41, repeat: int = 20) -> dict[str, Any]:
    """Measure every size."""
    rows = []
    for batch, classes in SIZES:
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(batch, classes, generator=generator)
        labels = torch.randint(0, classes, (batch,), generator=generator)
        order = torch.randperm(EXAMPLES, generator=generator)
        sides = {}
        for name, criterion in (
            ("elr", ELRLoss(EXAMPLES, classes)),
            ("transcription", Transcription(EXAMPLES, classes)),
        ):
            batches = itertools.cycle(torch.split(order[: batch * 200], batch))

            def side(
                z: Tensor = logits, y: Tensor = labels, criterion: nn.Module = criterion, batches: Any = batches
            ) -> None:
                criterion(z.detach().requires_grad_(), y, next(batches)).backward()

            sides[name] = side
        taken = compare(sides, rounds, repeat=max(1, repeat if classes <= 100 else repeat // 5))
        rows.append(
            {
                "batch": batch,
                "classes": classes,
                "microseconds": {name: interval(values * 1e6) for name, values in taken.items()},
                "transcription / elr": ratio(taken, "transcription", "elr"),
            }
        )
    return {"benchmark": "loss", "examples": EXAMPLES, "rounds": rounds, "rows": rows}
