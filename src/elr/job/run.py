"""One configuration, trained in a directory of its own."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torch import nn

from elr.audit.evidence import write_evidence
from elr.config import CUSTOM, Config
from elr.data import Data
from elr.engine.checkpoint import write_tensors
from elr.engine.train import Job, Progress, Silent, train
from elr.job.claim import claim, data_digest, data_facts, same_data
from elr.job.kept import gathered, keep_features
from elr.job.network import check_network, described
from elr.job.summary import summarize
from elr.report.lock import alone
from elr.report.records import clear_leftovers, write_json, write_text

NETWORK = "network.txt"


def run_job(
    config: Config,
    data: Data,
    make_model: Callable[[], nn.Module],
    out: Path,
    *,
    resume: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Train a configuration in a directory of its own; returns at once if it is finished and ``resume`` is given."""
    claim(out, config, resume=resume)
    custom = config.model.name.startswith(CUSTOM)
    if custom and (out / NETWORK).is_file() and (out / NETWORK).read_text(encoding="utf-8") != described(make_model):
        raise ValueError(f"{out} holds a run of another network: {NETWORK} in it says which")
    if (out / "summary.json").exists():
        if (out / "data.json").exists():
            same_data(out, data_facts(data))
        return out
    fits = check_network(make_model, data, channels_last=config.runtime.channels_last)
    config = replace(config, runtime=replace(config.runtime, channels_last=fits))
    out.mkdir(parents=True, exist_ok=True)
    with alone(out, f"another process is training in {out}: wait for it, or choose another --out"):
        for folder in (out, out / "checkpoint"):
            clear_leftovers(folder)
        if custom:
            write_text(out / NETWORK, described(make_model))
        _train_in(out, config, data, make_model, progress or Silent())
    return out


def _train_in(out: Path, config: Config, data: Data, make_model: Callable[[], nn.Module], progress: Progress) -> None:
    """From the inputs to the summary, all of it in this folder."""
    identity = {"config": config.digest(), "data": data_digest(data)}
    write_inputs(out, config, data)
    job = Job(
        config.make_method(),
        make_model,
        data,
        config.epochs,
        config.optim,
        config.make_schedule(),
        config.evaluate,
        config.runtime,
        config.seed,
        out,
        identity,
        progress,
    )
    if job.method.keeps == "selected" and data.val is None:
        warnings.warn(
            f"{config.method.name} takes the epoch that is best on validation, and nothing is held out: it will be the "
            "last one; set data.val_fraction",
            stacklevel=3,
        )
    outcome = train(job)
    state = job.method.state_dict()
    write_tensors(out / "model.safetensors", state, {**identity, "epoch": config.epochs})
    if (seen := gathered(job, outcome)) is not None:
        write_evidence(out, *seen)
    write_json(out / "summary.json", summarize(config, data, job, outcome))
    if seen is not None:
        try:  # last: a run must not be lost for want of what only helps to look at it
            keep_features(out, job, *seen)
        except Exception as error:
            warnings.warn(f"a report will show no neighbours: {type(error).__name__}: {error}", stacklevel=2)


def write_inputs(out: Path, config: Config, data: Data) -> None:
    """What is known before training starts. Other data than those of an earlier start are refused."""
    facts = data_facts(data)
    if (out / "data.json").exists():
        same_data(out, facts)
    write_text(out / "config.toml", config.toml())
    write_json(out / "classes.json", list(data.classes))
    if data.noise is not None:
        data.noise.save(out)
    if data.skipped:
        write_json(out / "skipped.json", dict(data.skipped))
    write_json(out / "data.json", facts)
