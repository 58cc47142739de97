"""DivideMix: two networks split the data for each other and treat suspect labels as missing."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from elr.data.stream import Batch, Stream, TrainData
from elr.losses import cross_entropy, target_cross_entropy
from elr.losses.consistency import prediction_mse
from elr.losses.label import wide
from elr.losses.semi import balance_penalty, negative_entropy
from elr.methods.base import MakeNet, Method, Pass, Step, check_range, epochs_of, sweep
from elr.parts.clock import Clock
from elr.parts.guess import guess_labels, published_lambda_u, refine_labels
from elr.parts.mixture import gaussian_clean_probability
from elr.parts.mixup import draw_mix
from elr.parts.ramp import rise
from elr.parts.select import USUAL_RATE, NoiseRate
from elr.parts.table import ExampleTable


class DivideMix(Method):
    """Two networks: each keeps the labels that the other finds likely, and guesses the rest together with it.

    After a warm-up with cross entropy, every epoch begins with a mixture of two Gaussians over the losses of each
    network. Labels with a probability above ``threshold`` of being right form the labelled part of the other network,
    all else its unlabelled part. Labelled examples get their label refined by the network's own predictions, unlabelled
    ones a label guessed by both networks, and all are mixed by mixup. Views of an example differ by augmentation; those
    of a vector, which has none, by jitter. A network left with fewer than two labels has an epoch of warm-up.

    Args:
        warmup: epochs of cross entropy before the first split, at least one: a fraction of the run if at most 1.
        confidence_penalty: subtract the entropy of predictions from the loss of the warm-up; for asymmetric noise.
        threshold: a label is kept if it is right with more than this probability; .6 at 90 % noise in the paper.
        temperature: sharpening of refined and guessed labels; 1 leaves them as they are.
        alpha: mixup draws its coefficient from Beta(alpha, alpha); 0 switches mixup off.
        lambda_u: weight of the unlabelled loss; with 0 unlabelled examples serve as partners of mixup only. None takes
            the authors' value for the noise level: 0, 25 or 50 for few classes, 25 or 150 from 32 classes on.
        rate: fraction of wrong labels that this choice rests on; none estimates it by the mixture after the warm-up.
        ramp_length: epochs in which lambda_u rises after the warm-up: a fraction of the run if at most 1.
        loss_memory: epochs whose losses are averaged before the mixture is fitted; 5 at 90 % noise in the paper.
    """

    reference = "Li et al., ICLR 2020, Algorithm 1"
    equation = (
        "L = CE(x, sharpen(w y + (1-w) p)) + lambda_u |p(u) - guess(u)|^2 + KL(1/C || mean p), all mixed by mixup"
    )
    passes = "18 forwards of each labelled example for each network (backward = 2), and 1 sweep"
    published = (
        "best epoch, CIFAR-10 sym 20/50/80/90 %: 96.1/94.6/93.2/76.0, asym 40 %: 93.4; CIFAR-100: 77.3/74.6/60.2/31.5, "
        "72.1 (Table 2); Clothing1M 74.76 (Table 3); WebVision 77.32 (Table 4)"
    )
    authors: ClassVar[Mapping[str, Any]] = {
        "epochs": 300,
        "optim.name": "sgd",
        "optim.lr": 0.02,
        "optim.momentum": 0.9,
        "optim.weight_decay": 5e-4,
        "optim.batch_size": 64,
        "schedule.name": "multistep",
        "schedule.milestones": (150,),
        "schedule.factor": 0.1,
    }
    per_example = "2 floats (probability of a right label), and 2 * loss_memory losses if that is above 1"
    batch_coupled = True  # mixup, and the penalty on the mean prediction
    views = 2

    def __init__(
        self,
        *,
        warmup: float = 10 / 300,
        confidence_penalty: bool = False,
        threshold: float = 0.5,
        temperature: float = 0.5,
        alpha: float = 4.0,
        lambda_u: float | None = None,
        rate: float | None = None,
        ramp_length: float = 16 / 300,
        loss_memory: int = 1,
    ) -> None:
        super().__init__()
        check_range("warmup", warmup, 0.0, float("inf"), open_high=True)
        check_range("threshold", threshold, 0.0, 1.0, open_high=True)
        check_range("temperature", temperature, 0.01, 100.0)
        check_range("alpha", alpha, 0.0, 1e6)
        check_range("ramp_length", ramp_length, 0.0, float("inf"), open_high=True)
        check_range("loss_memory", loss_memory, 1, 1000)
        if lambda_u is not None:
            check_range("lambda_u", lambda_u, 0.0, float("inf"), open_high=True)
        if rate is not None:
            check_range("rate", rate, 0.0, 1.0)
        # DEVIATES from authors' code: lengths are fractions of the run (10 and 16 of 300 epochs on CIFAR-10, warm-up of
        # 30 on CIFAR-100), because ten epochs of warm-up would be a sixth of a run of sixty.
        self.warmup = warmup
        self.confidence_penalty = confidence_penalty
        self.threshold = threshold
        self.temperature = temperature
        self.alpha = alpha
        # DEVIATES from authors' code: lambda_u follows the noise level, as in the paper; their default of 25 for all
        # is what most users stumble on.
        self.lambda_u = lambda_u
        self.rate = rate
        self.ramp_length = ramp_length
        self.loss_memory = loss_memory

    @property
    def cost(self) -> float:
        """Own views are seen once to guess, an unlabelled one by the other network too; mixed rows are trained on."""
        divided = (2 * self._labelled * (2 + 4 + 3 * self._mixed) + 2) / 3
        return self._over_run(2.0, divided)

    @property
    def backwards(self) -> float:
        """Rows trained on, of both networks; a labelled example brings an unlabelled one along."""
        return self._over_run(2.0, 2 * self._labelled * self._mixed)

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """Two networks, and what each thinks of every label."""
        # DEVIATES from authors' code: predictions are the mean of probabilities, because logits of two networks differ
        # in scale.
        self.nets = nn.ModuleList([make_net(k) for k in range(2)])
        self.num_classes = num_classes
        self.clean = ExampleTable(num_examples, 2, fill=1.0)  # column k: probability of a right label by network k
        if self.loss_memory > 1:
            self.losses = ExampleTable(num_examples, 2 * self.loss_memory)  # scaled to [0, 1], of recent epochs
        self.noise_rate = NoiseRate(self.rate)

    def epoch(self, data: TrainData, clock: Clock) -> Iterator[Pass]:
        """Warm-up; then both splits, decided before either network moves, and a pass for each network."""
        divided = clock.epoch - self._warm_epochs(clock)  # epochs with a split before this one
        if divided < 0:
            yield from (Pass(Stream(), partial(self.warm_up, k)) for k in range(2))
            return
        self._divide(data, divided)
        lambda_u = self.lambda_u
        rate = float(self.noise_rate)
        if lambda_u is None:
            lambda_u = published_lambda_u(rate, self.num_classes)
        for k in range(2):
            yield self._pass(k, lambda_u, rate)

    def warm_up(self, k: int, batch: Batch, clock: Clock) -> Step:
        """Cross entropy of network k, and the confidence penalty."""
        logits = self.nets[k](batch.x)
        ce = cross_entropy(logits, batch.y).mean()
        loss = ce + negative_entropy(logits).mean() if self.confidence_penalty else ce
        return Step(loss, len(batch.y), seen=(batch.index, logits.detach()), log={"ce": ce.detach()})

    def semi(self, k: int, lambda_u: float, known: Mapping[str, float], batch: Batch, clock: Clock) -> Step:
        """MixMatch of network k on a labelled batch and the unlabelled one beside it."""
        labelled = (batch.x, *batch.views)
        unlabelled = (batch.beside.x, *batch.beside.views) if batch.beside is not None else ()
        seen_index, seen = [batch.index], []
        with torch.no_grad():
            # In training mode and batch by batch, as the authors do (evaluation mode is as good, they say).
            own_u = [self._logits(k, x) for x in unlabelled]
            own_x = [self._logits(k, x) for x in labelled]
            seen.append(own_x[0])
            p = torch.stack([z.softmax(dim=1) for z in own_x]).mean(dim=0)  # (B, C)
            trust = self.clean.rows(batch.index)[:, 1 - k]  # (B,) by the other network
            targets = [refine_labels(batch.y, trust, p, self.temperature)] * len(labelled)
            if batch.beside is not None:
                guesses = [z.softmax(dim=1) for z in (*own_u, *self._other(k, unlabelled))]
                targets += [guess_labels(guesses, self.temperature)] * len(unlabelled)
                seen_index.append(batch.beside.index)
                seen.append(own_u[0])
            x, y = torch.cat([*labelled, *unlabelled]), torch.cat(targets)
            rows = len(labelled) * len(batch.y)
            if self.alpha > 0:
                mix = draw_mix(clock.rng("mixup"), self.alpha, len(x), x.device, per_example=False)
                x, y = mix.blend(x), mix.blend(y)
            if lambda_u == 0:
                # DEVIATES from authors' CIFAR code: unlabelled rows with weight 0 are not computed, as in their
                # Clothing1M code, so statistics and penalty come from labelled rows mixed with any.
                x, y = x[:rows], y[:rows]
        logits = self._logits(k, x)
        weight = lambda_u * self._ramp(clock)
        loss_x = target_cross_entropy(logits[:rows], y[:rows]).mean()
        loss_u = prediction_mse(logits[rows:], y[rows:]).mean() if len(x) > rows else loss_x.new_zeros(())
        penalty = balance_penalty(logits)
        log: dict[str, Tensor | float] = {
            "labelled_loss": loss_x.detach(),
            "unlabelled_loss": loss_u.detach(),
            "penalty": penalty.detach(),
            "lambda_u": weight,
            **known,
        }
        evidence = torch.cat(seen_index), torch.cat(seen)
        return Step(loss_x + weight * loss_u + penalty, len(batch.y), evidence, log)

    @property
    def _labelled(self) -> float:
        return 1.0 - (USUAL_RATE if self.rate is None else self.rate)

    @property
    def _mixed(self) -> int:
        """Rows that a labelled example brings into the loss, of two views of it and two of an unlabelled one."""
        weight = self.lambda_u
        if weight is None and self.rate is not None:
            weight = published_lambda_u(self.rate, num_classes=10)  # how many there are is not known here
        return 2 if weight == 0 else 4

    def _over_run(self, warm: float, divided: float) -> float:
        share = self.warmup if self.warmup <= 1 else 0.0
        return share * warm + (1.0 - share) * divided

    def _warm_epochs(self, clock: Clock) -> int:
        return max(1, round(epochs_of(self.warmup, clock.epochs)))

    def _ramp(self, clock: Clock) -> float:
        elapsed = clock.epoch - self._warm_epochs(clock) + clock.batch / clock.batches
        return rise(elapsed, epochs_of(self.ramp_length, clock.epochs))

    def _divide(self, data: TrainData, divided: int) -> None:
        """Each network's opinion of every label; the first time also the noise rate, from their mean loss."""
        losses = [cross_entropy(sweep(net, data), data.y) for net in self.nets]  # (n,) each
        if divided == 0:
            self.noise_rate.estimate(torch.stack(losses).mean(dim=0))
        for k in range(2):
            if self.loss_memory > 1:
                clean = gaussian_clean_probability(self._remember(k, losses[k], divided), scale=False)
            else:
                clean = gaussian_clean_probability(losses[k])
            self.clean.values[:, k] = clean

    def _remember(self, k: int, losses: Tensor, divided: int) -> Tensor:
        """Mean over the last epochs of losses scaled to [0, 1], (n,)."""
        low, high = losses.min(), losses.max()
        scaled = (losses - low) / (high - low).clamp_min(torch.finfo(losses.dtype).tiny)
        first = k * self.loss_memory
        self.losses.values[:, first + divided % self.loss_memory] = scaled
        return self.losses.values[:, first : first + min(divided + 1, self.loss_memory)].mean(dim=1)

    def _pass(self, k: int, lambda_u: float, rate: float) -> Pass:
        """Network k on the split by the other."""
        keep = self.clean.values[:, 1 - k] > self.threshold
        labelled, unlabelled = keep.nonzero().squeeze(1), (~keep).nonzero().squeeze(1)
        if len(labelled) < 2:  # the authors' code stops here; batch norm needs two rows
            return Pass(Stream(), partial(self.warm_up, k))
        beside = Stream(unlabelled, views=2) if len(unlabelled) > 1 else None
        known = {"labelled": len(labelled) / len(keep), "noise_rate": rate}
        return Pass(Stream(labelled, views=2, beside=beside), partial(self.semi, k, lambda_u, known))

    def _logits(self, k: int, x: Tensor) -> Tensor:
        return wide(self.nets[k](x))

    def _other(self, k: int, views: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Logits of the network that is not being trained, in evaluation mode: views may share a forward pass."""
        other = self.nets[1 - k]
        was_training = other.training
        other.eval()
        logits = self._logits(1 - k, torch.cat(views))
        other.train(was_training)
        return logits.chunk(len(views))
