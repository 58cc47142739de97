"""``elr.fit``: from data and a network to a finished run, in one call."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from elr.config import HEADS, Choice, Config, read_toml, resolve
from elr.data import Data, describe, from_arrays, from_dataset, load
from elr.engine.checkpoint import write_tensors
from elr.engine.evaluate import Evaluator
from elr.engine.train import Job, Outcome, Progress, Silent, train
from elr.report.machine import facts
from elr.report.records import write_json, write_text
from elr.run import Run, model_function


def fit(
    model: str | Mapping[str, Any] | nn.Module | Callable[[], nn.Module],
    data: Any,
    *,
    method: str | Mapping[str, Any] = "elr",
    epochs: int = 60,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> Run:
    """Train on noisy labels and return a handle on the run directory.

    Args:
        model: a name (``elr models`` lists them) or a table such as ``{"name": "mlp", "dropout": 0.1}``, a module, or a
            function that builds one. A method with two networks copies a module and calls a function twice.
        data: a name (digits, cifar10, cifar100), a path (image folder, manifest, .npz), a pair of arrays (X, y), a
            map-style torch dataset of (x, y), or a table such as ``{"source": any of these, "augment": False}``.
        method: a name, or a table such as ``{"name": "elr", "lam": 7, "beta": 0.9}``.
        epochs: epochs to train.
        seed: of everything random.
        out: run directory; default ``runs/DATA-METHOD-HASH``. One that holds another run is never touched.
        resume: go on with a run that was interrupted.
        progress: somebody who watches.
        settings: further tables, as in TOML: ``optim={"lr": 0.1}``, ``noise={"kind": "symmetric", "rate": 0.4}``,
            ``schedule="cosine"``, ``runtime={"device": "cuda"}``.
    """
    tables = {"method": method, "epochs": epochs, "seed": seed, **settings}
    source, options = (data.get("source"), dict(data)) if isinstance(data, Mapping) else (data, {"source": data})
    if not isinstance(source, str | Path):
        options.pop("source", None)
    tables["data"] = {key: str(value) if key == "source" else value for key, value in options.items()}
    own = None if isinstance(model, str | Mapping) else model
    if own is None:
        tables["model"] = model
    config = resolve(flatten(tables))
    if own is not None:
        config = replace(config, model=Choice(f"custom:{_name_of(own)}", {}))
    loaded = _load(source, config)
    path = Path(out) if out is not None else default_out(config, loaded)
    maker = config.model_maker(loaded.shape, loaded.num_classes) if own is None else model_function(own)
    run_job(config, loaded, maker, path, resume=resume, progress=progress)
    return Run(path, own)


def flatten(tables: Mapping[str, Any]) -> dict[str, Any]:
    """{"method": {"name": "elr", "lam": 3}} -> {"method.name": "elr", "method.lam": 3}."""
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{name}": item for name, item in value.items()}
        else:
            flat[f"{key}.{HEADS[key]}" if key in HEADS else key] = value
    return flat


def default_out(config: Config, data: Data) -> Path:
    """runs/DATA-METHOD-HASH: the same configuration always goes to the same place."""
    name = Path(data.name).stem or "data"
    return Path("runs") / f"{name}-{config.method.name}-{config.digest()[:8]}"


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
    if (out / "summary.json").exists():
        return out
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
        progress or Silent(),
    )
    outcome = train(job)
    state = job.method.state_dict()
    write_tensors(out / "model.safetensors", state, {**identity, "epoch": config.epochs})
    write_json(out / "summary.json", summarize(config, data, job, outcome))
    return out


def claim(out: Path, config: Config, *, resume: bool) -> None:
    """Make sure that ``out`` is ours: new, empty, or (with ``resume``) the same run."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file, not a run directory; choose another --out")
    if not out.exists() or not any(out.iterdir()):
        out.mkdir(parents=True, exist_ok=True)
        return
    if not (out / "config.toml").is_file():
        raise ValueError(f"{out} is not empty and not a run; choose another --out")
    if not resume:
        raise ValueError(f"{out} already holds a run; go on with --resume, or choose another --out")
    saved = read_toml(out / "config.toml")
    mine = {key: value for key, value in config.identity().items() if value is not None}
    free = set(config.flat()) - set(config.identity())
    for key in [*mine, *(key for key in saved if key not in mine and key not in free)]:
        theirs, ours = _plain(saved.get(key)), _plain(mine.get(key))
        if theirs != ours:
            raise ValueError(f"{out} holds another run: its {key} is {theirs!r}, here it is {ours!r}")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def write_inputs(out: Path, config: Config, data: Data) -> None:
    """What is known before training starts."""
    write_text(out / "config.toml", config.toml())
    write_json(out / "classes.json", list(data.classes))
    if data.noise is not None:
        data.noise.save(out)
    if data.skipped:
        write_json(out / "skipped.json", dict(data.skipped))
    sizes = {f"{part}_examples": len(split) for part in ("train", "val", "test") if (split := getattr(data, part))}
    write_json(
        out / "data.json",
        {
            "name": data.name,
            **sizes,
            "shape": list(data.shape),
            "raw_shape": list(data.train.inputs.shape),
            "transform": describe(data.transform),
            "sha256": data_digest(data),
        },
    )


def data_digest(data: Data) -> str:
    """Hash of ids and given labels of the training and validation parts: what a resumed run must find again."""
    import hashlib

    digest = hashlib.sha256()
    for part in (data.train, data.val):
        if part is not None:
            digest.update("\n".join(map(str, part.ids.tolist())).encode())
            digest.update(part.y.astype("<i8").tobytes())
    return digest.hexdigest()


def summarize(config: Config, data: Data, job: Job, outcome: Outcome) -> dict[str, Any]:
    """Headline numbers: the last epoch, and the epoch chosen on noisy validation."""
    last = outcome.records[-1]
    chosen = outcome.records[outcome.selected_epoch - 1] if outcome.selected_epoch else None
    keys = ("test_accuracy", "val_accuracy", "clean_correct", "wrong_correct", "wrong_memorized", "wrong_other")
    selected_test = _selected_test(job, outcome, chosen) if chosen else None
    seconds = sum(timing["train_seconds"] for timing in outcome.timing)
    return {
        "method": config.method.name,
        "result": job.method.keeps,
        "test_accuracy": last.get("test_accuracy"),
        "selected_test_accuracy": selected_test,
        "selected_epoch": outcome.selected_epoch,
        **{key: last.get(key) for key in keys if key != "test_accuracy"},
        "epochs": len(outcome.records),
        "seconds": round(seconds, 3),
        "evaluate_seconds": round(sum(timing["evaluate_seconds"] for timing in outcome.timing), 3),
        "noise": None if data.noise is None else data.noise.header(),
        "command": sys.argv[0].rpartition("/")[2] + " " + " ".join(sys.argv[1:]),
        "threads": torch.get_num_threads(),
        "facts": facts(),
    }


def _selected_test(job: Job, outcome: Outcome, chosen: Mapping[str, Any]) -> float | None:
    """Test accuracy at the chosen epoch: from its record, or from its weights if test was not looked at then."""
    if "test_accuracy" in chosen or job.data.test is None:
        return chosen.get("test_accuracy")
    from elr.engine.checkpoint import read_tensors

    assert job.out is not None
    last = {name: value.clone() for name, value in job.method.state_dict().items()}
    job.method.load_state_dict(read_tensors(job.out / "selected.safetensors")[0])
    device = job.runtime.resolved_device()
    evaluator = Evaluator(job.data, job.evaluate, device, channels_last=job.runtime.channels_last)
    accuracy = evaluator.test(job.method)["test_accuracy"]
    job.method.load_state_dict(last)
    return accuracy


def _load(data: Any, config: Config) -> Data:
    if isinstance(data, Data):
        return data
    if isinstance(data, str | Path):
        return load(config.data, config.noise, config.seed)
    if isinstance(data, tuple | list) and len(data) == 2:
        return from_arrays(data[0], data[1], config=config.data, noise=config.noise, seed=config.seed)
    return from_dataset(data, config=config.data, noise=config.noise, seed=config.seed)


def _name_of(model: Any) -> str:
    return type(model).__name__ if isinstance(model, nn.Module) else getattr(model, "__name__", "model")
