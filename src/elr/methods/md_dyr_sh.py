"""MD-DYR-SH: M-DYR-H with mixing weights from the mixture, and predictions that go from soft to hard."""

import torch
from torch import Tensor

from elr.data.stream import Batch
from elr.losses.corrected import corrected_labels, label_rows
from elr.methods.base import Step, check_range, epochs_of, part_of_run
from elr.methods.m_dyr_h import AUTHORS_EPOCHS, MDYRH
from elr.parts.clock import Clock
from elr.parts.mixup import Mix, draw_mix

COLDEST = 1e-3


class MDDYRSH(MDYRH):
    """Dynamic mixup, where the likelier right of two examples weighs more, with soft to hard bootstrapping.

    Plain mixup at first; then inputs are mixed by how right their labels look; then labels also give way to
    predictions, whose temperature falls until they are hard.

    Args:
        alpha: mixup draws its coefficient from Beta(alpha, alpha).
        start: epochs of plain mixup, a fraction of the run if at most 1.
        guide: epochs of dynamic mixup with the given labels after that, a fraction of the run if at most 1.
        cool: epochs in which the temperature of predictions falls from 1 to .001, a fraction of the run if at most 1.
        reg: weight of the divergence of the mean prediction of a batch from equal classes, once labels give way.
    """

    reference = "Arazo et al., ICML 2019, Eq. (4)-(8), (11)-(13)"
    equation = "CE(p(x~), (t_i + t_j) / 2) + reg KL(1/C || mean p),   t_i = (1 - w_i) y_i + w_i softmax(z_i / T)"
    published = (
        "Table 2, the better of M-DYR-H and MD-DYR-SH in each cell: CIFAR-10 94.0/92.0/86.8/69.1, "
        "CIFAR-100 73.9/66.1/48.2/24.3 at 20/50/80/90 %, CIFAR-10 asymmetric 40 % 87.4; "
        "MD-DYR-SH is 69.1 at 90 % (CIFAR-10)"
    )

    def __init__(
        self,
        *,
        alpha: float = 32.0,
        start: float = 105 / AUTHORS_EPOCHS,
        guide: float = 5 / AUTHORS_EPOCHS,
        cool: float = 89 / AUTHORS_EPOCHS,
        reg: float = 1.0,
    ) -> None:
        super().__init__(alpha=alpha, start=start, reg=reg)
        check_range("guide", guide, 0.0, float("inf"))
        check_range("cool", cool, 0.0, float("inf"))
        self.guide = guide
        self.cool = cool

    @property
    def cost(self) -> float:
        """As for M-DYR-H, but for a forward less while only inputs are mixed by the mixture."""
        guided = min(part_of_run(self.guide, AUTHORS_EPOCHS), 1.0 - part_of_run(self.start, AUTHORS_EPOCHS))
        return super().cost - guided / 3

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Mix by chance, then by the mixture, then by the mixture with labels that give way."""
        if clock.epoch < self._start(clock):
            return super().step(batch, clock)
        draw = draw_mix(clock.rng("mixup"), self.alpha, len(batch.y), batch.x.device, per_example=False)
        softening = clock.epoch - self._start(clock) - round(epochs_of(self.guide, clock.epochs))
        if softening < 0:
            wrong = self._wrong(batch)
            labels = label_rows(batch.y, self.num_classes)
            return self._mixed(batch, by_trust(wrong, draw.partner), draw, labels, wrong=wrong)
        unmixed = self._unmixed(batch.x)
        wrong = self._wrong(batch)
        heat = temperature(softening, round(epochs_of(self.cool, clock.epochs)))
        labels = corrected_labels(batch.y, (unmixed / heat).softmax(dim=1), wrong, self.num_classes)
        halves = Mix(torch.full_like(draw.weight, 0.5), draw.partner)
        inputs = by_trust(wrong, draw.partner)
        result = self._mixed(batch, inputs, halves, labels, reg=self.reg, unmixed=unmixed, wrong=wrong)
        result.log = {**result.log, "temperature": heat}
        return result


def by_trust(wrong: Tensor, partner: Tensor) -> Mix:
    """PAPER Eq. 11: inputs are mixed in proportion to how right their labels look."""
    trust = 1.0 - wrong
    return Mix(trust / (trust + trust[partner]), partner)


def temperature(epoch: int, length: int) -> float:
    """From 1 at the first epoch down to .001 at the last of ``length``, in equal steps, and there after."""
    return 1.0 - (1.0 - COLDEST) * min(epoch / max(length - 1, 1), 1.0)
