"""``elr demo``: the paper's point on real handwritten digits, in a minute."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from elr.audit.of_run import audit_run, found_in_run
from elr.audit.write import write_issues
from elr.config import Config, resolve
from elr.data import load
from elr.engine.train import Progress
from elr.job.run import run_job
from elr.pages import write_report
from elr.report.figure1 import draw_figure1
from elr.report.records import read_json, read_lines, write_json
from elr.run import Run

AUDITED, PAGE = "elr", "report.html"
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
    """Train CE, ELR and ELR+ below ``out``; write summary.json, Figure 1 and the report; return the summary."""
    summary: dict[str, Any] = {}
    for method, title in METHODS.items():
        config = demo_config(method, seed)
        data = load(config.data, config.noise, config.seed)
        maker = config.model_maker(data.shape, data.num_classes)
        run_job(config, data, maker, out / method, resume=True, progress=watch(title, config))
        whole = read_json(out / method / "summary.json")
        summary[method] = {key: whole[key] for key in (*KEYS, "wrong_other", "selected_epoch")}
    issues = audit_run(out / AUDITED)
    write_issues(issues, out / AUDITED)
    found = found_in_run(issues, out / AUDITED)
    assert found is not None  # the noise is ours
    summary["audit"] = found._asdict()
    write_json(out / "summary.json", summary)
    write_report([Run(out / AUDITED)], out / PAGE)
    records = {title: read_lines(out / method / "records.jsonl") for method, title in METHODS.items()}
    draw_figure1(records, out / "figure1")
    return summary
