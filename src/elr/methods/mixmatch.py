"""MixMatch for noisy labels: one network that forgets the labels its own losses speak against."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

from elr.data.stream import Batch, Stream, TrainData
from elr.losses import cross_entropy, target_cross_entropy
from elr.losses.consistency import prediction_mse
from elr.losses.label import wide
from elr.methods.base import MakeNet, Method, Pass, Step, check_range, epochs_of, sweep
from elr.parts.average import AveragedNet, still_statistics
from elr.parts.clock import Clock
from elr.parts.guess import guess_labels
from elr.parts.mixture import gaussian_clean_probability
from elr.parts.mixup import draw_mix
from elr.parts.ramp import rise
from elr.parts.select import USUAL_RATE
from elr.parts.table import ExampleTable


class MixMatch(Method):
    """Semi-supervised learning for one network: labels with a high loss are dropped and guessed anew in every batch.

    MixMatch needs to be told which examples are labelled. Under label noise none are marked, so the network decides
    itself, as in DivideMix but without a second network: after a warm-up with cross entropy, every epoch begins with a
    mixture of two Gaussians over its losses; examples of the low-loss one keep their label as it is, the others are
    unlabelled. A label guess is the sharpened mean prediction over the views; all is mixed by mixup. An epoch for which
    fewer than two labels are left is one of warm-up. The views of a vector, which has no augmentation, are jittered.

    Args:
        warmup: epochs of cross entropy before the first split, at least one: a fraction of the run if at most 1.
        threshold: a label is kept if it is right with more than this probability.
        augmentations: K, views of an unlabelled example that its guess is the mean over.
        temperature: sharpening of guessed labels; 1 leaves them as they are.
        alpha: mixup draws the coefficient of each example from Beta(alpha, alpha); 0 switches mixup off.
        lambda_u: weight of the unlabelled loss, a mean over classes. None: 7.5 C, the authors' 75 on CIFAR-10.
        ramp_length: epochs in which lambda_u rises after the warm-up: a fraction of the run if at most 1.
        averaging: split and predict with averaged weights, as the authors predict.
        gamma: memory of the averaged weights, in [0, 1).
    """

    reference = "Berthelot et al., NeurIPS 2019, Algorithm 1; the split by Li et al., ICLR 2020"
    equation = "L = CE(x, y) + lambda_u |p(u) - sharpen(mean_k p(u_k))|^2, all mixed by mixup"
    passes = "11 forwards for a labelled and an unlabelled example together (backward = 2), and 1 sweep"
    published = "not in the paper's tables; part of DivideMix"
    # No ``authors``: theirs is for a few thousand right labels and 65 million images seen, not for noisy labels.
    per_example = "1 float (probability of a right label)"
    batch_coupled = True  # mixup
    views = 2

    def __init__(
        self,
        *,
        warmup: float = 0.1,
        threshold: float = 0.5,
        augmentations: int = 2,
        temperature: float = 0.5,
        alpha: float = 0.75,
        lambda_u: float | None = None,
        ramp_length: float = 0.3,
        averaging: bool = False,
        gamma: float = 0.999,
    ) -> None:
        super().__init__()
        check_range("warmup", warmup, 0.0, float("inf"), open_high=True)
        check_range("threshold", threshold, 0.0, 1.0, open_high=True)
        check_range("augmentations", augmentations, 1, 16)
        check_range("temperature", temperature, 0.01, 100.0)
        check_range("alpha", alpha, 0.0, 1e6)
        if lambda_u is not None:
            check_range("lambda_u", lambda_u, 0.0, float("inf"), open_high=True)
        check_range("ramp_length", ramp_length, 0.0, float("inf"), open_high=True)
        check_range("gamma", gamma, 0.0, 1.0, open_high=True)
        self.warmup = warmup
        self.threshold = threshold
        self.augmentations = augmentations
        self.temperature = temperature
        self.alpha = alpha
        # DEVIATES from authors' code: lambda_u rises for longer (theirs in 1/64 of the run), because their labels are
        # right. Here the first guesses come from a network that has seen wrong ones, and nothing keeps the classes
        # balanced: at full weight too soon, all guesses go into few classes (docs/LOG.md).
        self.lambda_u = lambda_u
        self.ramp_length = ramp_length
        # DEVIATES from authors' code: raw weights unless asked for, because a memory of a thousand steps is longer than
        # a short run.
        self.averaging = averaging
        self.gamma = gamma

    @property
    def cost(self) -> float:
        """Unlabelled views are seen once to guess; mixed rows are trained on."""
        rows = 1 + self.augmentations
        return self._over_run((1.0 - USUAL_RATE) * (self.augmentations + 3 * rows) / 3 + 1 / 3)

    @property
    def backwards(self) -> float:
        """Rows trained on; a labelled example brings the views of an unlabelled one along."""
        return self._over_run((1.0 - USUAL_RATE) * (1 + self.augmentations))

    def build(self, make_net: MakeNet, num_examples: int, num_classes: int) -> None:
        """One network, its average if asked for, and what it thinks of every label."""
        super().build(make_net, num_examples, num_classes)
        self.num_classes = num_classes
        self.averages = nn.ModuleList([AveragedNet(self.nets[0])] if self.averaging else [])
        self.clean = ExampleTable(num_examples, 1, fill=1.0)  # probability of a right label

    def epoch(self, data: TrainData, clock: Clock) -> Iterator[Pass]:
        """Warm-up; then the split and one pass."""
        if clock.epoch < self._warm_epochs(clock):
            yield Pass(Stream(), self.step)
            return
        losses = cross_entropy(sweep(self._judge, data), data.y)  # (n,)
        self.clean.values[:, 0] = gaussian_clean_probability(losses)
        keep = self.clean.values[:, 0] > self.threshold
        labelled, unlabelled = keep.nonzero().squeeze(1), (~keep).nonzero().squeeze(1)
        if len(labelled) < 2:  # batch norm needs two rows
            yield Pass(Stream(), self.step)
            return
        beside = Stream(unlabelled, views=self.augmentations) if len(unlabelled) > 1 else None
        yield Pass(Stream(labelled, beside=beside), partial(self.semi, len(labelled) / len(keep)))

    def step(self, batch: Batch, clock: Clock) -> Step:
        """Warm-up: cross entropy."""
        logits = self.nets[0](batch.x)
        loss = cross_entropy(logits, batch.y).mean()
        log = {"ce": loss.detach()}
        return Step(loss, len(batch.y), (batch.index, logits.detach()), log, self._follow)

    def semi(self, share: float, batch: Batch, clock: Clock) -> Step:
        """MixMatch on a labelled batch and the unlabelled one beside it; ``share`` of all examples are labelled."""
        net, rows = self.nets[0], len(batch.y)
        xs = [batch.x]
        targets = [nn.functional.one_hot(batch.y, self.num_classes).to(batch.x.dtype)]
        if batch.beside is not None:
            unlabelled = (batch.beside.x, *batch.beside.views)
            with torch.no_grad(), still_statistics(net):  # PAPER's code gathers statistics from mixed inputs only
                guesses = [net(x) for x in unlabelled]
            xs += unlabelled
            guess = guess_labels([_probabilities(z) for z in guesses], self.temperature)
            targets += [guess.to(batch.x.dtype)] * len(unlabelled)
        x, y = torch.cat(xs), torch.cat(targets)
        if self.alpha > 0:
            mix = draw_mix(clock.rng("mixup"), self.alpha, len(x), x.device, per_example=True)
            x, y = mix.blend(x), mix.blend(y)
        # DEVIATES from authors' code: all rows in one batch; they interleave three batches, so that each is normalised
        # by labelled and unlabelled rows alike, which one batch is anyway.
        logits = net(x)
        # A mean over classes weighs a class by 1/C: the authors' 75 for ten classes is far more for three.
        weight = (7.5 * self.num_classes if self.lambda_u is None else self.lambda_u) * self._ramp(clock)
        loss_x = target_cross_entropy(logits[:rows], y[:rows]).mean()
        loss_u = prediction_mse(logits[rows:], y[rows:]).mean() if len(x) > rows else loss_x.new_zeros(())
        log: dict[str, Tensor | float] = {
            "labelled_loss": loss_x.detach(),
            "unlabelled_loss": loss_u.detach(),
            "lambda_u": weight,
            "labelled": share,
        }
        # Only dropped labels have a prediction without mixing: agreement with these alone would mislead.
        return Step(loss_x + weight * loss_u, rows, None, log, self._follow)

    def predict(self, x: Tensor) -> Tensor:
        """Probabilities by the averaged weights, if there are any."""
        return _probabilities(self._judge(x))

    @property
    def _judge(self) -> nn.Module:
        """The network that splits and predicts."""
        return self.averages[0].net if self.averaging else self.nets[0]  # type: ignore[return-value]

    def _follow(self) -> None:
        for average in self.averages:
            assert isinstance(average, AveragedNet)
            average.update(self.nets[0], self.gamma)
            # Its own statistics would need forward passes of its own; the authors share the network's.
            for own, new in zip(average.net.buffers(), self.nets[0].buffers(), strict=True):
                own.copy_(new)

    def _over_run(self, divided: float) -> float:
        share = self.warmup if self.warmup <= 1 else 0.0
        return share + (1.0 - share) * divided

    def _warm_epochs(self, clock: Clock) -> int:
        return max(1, round(epochs_of(self.warmup, clock.epochs)))

    def _ramp(self, clock: Clock) -> float:
        elapsed = clock.epoch - self._warm_epochs(clock) + clock.batch / clock.batches
        return rise(elapsed, epochs_of(self.ramp_length, clock.epochs))


def _probabilities(logits: Tensor) -> Tensor:
    return wide(logits).softmax(dim=1)
