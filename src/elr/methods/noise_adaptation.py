"""Noise adaptation layer: a second softmax on top of the first learns how labels are confused."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from elr.data.stream import Batch, TrainData
from elr.losses import cross_entropy
from elr.losses.correction import noisy_nll
from elr.methods.base import MakeNet, Method, Stage, Step, check_choice, check_range, epochs_of, shares, sweep
from elr.parts.clock import Clock
from elr.parts.features import head, penultimate

Form = Literal["simple", "complex"]
Count = Literal["hard", "soft"]
PRIOR = 0.46  # of a label being wrong, where there is no pre-trained network to count with


class NoiseAdaptation(Method):
    """A layer of softmax rows, T, learned on top of p with the network: -log (p T)_y; predictions leave it off.

    Without anything that says which hidden class is which, T and p are known up to a permutation of the classes only:
    the start decides. So cross entropy comes first, and T starts as the confusion of its predictions with the labels.

    Args:
        form: one T for all inputs (simple), or rows that depend on the features of the input (complex).
        pretrain: epochs of cross entropy first, a fraction of the run if at most 1; 0: none, and T starts with 54 % on
            the diagonal.
        count: the confusion counts predicted classes (hard, the authors' code) or probabilities (soft, the paper).
        beta: weight of plain cross entropy beside the adapted one, in [0, 1).
    """

    reference = "Goldberger and Ben-Reuven, ICLR 2017, Eq. (3)-(5)"
    equation = "-log sum_i p_i softmax_y(b_i)   [complex: softmax_y(u_i. h(x) + b_i)]"
    passes = "1 forward and backward; 1 sweep in the run"
    # DEVIATES from authors' code: the epoch with the best noisy-validation accuracy, because the engine chooses so for
    # every method; they stop when the validation loss has not fallen for 4 epochs, and take the weights they stop with.
    keeps = "selected"
    authors: ClassVar[Mapping[str, Any]] = {  # at most 40 epochs for the start, 40 with the layer
        "epochs": 80,
        "optim.name": "adam",
        "optim.lr": 1e-3,
        "optim.weight_decay": 0.0,
        "optim.batch_size": 256,
        "schedule.name": "constant",
    }

    def __init__(
        self, *, form: Form = "simple", pretrain: float = 0.5, count: Count = "hard", beta: float = 0.0
    ) -> None:
        super().__init__()
        check_choice("form", form, get_args(Form))
        check_range("pretrain", pretrain, 0.0, float("inf"))
        check_choice("count", count, get_args(Count))
        check_range("beta", beta, 0.0, 1.0, open_high=True)
        self.form = form
        self.pretrain = pretrain
        self.count = count
        self.beta = beta

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """One network, and the second softmax."""
        super().build(make_net, num_examples, num_classes)
        self.bias = nn.Parameter(prior(num_classes).log())  # b, (C, C)
        if self.form == "complex":
            self.weight = nn.Parameter(torch.zeros(num_classes**2, head(self.nets[0]).in_features))  # u, (C^2, D)

    def optim_scales(self) -> Mapping[str, tuple[float, float]]:
        """No weight decay: it would pull T towards uniform rows."""
        names = ("bias",) if self.form == "simple" else ("bias", "weight")
        return dict.fromkeys(names, (1.0, 0.0))

    def plan(self, epochs: int) -> list[Stage]:
        """Cross entropy, then the same network with the layer."""
        if self.pretrain == 0:
            return [Stage(epochs)]
        first = epochs_of(self.pretrain, epochs)
        before, after = shares(epochs, first, max(epochs - first, 0.0))
        return [Stage(before, keep="selected"), Stage(after)]

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Cross entropy in the first stage, then cross entropy behind the layer."""
        net = self.nets[0]
        adapts = self.pretrain == 0 or clock.stage == 1
        with penultimate(net) if self.form == "complex" else nullcontext([None]) as features:
            logits = net(batch.x)
        loss = self.adapted(logits, batch.y, features[-1]) if adapts else cross_entropy(logits, batch.y).mean()
        log = {"diagonal": self.transition.diagonal().mean()}
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()), log=log)

    def adapted(self, logits: Tensor, labels: Tensor, features: Tensor | None) -> Tensor:
        """Mean loss behind the layer, and ``beta`` of it before."""
        scores: Tensor = self.bias
        if features is not None:
            scores = scores + (features.to(self.weight.dtype) @ self.weight.T).view(-1, *scores.shape)  # (B, C, C)
        loss = noisy_nll(logits, labels, scores.float().log_softmax(dim=-1)).mean()
        return torch.lerp(loss, cross_entropy(logits, labels).mean(), self.beta) if self.beta > 0.0 else loss

    def finish(self, stage: int, data: TrainData) -> None:
        """After pre-training, start T from the confusion of predictions with labels."""
        if stage == 0 and self.pretrain > 0:
            # DEVIATES from authors' code: counted over the training part only, because methods never see validation
            # data.
            p = sweep(self.predict, data)
            with torch.no_grad():
                self.bias.copy_(torch.log(confusion(p, data.y, hard=self.count == "hard") + 1e-8))

    @property
    def transition(self) -> Tensor:
        """T, (C, C), of an input whose features are zero."""
        return self.bias.detach().softmax(dim=1)


def prior(num_classes: int) -> Tensor:
    """54 % on the diagonal, the rest spread evenly."""
    # DEVIATES from authors' code: nothing random is added to its logarithm (.01 U(0, 1) there), because each row
    # has a diagonal of its own to tell it apart.
    return torch.full((num_classes, num_classes), PRIOR / (num_classes - 1)).fill_diagonal_(1.0 - PRIOR)


def confusion(p: Tensor, labels: Tensor, *, hard: bool) -> Tensor:
    """P(label j | predicted i), (C, C), counted over p, (n, C); the prior's row for a class that is never predicted."""
    num_classes = p.shape[1]
    weight = nn.functional.one_hot(p.argmax(dim=1), num_classes).to(p.dtype) if hard else p
    counts = weight.T @ nn.functional.one_hot(labels, num_classes).to(p.dtype)
    totals = counts.sum(dim=1, keepdim=True)
    return torch.where(totals > 0, counts / totals.clamp_min(1e-12), prior(num_classes).to(p))
