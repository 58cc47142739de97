"""``elr.fit``: from data and a network to a finished run, in one call."""

import hashlib
import json
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elr.audit.evidence import Evidence, Rows, in_order, write_evidence
from elr.audit.issues import label_issues
from elr.audit.suspects import Features, kept_rows, write_features
from elr.audit.write import check_folder
from elr.config import CUSTOM, Config, flatten, read_toml, resolve
from elr.data import Data, describe, from_arrays, from_dataset, load
from elr.data.inputs import fingerprint, pixels_of
from elr.data.load import PYTHON
from elr.engine.checkpoint import read_tensors, write_tensors
from elr.engine.device import private_randomness
from elr.engine.evaluate import Evaluator
from elr.engine.features import features_of
from elr.engine.lines import Lines
from elr.engine.train import Job, Outcome, Progress, Silent, train
from elr.report.lock import alone
from elr.report.machine import facts
from elr.report.records import read_json, write_json, write_text
from elr.run import Run, model_function

NETWORK = "network.txt"
ADDRESS = re.compile("0x[0-9a-fA-F]+")  # of an object in memory: another one in every process


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

    One at a time in a process: seeds and threads of torch are the process's own; they are given back when it ends.

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


def claim(out: Path, config: Config, *, resume: bool) -> None:
    """Make sure that ``out`` is ours: new, empty, or (with ``resume``) the same run. Changes nothing."""
    check_folder(out)
    # Hidden files do not count: a killed process may leave a temporary one, a desktop its own.
    if not out.exists() or all(path.name.startswith(".") for path in out.iterdir()):
        return
    if not (out / "config.toml").is_file():
        raise ValueError(f"{out} is not empty and not a run; choose another --out")
    if not resume:
        raise ValueError(
            f"{out} already holds a run; go on with --resume (resume=True in Python), or choose another --out"
        )
    saved = read_toml(out / "config.toml")
    mine = {key: value for key, value in config.identity().items() if value is not None}
    free = set(config.flat()) - set(config.identity())
    for key in [*mine, *(key for key in saved if key not in mine and key not in free)]:
        theirs, ours = _plain(key, saved.get(key)), _plain(key, mine.get(key))
        if theirs != ours:
            raise ValueError(f"{out} holds another run: its {key} is {theirs!r}, here it is {ours!r}")


def _plain(key: str, value: Any) -> Any:
    if key == "data.source" and value is not None:
        return str(Path(value))  # photos/ is photos
    return list(value) if isinstance(value, tuple) else value


def described(make_model: Callable[[], nn.Module]) -> str:
    """A network that was given as an object, in words: configurations know only those that have a name."""
    with private_randomness(torch.device("cpu")):
        net = make_model()
    shapes = [f"{name} {tuple(value.shape)}" for name, value in net.state_dict().items() if isinstance(value, Tensor)]
    return ADDRESS.sub("0x", "\n".join([repr(net), "", *shapes, ""]))


def check_network(make_model: Callable[[], nn.Module], data: Data, *, channels_last: bool = True) -> bool:
    """Refuse a network that cannot take these inputs or tell these classes apart, before anything is written.

    Returns whether images may be channels-last: not for a network that flattens with ``x.view(len(x), -1)``, say.
    """
    with private_randomness(torch.device("cpu")), torch.inference_mode():
        row = torch.tensor([0])
        x = data.transform(data.train.inputs.fetch(row), data.train.keys[row], None)
        try:
            net = make_model().cpu().eval()
        except RuntimeError as error:
            raise ValueError(f"the network cannot be built: {_first_line(error)}") from error
        try:
            z = net(x)
        except (RuntimeError, TypeError, IndexError) as error:
            raise ValueError(f"the network cannot take inputs of shape {data.shape}: {_first_line(error)}") from error
        if not isinstance(z, Tensor):
            raise ValueError(
                f"the network gives a {type(z).__name__}, expected a tensor: let its forward return logits (B, C)"
            )
        shape = tuple(z.shape)
    if shape != (1, data.num_classes):
        raise ValueError(
            f"the network gives {shape} for one input, expected (1, {data.num_classes}): one logit a class"
        )
    return channels_last and (x.dim() != 4 or _takes_channels_last(net, x))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


@torch.inference_mode()
def _takes_channels_last(net: nn.Module, x: Tensor) -> bool:
    try:
        net.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
    except RuntimeError:
        return False
    return True


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


def same_data(out: Path, facts: Mapping[str, Any]) -> None:
    """Make sure that the run in ``out`` is one on these data, as far as it wrote down what it had."""
    if changed := changed_facts(read_json(out / "data.json"), facts):
        raise ValueError(f"{out} holds a run on other data: {changed[0]} has changed since it was started")


def changed_facts(saved: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    """Which facts are not what a run wrote down, as far as it did."""
    return [key for key, value in facts.items() if saved.get(key, value) != value]


def data_facts(data: Data) -> dict[str, Any]:
    """What a trained model needs to know of its data, as plain as JSON gives it back."""
    sizes = {f"{part}_examples": len(split) for part in ("train", "val", "test") if (split := getattr(data, part))}
    facts = {
        "name": data.name,
        **sizes,
        "shape": data.shape,
        "raw_shape": data.train.inputs.shape,
        "transform": describe(data.transform),
        "sha256": data_digest(data),
        **({"pixels": pixels} if (pixels := pixels_of(data.train.inputs)) else {}),
        **fingerprint(data.train.inputs),
        **({"val_labels": "clean"} if data.clean_val else {}),
        **({"labels": "numbers"} if data.numbered else {}),
    }
    return dict(json.loads(json.dumps(facts)))


def data_digest(data: Data) -> str:
    """Hash of ids and given labels of the training and validation parts: what a resumed run must find again."""
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
        "threads": torch.get_num_threads(),
        "facts": facts(),
    }


def gathered(job: Job, outcome: Outcome) -> tuple[Rows, Evidence] | None:
    """Every example that training learnt from or chose by, and what was seen of it; None if nothing was to be kept."""
    if outcome.witness is None:
        return None
    facts = {"epochs": len(outcome.records), "peak": outcome.selected_epoch}
    facts |= {"clean_val": True} if job.data.clean_val else {}
    evidence = Evidence(**outcome.witness.gather(job.method.belief()), facts=facts)
    parts = {"train": job.data.train} | ({} if job.data.val is None else {"val": job.data.val})
    ids = [str(id_) for part in parts.values() for id_ in part.ids.tolist()]
    sources = [name for name, part in parts.items() for _ in range(len(part))]
    rows = Rows(ids, sources, np.concatenate([part.y for part in parts.values()]), job.data.classes)
    return in_order(rows, evidence)


def keep_features(out: Path, job: Job, rows: Rows, evidence: Evidence) -> None:
    """Features of suspects and of a sample, so that a page can show what a suspect looks like to the network."""
    issues = label_issues(rows, evidence.belief, evidence)
    kept = kept_rows(issues["label_quality"], issues["is_label_issue"], job.seed)
    device = job.runtime.resolved_device()
    layout = job.runtime.layout(device)
    values = None
    for name in ("train", "val"):
        examples = getattr(job.data, name)
        place = np.flatnonzero(np.array(rows.source)[kept] == name)
        if len(place) == 0:
            continue
        row_of = {str(id_): row for row, id_ in enumerate(examples.ids.tolist())}
        own = np.array([row_of[rows.ids[k]] for k in kept[place]])
        # Fails for a compiled network, or for one that does not end in a linear layer.
        found = features_of(job.method, job.data, examples, own, device, channels_last=layout)
        if found.shape[:1] != own.shape or found.ndim != 2:
            raise ValueError(f"the last linear layer sees {found.shape} for {len(own)} examples")
        values = np.zeros((len(kept), found.shape[1]), dtype=np.float16) if values is None else values
        values[place] = found
    assert values is not None
    write_features(out, Features(kept, values))


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
