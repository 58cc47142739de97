"""``elr.fit``: from data and a network to a finished run, in one call."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from elr.config import CUSTOM, Config, flatten, resolve
from elr.data import Data, from_arrays, from_dataset, load
from elr.data.load import PYTHON
from elr.engine.device import private_randomness
from elr.engine.lines import Lines
from elr.engine.train import Progress, Silent
from elr.job.run import run_job
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
    progress: Progress | bool | None = None,
    **settings: Any,
) -> Run:
    """Train on noisy labels and return a handle on the run directory.

    One at a time in a process, or a thread waits for the other: seeds and threads of torch are the process's own; they
    are given back when it ends. A thread that draws from torch's generators meanwhile, or predicts, changes what comes
    out.

    Args:
        model: a name (``elr models`` lists them) or a table such as ``{"name": "mlp", "dropout": 0.1}``, a module, or a
            function that builds one. A method with two networks copies a module and calls a function twice; where the
            two learn from each other's choices (co-teaching and kin) only a function will do.
        data: a name (digits, cifar10, cifar100), a path (image folder, manifest, .npz), a pair of arrays (X, y), a
            map-style torch dataset of (x, y), or a table such as ``{"source": any of these, "augment": False}``. Beside
            arrays and datasets it may hold ``"test"``, another pair or dataset, whose labels judge and choose nothing,
            and beside arrays ``"ids"``, by which an audit names them (else row numbers).
        method: a name, or a table such as ``{"name": "elr", "lam": 7, "beta": 0.9}``.
        epochs: epochs to train.
        seed: of everything random.
        out: run directory; default ``runs/DATA-METHOD-HASH``. One that holds another run is never touched.
        resume: go on with a run that was interrupted.
        progress: True prints a line for each epoch on standard error; or an object with the methods ``batch(epoch,
            done, total)`` and ``epoch(record, seconds)``. Nothing is printed without.
        settings: further tables, as in TOML: ``optim={"lr": 0.1}``, ``noise={"kind": "symmetric", "rate": 0.4}``,
            ``schedule="cosine"``, ``runtime={"device": "cuda"}``.
    """
    tables = {"method": method, "epochs": epochs, "seed": seed, **settings}
    source, options = (data.get("source"), dict(data)) if isinstance(data, Mapping) else (data, {"source": data})
    beside = {key: options.pop(key) for key in ("test", "ids") if key in options and not isinstance(source, str | Path)}
    options["source"] = str(source) if isinstance(source, str | Path) else PYTHON + _kind_of(source)
    tables["data"] = options
    own = None if isinstance(model, str | Mapping) else model
    tables["model"] = model if own is None else f"{CUSTOM}{_name_of(own)}"
    config = resolve(flatten(tables))
    loaded = _load(source, config, **beside)
    path = Path(out) if out is not None else default_out(config, loaded)
    maker = config.model_maker(loaded.shape, loaded.num_classes) if own is None else model_function(own)
    run_job(config, loaded, maker, path, resume=resume, progress=watching(progress, config))
    return Run(path, own)


def watching(progress: Progress | bool | None, config: Config) -> Progress:
    """Somebody who watches, for what a caller asked for."""
    if progress is not True:
        return progress or Silent()
    return Lines(config.method.name, config.epochs)


def default_out(config: Config, data: Data) -> Path:
    """runs/DATA-METHOD-HASH: the same configuration always goes to the same place."""
    name = Path(data.name).stem or "data"
    return Path("runs") / f"{name}-{config.method.name}-{config.digest()[:8]}"


def _load(data: Any, config: Config, *, test: Any = None, ids: Any = None) -> Data:
    if isinstance(data, Data):
        return data
    if isinstance(data, str | Path):
        return load(config.data, config.noise, config.seed)
    how: dict[str, Any] = {"config": config.data, "noise": config.noise, "seed": config.seed}
    if _is_pair(data):
        if test is not None and not _is_pair(test):
            raise ValueError(f"test must be a pair of arrays (X, y) as the source is, got {type(test).__name__}")
        x_test, y_test = (None, None) if test is None else test
        return from_arrays(*data, x_test=x_test, y_test=y_test, ids=ids, **how)
    if ids is not None:
        raise ValueError("ids are for arrays: the examples of a dataset are known by their row")
    with private_randomness(torch.device("cpu")):  # every item is read once, and may be drawn
        return from_dataset(data, test=test, **how)


def _kind_of(data: Any) -> str:
    return "arrays" if _is_pair(data) else "data" if isinstance(data, Data) else "dataset"


def _is_pair(data: Any) -> bool:
    return isinstance(data, tuple | list) and len(data) == 2


def _name_of(model: Any) -> str:
    return type(model).__name__ if isinstance(model, nn.Module) else getattr(model, "__name__", "model")
