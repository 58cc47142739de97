"""``elr demo``: the paper's point on real handwritten digits, in a minute."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from elr.config import Config, resolve
from elr.data import load
from elr.engine.train import Progress
from elr.fit import run_job
from elr.report.figure1 import draw_figure1
from elr.report.records import read_json, read_lines, write_json

METHODS = {"ce": "cross entropy", "elr": "ELR", "elr_plus": "ELR+"}
KEYS = ("test_accuracy", "selected_test_accuracy", "clean_correct", "wrong_correct", "wrong_memorized", "seconds")

# 40 % of the labels replaced, no augmentation (as in the paper's Figure 1), one schedule for all methods.
SETTINGS: dict[str, Any] = {
    "data.source": "digits",
    "data.augment": False,
    "noise.kind": "symmetric",
    "noise.rate": 0.4,
    "model.name": "small_cnn",
    "optim.lr": 0.05,
    "optim.weight_decay": 5e-4,
    "optim.batch_size": 64,
    "schedule.name": "cosine",
    "epochs": 60,
}


def demo_config(method: str, seed: int) -> Config:
    """Configuration of one of the three runs."""
    return resolve({**SETTINGS, "method.name": method, "seed": seed})


def run_demo(
    out: Path, seed: int, *, watch: Callable[[str, Config], Progress | None] = lambda name, config: None
) -> dict[str, Any]:
    """Train CE, ELR and ELR+ below ``out``; write summary.json and Figure 1; return the summary."""
    summary: dict[str, Any] = {}
    for method, title in METHODS.items():
        config = demo_config(method, seed)
        data = load(config.data, config.noise, config.seed)
        maker = config.model_maker(data.shape, data.num_classes)
        run_job(config, data, maker, out / method, resume=True, progress=watch(title, config))
        whole = read_json(out / method / "summary.json")
        summary[method] = {key: whole[key] for key in (*KEYS, "wrong_other", "selected_epoch")}
    write_json(out / "summary.json", summary)
    records = {title: read_lines(out / method / "records.jsonl") for method, title in METHODS.items()}
    draw_figure1(records, out / "figure1")
    return summary
