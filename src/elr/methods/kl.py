"""The regularizer the paper argues against: pull p towards the targets by their cross entropy."""

from torch import Tensor

from elr.data.stream import Batch
from elr.losses import cross_entropy, target_cross_entropy
from elr.losses.elr import check_elr
from elr.methods.base import MakeNet, Method, Step
from elr.methods.ce import CE
from elr.parts.clock import Clock
from elr.parts.table import ExampleTable


class KL(Method):
    """CE + lam * H(t, p), t a running average as in ELR. Delays memorisation but does not prevent it.

    Args:
        lam: strength of the pull; 1, 5 and 10 in the paper.
        beta: memory of the running average, in [0, 1).
    """

    reference = "Liu et al., NeurIPS 2020, Section C, Eq. (17)"
    equation = "L = L_CE - (lam/n) sum_i <t_i, log p_i>,  t_i <- beta t_i + (1 - beta) p_i"
    published = "no number; the curves of Section C at 40 % symmetric noise show that it ends up memorising"
    authors = CE.authors
    per_example = "C floats (the target)"

    def __init__(self, *, lam: float = 1.0, beta: float = 0.7) -> None:
        super().__init__()
        check_elr(lam, beta, None)
        self.lam = lam
        self.beta = beta

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """One network and one target for each example."""
        super().build(make_net, num_examples, num_classes)
        self.targets = ExampleTable(num_examples, num_classes)

    def belief(self) -> Tensor:
        """The targets."""
        return self.targets.values.unsqueeze(0)

    def pull(self, p: Tensor) -> Tensor:
        """PAPER Eq. 18: lam (p - t) if the target sums to 1; until its average has settled, lam (p sum(t) - t)."""
        t = self.targets.values
        return self.lam * (p * t.sum(dim=1, keepdim=True) - t)

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Update the targets, then the loss with the new ones."""
        logits = self.nets[0](batch.x)
        t = self.targets.average_in(batch.index, logits.detach().float().softmax(dim=1), self.beta)
        ce = cross_entropy(logits, batch.y).mean()
        penalty = target_cross_entropy(logits, t).mean()
        log = {"ce": ce.detach(), "penalty": penalty.detach()}
        return Step(ce + self.lam * penalty, len(batch.y), seen=(batch.index, logits.detach()), log=log)
