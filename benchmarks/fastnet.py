"""Clean-label CIFAR-10 with fastnet: accuracy against minutes. The last line printed is the result as JSON.

python benchmarks/fastnet.py --root DIR [--widths 64 256 256 --epochs 10 --test]
"""

import argparse
import ctypes
import json
import math
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from elr.models.fastnet import FastNet

MEAN = torch.tensor([0.4914, 0.4822, 0.4465]) * 255
STD = torch.tensor([0.2470, 0.2435, 0.2616]) * 255
SHIFT = 2
RECORD = 1 + 3 * 32 * 32  # label byte, then three colour planes


def read(root: Path, names: list[str]) -> tuple[Tensor, Tensor]:
    """Images (N, 32, 32, 3) uint8 and labels (N,) from the official binary files."""
    rows = np.concatenate([np.fromfile(root / name, np.uint8).reshape(-1, RECORD) for name in names])
    images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(rows[:, 0].astype(np.int64))


def normalise(images: Tensor) -> Tensor:
    """(B, H, W, 3) uint8 -> (B, 3, H, W) float32 that is already channels-last in memory."""
    return ((images - MEAN) / STD).permute(0, 3, 1, 2)


class Crops:
    """Shifted and mirrored crops at one resolution, cut from reflect-padded uint8 images without touching the rest."""

    def __init__(self, images: Tensor, size: int) -> None:
        planes = images.permute(0, 3, 1, 2).float()
        planes = functional.pad(planes, (SHIFT,) * 4, mode="reflect")
        if size < 32:
            side = round((32 + 2 * SHIFT) * size / 32)
            planes = torch.cat(
                [functional.interpolate(p, (side, side), mode="bilinear", antialias=True) for p in planes.split(5000)]
            )
        padded = planes.round().clamp(0, 255).byte().permute(0, 2, 3, 1).contiguous()  # (N, side, side, 3)
        self.shifts = padded.shape[1] - size + 1
        n, h, w, c = padded.stride()
        shape = (len(padded), self.shifts, self.shifts, size, size, 3)
        self.windows = padded.as_strided(shape, (n, h, w, h, w, c))

    def batch(self, rows: Tensor, mirror: Tensor) -> Tensor:
        """Crops of these rows (B,), mirrored where asked."""
        dy, dx = torch.randint(self.shifts, (2, len(rows)))
        x = self.windows[rows, dy, dx]
        return normalise(torch.where(mirror[:, None, None, None], x.flip(2), x))


class Muon(torch.optim.Optimizer):
    """Nesterov momentum whose update of a filter bank is replaced by the nearest orthogonal matrix (K. Jordan 2024)."""

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One update; filters keep the norm sqrt(number of filters), which replaces weight decay."""
        for group in self.param_groups:
            for p in group["params"]:
                buffer = self.state[p].setdefault("buffer", torch.zeros_like(p))
                buffer.mul_(group["momentum"]).add_(p.grad)
                update = p.grad.add(buffer, alpha=group["momentum"]).reshape(len(p), -1)
                p.mul_(math.sqrt(len(p)) / p.norm())
                p.add_(orthogonalise(update).view(p.shape), alpha=-group["lr"])


def orthogonalise(g: Tensor, steps: int = 3) -> Tensor:
    """Newton-Schulz iteration towards the polar factor of g."""
    x = g / (g.norm() + 1e-7)
    x = x.T if len(g) > g.shape[1] else x
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if len(g) > g.shape[1] else x


def triangle(t: float, warm: float, start: float, end: float) -> float:
    """Learning-rate factor at progress t: up from start over the fraction warm, then linearly down to end."""
    return start + (1 - start) * t / warm if t < warm else end + (1 - end) * (1 - t) / (1 - warm)


@torch.inference_mode()
def accuracy(net: nn.Module, images: Tensor, labels: Tensor, bf16: bool) -> float:
    """Single view, evaluation mode."""
    net.eval()
    right = 0
    for x, y in zip(images.split(1000), labels.split(1000), strict=True):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            right += int((net(normalise(x)).argmax(1) == y).sum())
    net.train()
    return right / len(labels)


def optimizers(net: FastNet, a: argparse.Namespace) -> list[torch.optim.Optimizer]:
    """SGD for everything, or Muon for the filters and SGD for the rest."""
    scales = net.optim_scales()
    groups, filters = [], []
    for name, p in net.named_parameters():
        if not p.requires_grad:
            continue
        if a.muon and p.ndim == 4:
            filters.append(p)
            continue
        lr, decay = scales.get(name, (1.0, 1.0))
        groups.append({"params": [p], "lr": a.lr * lr, "weight_decay": a.weight_decay * decay})
    sgd = torch.optim.SGD(groups, momentum=a.momentum, nesterov=True)
    return [sgd, Muon(filters, a.muon, a.muon_momentum)] if filters else [sgd]


def main() -> None:
    """Parse, train, print."""
    p = argparse.ArgumentParser()
    p.add_argument("--root", type=Path, required=True)
    p.add_argument("--widths", type=int, nargs=3, default=[32, 128, 128])
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--lr", type=float, default=0.75)
    p.add_argument("--momentum", type=float, default=0.85)
    p.add_argument("--weight-decay", type=float, default=1.33e-3)
    p.add_argument("--warm", type=float, default=0.23)
    p.add_argument("--end", type=float, default=0.07)
    p.add_argument("--smoothing", type=float, default=0.2)
    p.add_argument("--norm-momentum", type=float, default=0.225)
    p.add_argument("--lookahead", type=int, default=10, help="every so many steps; 0 = off")
    p.add_argument(
        "--ema", type=float, default=0.0, help="horizon of a plain average as a fraction of the run; 0 = off"
    )
    p.add_argument("--sizes", default="32", help="e.g. 24:.4,28:.3,32:.3")
    p.add_argument("--stem-bias", type=float, default=0.0, help="epochs it is trained for")
    p.add_argument("--bias-scale", type=float, default=64.0)
    p.add_argument("--activation", default="gelu")
    p.add_argument("--flip", default="alternate", choices=["alternate", "random"])
    p.add_argument("--muon", type=float, default=0.0, help="learning rate of Muon; 0 = SGD for all")
    p.add_argument("--muon-momentum", type=float, default=0.6)
    p.add_argument("--fp32", action="store_true")
    p.add_argument("--no-mallopt", action="store_true")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--test", action="store_true", help="train on all 50,000 and report test accuracy")
    p.add_argument("--steps", type=int, default=0, help="stop early: speed only")
    p.add_argument("--every", action="store_true", help="validate every epoch")
    a = p.parse_args()
    if not a.no_mallopt:
        libc = ctypes.CDLL(None)
        libc.mallopt(-4, 0)  # M_MMAP_MAX: large tensors from the heap, so their pages are reused
        libc.mallopt(-1, 2**30)  # M_TRIM_THRESHOLD
    torch.set_flush_denormal(True)
    torch.manual_seed(a.seed)

    images, labels = read(a.root, [f"data_batch_{i}.bin" for i in range(1, 6)])
    if a.test:
        held = read(a.root, ["test_batch.bin"])
    else:
        order = torch.from_numpy(np.random.default_rng(0).permutation(50000))
        held = images[order[:5000]], labels[order[:5000]]
        images, labels = images[order[5000:]], labels[order[5000:]]
    sizes = [(int(s.split(":")[0]), float((s + ":1").split(":")[1])) for s in a.sizes.split(",")]
    ends = np.cumsum([f for _, f in sizes])

    begin = time.perf_counter()
    net = FastNet(
        (3, 32, 32),
        10,
        widths=tuple(a.widths),
        activation=a.activation,
        norm_momentum=a.norm_momentum,
        stem_bias=a.stem_bias > 0,
        bias_scale=a.bias_scale,
    )
    net.prepare(normalise(images[:5000]))
    net.to(memory_format=torch.channels_last)
    forward = torch.compile(net) if a.compile else net
    opts = optimizers(net, a)
    peaks = [[g["lr"] for g in o.param_groups] for o in opts]
    steps_per_epoch = len(images) // a.batch
    total = steps_per_epoch * a.epochs
    slow = {k: v.clone() for k, v in net.state_dict().items()} if a.lookahead or a.ema else {}
    first = torch.rand(len(images)) < 0.5
    stage, crops = -1, None
    for step in range(total):
        t = step / total
        wanted = min(int(np.searchsorted(ends, t, side="right")), len(sizes) - 1)
        if wanted != stage:
            stage, crops = wanted, Crops(images, sizes[wanted][0])
        epoch, batch = divmod(step, steps_per_epoch)
        if batch == 0:
            order = torch.randperm(len(images))
            mirror = first ^ bool(epoch % 2) if a.flip == "alternate" else torch.rand(len(images)) < 0.5
        if a.stem_bias and epoch >= a.stem_bias:
            net.stem.bias.requires_grad_(False)
        rows = order[batch * a.batch : (batch + 1) * a.batch]
        x = crops.batch(rows, mirror[rows])
        factor = triangle(t, a.warm, 0.2, a.end)
        for o, peak in zip(opts, peaks, strict=True):
            for g, lr in zip(o.param_groups, peak, strict=True):
                g["lr"] = lr * (factor if not isinstance(o, Muon) else 1 - t)
        with torch.autocast("cpu", torch.bfloat16, enabled=not a.fp32):
            logits = forward(x)
        loss = functional.cross_entropy(logits.float(), labels[rows], label_smoothing=a.smoothing)
        net.zero_grad(set_to_none=True)
        loss.backward()
        for o in opts:
            o.step()
        if a.lookahead and (step + 1) % a.lookahead == 0:
            decay = 0.95**5 * ((step + 1) / total) ** 3
            for k, v in net.state_dict().items():
                if v.is_floating_point():
                    v.copy_(slow[k].lerp_(v, 1 - decay))
        if a.ema:
            decay = min(1 - 1 / (a.ema * total), 1 - 1 / (0.1 * step + 1))
            for k, v in net.state_dict().items():
                if v.is_floating_point():
                    slow[k].lerp_(v, 1 - decay)
        if not step % 20:
            print(
                f"step {step}/{total} loss {loss.item():.3f} {(step + 1) * a.batch / (time.perf_counter() - begin):.0f} img/s",
                flush=True,
            )
        if a.steps and step >= a.steps:
            break
        if a.every and batch == steps_per_epoch - 1 and epoch < a.epochs - 1:
            pause = time.perf_counter()
            acc = accuracy(net, *held, bf16=not a.fp32)
            print(f"epoch {epoch + 1} held {acc:.4f} seconds {pause - begin:.1f}", flush=True)
            begin += time.perf_counter() - pause
    seconds = time.perf_counter() - begin
    last = accuracy(net, *held, bf16=not a.fp32)
    averaged = None
    if a.ema:
        net.load_state_dict(slow)
        averaged = accuracy(net, *held, bf16=not a.fp32)
    fields = {k: v for k, v in vars(a).items() if v != p.get_default(k) and k != "root"}
    result = {
        "seconds": round(seconds, 1),
        "cpu": round(time.process_time(), 1),
        "rate": round((step + 1) * a.batch / seconds),
        "held": last,
        "averaged": averaged,
    }
    print(json.dumps({**fields, **result}), flush=True)


if __name__ == "__main__":
    main()
