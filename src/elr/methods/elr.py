"""ELR: one network, targets by temporal ensembling."""

from torch import Tensor

from elr.data.stream import Batch
from elr.losses import ELRLoss
from elr.losses.elr import check_elr, elr_pull
from elr.methods.base import MakeNet, Method, Step
from elr.methods.ce import CE
from elr.parts.clock import Clock


class ELR(Method):
    """CE + lam * log(1 - <p, t>), where t is a running average of the network's own predictions.

    Args:
        lam: strength of the penalty; 3 for CIFAR-10, 7 for CIFAR-100, 1 for asymmetric noise in the paper.
        beta: memory of the running average, in [0, 1); .7 or .9 in the paper.
        floor: p is clamped to [floor, 1 - floor] on its way into the target; none means min(1e-4, 1e-2 / C).
        clamp_penalty: also clamp p inside the penalty, as the authors' code does.
    """

    reference = "Liu et al., NeurIPS 2020, Algorithm 1, Eq. (6) and (9)"
    equation = "L = L_CE + (lam/n) sum_i log(1 - <p_i, t_i>),  t_i <- beta t_i + (1 - beta) p_i"
    published = (
        "Table 1, CIFAR-10, ResNet-34: 91.16, 89.15, 86.12, 73.86 at 20, 40, 60, 80 % symmetric, 90.12 at 40 % asym.; "
        "with cosine annealing 92.12, 91.43, 88.87, 80.69 and 90.35"
    )
    authors = CE.authors  # PAPER Section G.3: one schedule for every row of Table 1
    per_example = "C floats (the target)"

    def __init__(
        self, *, lam: float = 3.0, beta: float = 0.7, floor: float | None = None, clamp_penalty: bool = False
    ) -> None:
        super().__init__()
        check_elr(lam, beta, floor)
        self.lam = lam
        self.beta = beta
        # DEVIATES from paper: p is floored on its way into the target, as in the authors' code; floor=0 is the paper.
        self.floor = floor
        # DEVIATES from authors' code: p is not clamped inside the penalty, because that is Eq. (6) and Lemma 2; five
        # seeds of digits and one of CIFAR-10 show no clear difference in accuracy, little in memorisation: docs/LOG.md.
        self.clamp_penalty = clamp_penalty

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """One network and one target for each example."""
        super().build(make_net, num_examples, num_classes)
        self.criterion = ELRLoss(
            num_examples, num_classes, self.lam, self.beta, floor=self.floor, clamp_penalty=self.clamp_penalty
        )

    def belief(self) -> Tensor:
        """The targets."""
        return self.criterion.targets.values.unsqueeze(0)

    def pull(self, p: Tensor) -> Tensor | None:
        """PAPER Lemma 2: lam g."""
        return elr_pull(p, self.criterion.targets.values, self.lam)

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Update the targets, then the loss with the new ones."""
        logits = self.nets[0](batch.x)
        loss = self.criterion(logits, batch.y, batch.index)
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()), log=self.criterion.last._asdict())
