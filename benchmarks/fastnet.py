"""fastnet on clean CIFAR-10: accuracy against minutes, and images per second beside resnet34.

python benchmarks/fastnet.py train --root DIR [--epochs 8] [--widths 48 192 192] [--test]
python benchmarks/fastnet.py speed

Each prints its result as one line of JSON. Without --test, 5,000 training images are held out and
the test set stays unread.
"""

import argparse
import ctypes
import json
import math
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from elr.models import make_model
from elr.models.fastnet import FastNet

MEAN = torch.tensor([0.4914, 0.4822, 0.4465]) * 255
STD = torch.tensor([0.2470, 0.2435, 0.2616]) * 255
SHIFT = 2
RECORD = 1 + 3 * 32 * 32  # label byte, then three colour planes


def keep_heap() -> None:
    """Let glibc reuse large blocks: fresh pages for every big tensor cost up to a third of a step."""
    libc = ctypes.CDLL(None)
    libc.mallopt(-4, 0)  # M_MMAP_MAX
    libc.mallopt(-1, 2**30)  # M_TRIM_THRESHOLD


def read(root: Path, names: list[str]) -> tuple[Tensor, Tensor]:
    """Images (N, 32, 32, 3) uint8 and labels (N,) from the official binary files."""
    rows = np.concatenate([np.fromfile(root / name, np.uint8).reshape(-1, RECORD) for name in names])
    images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(rows[:, 0].astype(np.int64))


def normalise(images: Tensor) -> Tensor:
    """(B, H, W, 3) uint8 -> (B, 3, H, W) float32 that is already channels-last in memory."""
    return ((images - MEAN) / STD).permute(0, 3, 1, 2)


class Crops:
    """Shifted and mirrored crops at one resolution, cut as views of reflect-padded uint8 images."""

    def __init__(self, images: Tensor, size: int) -> None:
        whole = torch.from_numpy(np.pad(images.numpy(), ((0, 0), (SHIFT,) * 2, (SHIFT,) * 2, (0, 0)), mode="reflect"))
        if size < 32:
            side = round((32 + 2 * SHIFT) * size / 32)
            parts = [
                functional.interpolate(part.permute(0, 3, 1, 2).float(), (side, side), mode="bilinear", antialias=True)
                for part in torch.split(whole, 5000)
            ]
            whole = torch.cat(parts).round().clamp(0, 255).byte().permute(0, 2, 3, 1).contiguous()
        self.shifts = whole.shape[1] - size + 1
        n, h, w, c = whole.stride()
        self.windows = whole.as_strided((len(whole), self.shifts, self.shifts, size, size, 3), (n, h, w, h, w, c))

    def batch(self, rows: Tensor, mirror: Tensor) -> Tensor:
        """Crops of these rows (B,), mirrored where asked."""
        dy, dx = torch.randint(self.shifts, (2, len(rows)))
        x = self.windows[rows, dy, dx]
        return normalise(torch.where(mirror[:, None, None, None], x.flip(2), x))


class Muon(torch.optim.Optimizer):
    """Nesterov momentum whose update of a filter bank is replaced by the nearest orthogonal matrix (K. Jordan 2024)."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update; filter banks keep the norm sqrt(number of filters), which takes the place of weight decay."""
        for group in self.param_groups:
            for p in group["params"]:
                buffer = self.state[p].setdefault("buffer", torch.zeros_like(p))
                buffer.mul_(group["momentum"]).add_(p.grad)
                update = p.grad.add(buffer, alpha=group["momentum"]).reshape(len(p), -1)
                p.mul_(math.sqrt(len(p)) / p.norm())
                p.add_(orthogonalise(update).view(p.shape), alpha=-group["lr"])


def orthogonalise(g: Tensor, steps: int = 3) -> Tensor:
    """Newton-Schulz iteration from g towards its polar factor; g has no more rows than columns."""
    x: Tensor = g / (g.norm() + 1e-7)
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def triangle(t: float, warm: float = 0.23, start: float = 0.2, end: float = 0.07) -> float:
    """Learning-rate factor at progress t: up from start over the fraction warm, then linearly down to end."""
    return start + (1 - start) * t / warm if t < warm else end + (1 - end) * (1 - t) / (1 - warm)


@torch.inference_mode()
def accuracy(net: nn.Module, images: Tensor, labels: Tensor, bf16: bool) -> float:
    """Single view, evaluation mode."""
    net.eval()
    right = 0
    for x, y in zip(torch.split(images, 1000), torch.split(labels, 1000), strict=True):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            right += int((net(normalise(x)).argmax(1) == y).sum())
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
    sgd = torch.optim.SGD(groups, lr=a.lr, momentum=a.momentum, nesterov=True)
    return [sgd, Muon(filters, a.muon, a.muon_momentum)] if filters else [sgd]


@torch.no_grad()
def look_ahead(net: nn.Module, slow: dict[str, Tensor], decay: float) -> None:
    """Move the slow copy towards the network, statistics included, and restart the network from it."""
    for name, value in net.state_dict().items():
        if value.is_floating_point():
            value.copy_(slow[name].lerp_(value, 1 - decay))


def train(a: argparse.Namespace) -> dict[str, Any]:
    """One run; the seconds are those of everything but reading the files and the final evaluation."""
    torch.manual_seed(a.seed)
    images, labels = read(a.root, [f"data_batch_{i}.bin" for i in range(1, 6)])
    if a.test:
        held = read(a.root, ["test_batch.bin"])
    else:
        order = torch.from_numpy(np.random.default_rng(0).permutation(50000))
        held = images[order[:5000]], labels[order[:5000]]
        images, labels = images[order[5000:]], labels[order[5000:]]
    sizes = [(int(size), float(share)) for size, share in (part.split(":") for part in a.sizes.split(","))]
    ends = np.cumsum([share for _, share in sizes])

    begin = time.perf_counter()
    net = FastNet((3, 32, 32), 10, widths=tuple(a.widths), norm_momentum=a.norm_momentum)
    net.prepare(normalise(images[:5000]))
    net.to(memory_format=torch.channels_last)
    opts = optimizers(net, a)
    peaks = [[group["lr"] for group in opt.param_groups] for opt in opts]
    slow = {name: value.clone() for name, value in net.state_dict().items()} if a.lookahead else {}
    batches = len(images) // a.batch
    total = batches * a.epochs
    first = torch.rand(len(images)) < 0.5
    crops, stage = Crops(images, sizes[0][0]), 0
    order = mirror = torch.empty(0)
    for step in range(total):
        t = step / total
        if stage + 1 < len(sizes) and t >= ends[stage]:
            stage += 1
            crops = Crops(images, sizes[stage][0])
        epoch, batch = divmod(step, batches)
        if batch == 0:
            order, mirror = torch.randperm(len(images)), first ^ bool(epoch % 2)  # every image both ways in two epochs
        rows = order[batch * a.batch : (batch + 1) * a.batch]
        for opt, peak in zip(opts, peaks, strict=True):
            for group, lr in zip(opt.param_groups, peak, strict=True):
                group["lr"] = lr * (1 - t if isinstance(opt, Muon) else triangle(t))
        with torch.autocast("cpu", torch.bfloat16, enabled=not a.fp32):
            logits = net(crops.batch(rows, mirror[rows]))
        loss = functional.cross_entropy(logits.float(), labels[rows], label_smoothing=a.smoothing)
        net.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        for opt in opts:
            opt.step()
        if a.lookahead and (step + 1) % a.lookahead == 0:
            look_ahead(net, slow, 0.95**5 * ((step + 1) / total) ** 3)
        if a.verbose and not step % 20:
            print(f"step {step}/{total} loss {loss.item():.3f} seconds {time.perf_counter() - begin:.0f}", flush=True)
    seconds = time.perf_counter() - begin
    settings = {key: value for key, value in vars(a).items() if key not in ("root", "run", "verbose")}
    return {
        **settings,
        "seconds": round(seconds, 1),
        "images_per_second": round(total * a.batch / seconds),
        "test_accuracy" if a.test else "held_out_accuracy": accuracy(net, *held, bf16=not a.fp32),
    }


def speed(a: argparse.Namespace) -> dict[str, Any]:
    """Training images per second, all networks interleaved so that a busy moment hits them alike; medians."""
    entries: dict[str, tuple[nn.Module, torch.optim.SGD, int, bool]] = {}
    for bf16 in (False, True):
        for widths in ((32, 128, 128), (48, 192, 192), (64, 256, 256), None):
            name, arguments = ("fastnet", {"widths": widths}) if widths else ("resnet34", {})
            net = make_model(name, (3, 32, 32), 10, **arguments).to(memory_format=torch.channels_last)
            opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 1e-3, momentum=0.9, nesterov=True)
            label = f"{name} {'/'.join(map(str, widths or ()))}".strip() + (" bf16" if bf16 else " fp32")
            entries[label] = net, opt, 512 if widths else 128, bf16
    rates: dict[str, list[float]] = {label: [] for label in entries}
    for turn in range(a.rounds + 1):
        for label, (net, opt, size, bf16) in entries.items():
            x = torch.randn(size, 3, 32, 32).to(memory_format=torch.channels_last)
            y = torch.randint(10, (size,))
            for again in range(3):
                begin = time.perf_counter()
                with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                    logits = net(x)
                opt.zero_grad(set_to_none=True)
                torch.autograd.backward(functional.cross_entropy(logits.float(), y))
                opt.step()
                if turn and again:  # the first round and the first step after a switch warm the caches
                    rates[label].append(size / (time.perf_counter() - begin))
    medians = {label: statistics.median(values) for label, values in rates.items()}
    ratios = {
        f"{kind}: fastnet 32/128/128 over resnet34": medians[f"fastnet 32/128/128 {kind}"] / medians[f"resnet34 {kind}"]
        for kind in ("fp32", "bf16")
    }
    spread = {label: [round(min(values)), round(max(values))] for label, values in rates.items()}
    return {"images_per_second": {k: round(v, 1) for k, v in medians.items()}, "range": spread, "ratio": ratios}


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-mallopt", action="store_true", help="leave glibc's allocator as it is")
    commands = parser.add_subparsers(required=True)
    p = commands.add_parser("train", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.set_defaults(run=train)
    p.add_argument("--root", type=Path, required=True, help="directory with data_batch_1.bin and the others")
    p.add_argument("--widths", type=int, nargs=3, default=[32, 128, 128])
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--lr", type=float, default=0.75)
    p.add_argument("--momentum", type=float, default=0.85)
    p.add_argument("--weight-decay", type=float, default=1.33e-3)
    p.add_argument("--muon", type=float, default=0.24, help="learning rate of Muon; 0 = SGD for all")
    p.add_argument("--muon-momentum", type=float, default=0.6)
    p.add_argument("--smoothing", type=float, default=0.2)
    p.add_argument("--norm-momentum", type=float, default=0.225)
    p.add_argument("--lookahead", type=int, default=0, help="average every so many steps; 0 = off")
    p.add_argument("--sizes", default="32:1", help="pixels:share of the steps, for example 24:.4,28:.3,32:.3")
    p.add_argument("--fp32", action="store_true", help="no bf16 autocast")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--test", action="store_true", help="train on all 50,000 images and report test accuracy")
    p.add_argument("--verbose", action="store_true")
    p = commands.add_parser("speed", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.set_defaults(run=speed)
    p.add_argument("--rounds", type=int, default=5)
    a = parser.parse_args()
    if not a.no_mallopt:
        keep_heap()
    torch.set_flush_denormal(True)
    print(json.dumps(a.run(a)), flush=True)


if __name__ == "__main__":
    main()
