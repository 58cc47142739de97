"""SOP: variables of each example's own absorb a label that the network does not believe."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from elr.data.stream import Batch
from elr.losses.sop import FLOOR, sop_loss
from elr.methods.base import MakeNet, Method, Step, check_range
from elr.parts.clock import Clock
from elr.parts.table import ExampleTable


class SOP(Method):
    """Each example has noise variables of its own, so that a wrong label is explained by them and not by the network.

    Args:
        lr_u: learning rate of u, which adds to the given class; 10 for CIFAR-10 in the paper, 1 for CIFAR-100 (0.1 with
            asymmetric noise in their code). Constant, and divided by the batch size as the mean loss is.
        lr_v: learning rate of v, which takes from the other classes; 10 for symmetric noise in the paper, 100 for
            asymmetric. A short run needs a larger one: v grows by a factor of about 1 + 4 lr_v / B at each visit.
        init: standard deviation of u and v at the start.
        floor: least probability in the cross entropy; below it an example has no gradient. 1e-4 in the authors' code.
    """

    reference = "Liu, Zhu, Qu, You, ICML 2022 (Robust Training under Label Noise by Over-parameterization), Algorithm 1"
    equation = "CE(phi(p + u^2 y - v^2 (1-y)), y) + |e_argmax(p) + u^2 y - v^2 (1-y) - y|^2"
    per_example = "C + 1 floats (u, v)"
    published = "not in the paper's tables (it is newer)"
    authors: ClassVar[Mapping[str, Any]] = {
        "epochs": 120,
        "optim.lr": 0.02,
        "optim.momentum": 0.9,
        "optim.weight_decay": 5e-4,
        "optim.batch_size": 128,
        "schedule.name": "multistep",
        "schedule.milestones": (40, 80),
        "schedule.factor": 0.1,
    }

    def __init__(self, *, lr_u: float = 10.0, lr_v: float = 10.0, init: float = 1e-8, floor: float = FLOOR) -> None:
        super().__init__()
        check_range("lr_u", lr_u, 0.0, float("inf"), open_high=True)
        check_range("lr_v", lr_v, 0.0, float("inf"), open_high=True)
        check_range("init", init, 0.0, 1.0)
        check_range("floor", floor, 1e-30, 0.1)
        self.lr_u = lr_u
        self.lr_v = lr_v
        self.init = init
        self.floor = floor

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """One network; u and v of each example, drawn after it from the generator that initialised it."""
        super().build(make_net, num_examples, num_classes)
        self.u = ExampleTable(num_examples, 1)
        self.v = ExampleTable(num_examples, num_classes)
        for table in (self.u, self.v):
            nn.init.normal_(table.values, std=self.init)

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Loss with the noise variables of the batch, which take their own step after the network's."""
        logits = self.nets[0](batch.x)
        u, v = self.u.rows(batch.index).requires_grad_(), self.v.rows(batch.index).requires_grad_()
        parts = sop_loss(logits, batch.y, u, v, floor=self.floor)
        log = {"ce": parts.ce.mean(), "mse": parts.mse.mean(), "u_square": u.detach().square().mean()}
        return Step(
            parts.loss.mean(),
            len(batch.y),
            seen=(batch.index, logits.detach()),
            log=log,
            then=partial(self.absorb, batch.index, u, v),
        )

    @torch.no_grad()
    def absorb(self, index: Tensor, u: Tensor, v: Tensor) -> None:
        """Gradient step of u and v without momentum or decay, then back into [-1, 1]."""
        # DEVIATES from authors' code: u and v themselves stay in [-1, 1], as in the paper's Algorithm 1; their code
        # clamps u^2 and v^2 inside the loss, because of which a variable beyond 1 has no gradient and never comes back.
        steps: tuple[tuple[ExampleTable, Tensor, float], ...] = ((self.u, u, self.lr_u), (self.v, v, self.lr_v))
        for table, rows, lr in steps:
            assert rows.grad is not None
            table.write(index, rows.sub(rows.grad, alpha=lr).clamp_(-1.0, 1.0))
