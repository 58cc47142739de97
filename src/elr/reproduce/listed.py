"""Tables that need no training: data sets (G.1), settings of ELR+ (G.2), and what an epoch costs (I.1)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elr.bench.timing import EPOCHS, ROUNDS, ROWS, time_beside
from elr.config import Config, resolve
from elr.data import load
from elr.data.config import DataConfig
from elr.noise import NoiseConfig
from elr.report.machine import facts
from elr.report.records import read_json, write_json
from elr.reproduce.experiment import Shown, View
from elr.reproduce.paper import TABLE_G1, TABLE_G2, TABLE_I1
from elr.reproduce.scale import Settings, double, single
from elr.reproduce.web import CLOTHING_PLUS, WEBVISION_PLUS

SOURCES = {
    "CIFAR-10": "cifar10",
    "CIFAR-100": "cifar100",
    "Clothing-1M": "clothing1m",
    "Webvision1.0": "mini_webvision",
}
TIMES = "times.json"
TIMED = {"Co-teaching+": "co_teaching_plus", "DivideMix": "dividemix", "ELR": "elr", "ELR+": "elr_plus"}


def show_data(view: View) -> Shown:
    """Table G.1, from the readers; a data set that is not here says so."""
    rows = []
    text = "| | | train | validation | test | pixels | classes |\n|---|---|---|---|---|---|---|\n"
    for name, printed in TABLE_G1.items():
        ours = _sizes(SOURCES[name], view.given)
        rows += [{"data": name, "source": "paper", **dict(zip(_PARTS, printed, strict=True))}]
        rows += [{"data": name, "source": "read here", **dict(zip(_PARTS, ours, strict=True))}]
        text += f"| {name} | paper | " + " | ".join(map(str, printed)) + " |\n"
        text += "| | read here | " + " | ".join(map(str, ours)) + " |\n"
    return Shown(rows, text)


_PARTS = ("train", "validation", "test", "pixels", "classes")


def _sizes(source: str, given: Mapping[str, Any]) -> tuple[Any, ...]:
    try:
        val = 0.0 if source == "mini_webvision" else 0.1
        data = load(DataConfig(source=source, root=given.get("data.root"), val_fraction=val), NoiseConfig(), 0)
    except FileNotFoundError:
        return ("not here", "", "", "", "")
    counts = [f"{len(part):,}" if part is not None else "-" for part in (data.train, data.val, data.test)]
    return (*counts, " x ".join(map(str, data.shape[1:])), data.num_classes)


def show_settings(view: View) -> Shown:
    """Table G.2: what the paper prints beside what our recipes have, cell by cell."""
    ours = [
        _settings(resolve({"method.name": "elr_plus", **settings}))
        for settings in (double("paper", "cifar10", "elr_plus"), double("paper", "cifar100", "elr_plus"))
    ]
    ours += [_settings(resolve(settings)) for settings in (CLOTHING_PLUS, WEBVISION_PLUS)]
    rows = []
    text = "| | " + " | ".join(TABLE_G1) + " |\n" + "|---" * (len(TABLE_G1) + 1) + "|\n"
    for name, printed in TABLE_G2.items():
        found = [column[name] for column in ours]
        same = [a == b for a, b in zip(printed, found, strict=True)]
        rows += [
            {"setting": name, "data": data, "paper": a, "here": b, "equal": equal}
            for data, a, b, equal in zip(TABLE_G1, printed, found, same, strict=True)
        ]
        cells = [a if equal else f"{a} (here {b})" for a, b, equal in zip(printed, found, same, strict=True)]
        text += f"| {name} | " + " | ".join(cells) + " |\n"
    return Shown(rows, text)


ARCHITECTURES = {
    "preact_resnet18": "PreActResNet-18",
    "timm:resnet50": "ResNet-50 (pretrained)",
    "timm:inception_resnet_v2": "InceptionResNetV2",
}
DECAYS = {5e-4: "5e-4", 1e-3: "1e-3"}


def _settings(config: Config) -> dict[str, str]:
    """A configuration in the words of Table G.2."""
    schedule = config.schedule.arguments
    (milestone,) = schedule["milestones"]
    return {
        "batch size": str(config.optim.batch_size),
        "architecture": ARCHITECTURES[config.model.name],
        "training epochs": str(config.epochs),
        "learning rate (lr)": f"{config.optim.lr:g}",
        "lr scheduler": f"divide {1 / schedule['factor']:g} at {milestone}th epoch",
        "weight decay": DECAYS[config.optim.weight_decay],
    }


def show_time(view: View) -> Shown:
    """Table I.1 as ratios: an epoch of each method on one network, and whole runs under the authors' schedules."""
    if not view.measure and timed_epochs(view.folder):
        return Shown([], "Not run.\n")
    times = _times(view)
    elr = times["ELR"]
    rows = []
    text = (
        "| | paper, hours | paper, ratio | an epoch, same network | a run, authors' epochs |\n|---|---|---|---|---|\n"
    )
    for name, hours in TABLE_I1.items():
        paper = hours / TABLE_I1["ELR"]
        epoch = times[name]["cost"] / elr["cost"]
        whole = epoch * times[name]["authors_epochs"] / elr["authors_epochs"]
        rows.append({"method": name, "paper_hours": hours, "paper": paper, "epoch": epoch, "authors_run": whole})
        text += f"| {name} | {hours:g} | {paper:.2f} | {epoch:.2f} | {whole:.2f} |\n"
    text += (
        "\nRatios to ELR, measured in one run on this machine. The paper's ELR has ResNet-34 and 120 epochs, the "
        "others PreActResNet-18 and schedules of their own.\n"
    )
    return Shown(rows, text)


def timed_epochs(place: Path) -> float:
    """Epochs of cross entropy on CIFAR that measuring costs; nothing where it was done."""
    if (place / TIMES).exists():
        return 0.0
    work = sum(1.0 + resolve({"method.name": method}).make_method().cost for method in TIMED.values())
    return work * ROUNDS * EPOCHS * ROWS / 45_000


def _times(view: View) -> dict[str, dict[str, Any]]:
    path = view.folder / TIMES
    if path.exists():
        return dict(read_json(path)["methods"])
    ce = _timed(view, "ce")
    data = load(ce.data, ce.noise, ce.seed)
    found = {}
    for name, method in TIMED.items():
        config = _timed(view, method)
        found[name] = {**time_beside(ce, config, data), "authors_epochs": config.make_method().authors["epochs"]}
    write_json(path, {"methods": found, "facts": facts()})
    return found


def _timed(view: View, method: str) -> Config:
    place: Settings = {"data.source": "cifar10", "noise.kind": "symmetric", "noise.rate": 0.4, "method.name": method}
    return resolve({**single(view.scale, "cifar10"), **place, **view.given})
