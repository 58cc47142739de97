"""A directory belongs to one run: a configuration, and the data it was started on."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elr.audit.write import check_folder
from elr.config import Config, read_toml
from elr.data import Data, describe
from elr.data.inputs import fingerprint, pixels_of
from elr.report.records import read_json


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
