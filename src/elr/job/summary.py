"""The headline numbers of a finished run: its last epoch, and the epoch that validation chose."""

import sys
from collections.abc import Mapping
from typing import Any

import torch

from elr.config import Config
from elr.data import Data
from elr.engine.checkpoint import read_tensors
from elr.engine.evaluate import Evaluator
from elr.engine.train import Job, Outcome
from elr.report.machine import facts


def summarize(config: Config, data: Data, job: Job, outcome: Outcome) -> dict[str, Any]:
    """Headline numbers: the last epoch, and the epoch chosen on noisy validation."""
    last = outcome.records[-1]
    chosen = outcome.records[outcome.selected_epoch - 1] if outcome.selected_epoch else None
    keys = ("test_accuracy", "val_accuracy", "clean_correct", "wrong_correct", "wrong_memorized", "wrong_other")
    selected = _selected(job, outcome, chosen) if chosen else {}
    seconds = sum(timing["train_seconds"] for timing in outcome.timing)
    return {
        "method": config.method.name,
        "result": job.method.keeps if chosen else "last",
        "test_accuracy": last.get("test_accuracy"),
        "selected_test_accuracy": selected.get("test_accuracy"),
        "test_top5": last.get("test_top5"),
        "selected_test_top5": selected.get("test_top5"),
        "chosen_by": chosen_by(data),
        "selected_epoch": outcome.selected_epoch,
        "selected_wrong_memorized": selected.get("wrong_memorized"),
        **{key: last.get(key) for key in keys if key != "test_accuracy"},
        "epochs": len(outcome.records),
        "gradients": round(sum(record.get("gradients", 0.0) for record in outcome.records), 3) or None,
        "seconds": round(seconds, 3),
        "evaluate_seconds": round(sum(timing["evaluate_seconds"] for timing in outcome.timing), 3),
        "evidence_seconds": round(sum(timing.get("evidence_seconds", 0.0) for timing in outcome.timing), 3),
        "noise": None if data.noise is None else data.noise.header(),
        "command": sys.argv[0].rpartition("/")[2] + " " + " ".join(sys.argv[1:]),
        "threads": config.runtime.threads or torch.get_num_threads(),
        "facts": facts(),
    }


def chosen_by(data: Data) -> str:
    """What chose the selected epoch."""
    if data.val is None:
        return "nothing: the last epoch is the result"
    return f"{'clean' if data.clean_val else 'noisy'} validation labels"


def _selected(job: Job, outcome: Outcome, chosen: Mapping[str, Any]) -> Mapping[str, Any]:
    """Test accuracy and memorisation at the chosen epoch: from its record, or else from its weights."""
    tested = "test_accuracy" in chosen or job.data.test is None
    swept = "clean_correct" in chosen or "wrong_memorized" in chosen or job.data.train.y_true is None
    if tested and swept:
        return chosen
    assert job.out is not None
    last = {name: value.clone() for name, value in job.method.state_dict().items()}
    job.method.load_state_dict(read_tensors(job.out / "selected.safetensors")[0])
    device = job.runtime.resolved_device()
    layout, precision = job.runtime.layout(device), job.runtime.autocast(device)
    evaluator = Evaluator(job.data, job.evaluate, device, channels_last=layout, precision=precision)
    found = {
        **chosen,
        **({} if tested else evaluator.test(job.method)),
        **({} if swept else evaluator.sweep(job.method)),
    }
    job.method.load_state_dict(last)
    return found
