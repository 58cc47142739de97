"""One safetensors file holds all that training needs to go on; no pickle. See docs/decisions/003-checkpoint.md."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from elr.engine.optim import load_optimizer_state, optimizer_state
from elr.report.records import replacing

KEEP = 2
_METADATA = "run"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors and JSON metadata atomically. Tied weights are written once for each name."""
    own: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        own[name] = tensor.clone() if tensor.data_ptr() in seen else tensor
        seen.add(tensor.data_ptr())
    with replacing(path) as temporary:
        # One entry: safetensors writes several in a random order, and equal runs are to give equal bytes.
        try:
            save_file(own, temporary, metadata={_METADATA: json.dumps(dict(metadata), sort_keys=True)})
        except SafetensorError as error:  # a full disk, say: then the line is the same as for every other file
            raise OSError(f"{path} cannot be written: {error}") from error
        # safetensors makes private files; these are as readable as the folder they are in.
        temporary.chmod(path.parent.stat().st_mode & 0o666)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and metadata; a missing, truncated or foreign file is one clear line."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(json.loads((file.metadata() or {}).get(_METADATA, "{}")))
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist") from None
    except (SafetensorError, ValueError, OSError) as error:
        raise ValueError(f"{path} is not a readable safetensors file ({error})") from error


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoints of a run, oldest first."""
    return sorted(folder.glob("epoch-*.safetensors"))


def save(
    folder: Path,
    epoch: int,
    method: nn.Module,
    optimizer: torch.optim.Optimizer,
    metadata: dict[str, Any],
    watched: Mapping[str, Tensor] | None = None,
) -> None:
    """Write the checkpoint of an epoch and keep the last two. ``watched`` is what evaluation remembers."""
    folder.mkdir(exist_ok=True)
    tensors = {f"method.{name}": value for name, value in method.state_dict().items()}
    tensors |= {f"watched.{name}": value for name, value in (watched or {}).items()}
    tensors |= optimizer_state(optimizer)
    write_tensors(folder / f"epoch-{epoch:06d}.safetensors", tensors, {**metadata, "epoch": epoch})
    for old in checkpoints(folder)[:-KEEP]:
        old.unlink()


def restore(
    folder: Path,
    method: nn.Module,
    optimizer: torch.optim.Optimizer,
    metadata: Mapping[str, Any],
    watched: dict[str, Tensor] | None = None,
) -> int:
    """Load the newest readable checkpoint into what is given and return its epoch; 0 if there is none.

    Refuses a checkpoint whose metadata (identity of configuration and data) is not the one given.
    """
    found = checkpoints(folder)
    if not found:
        return 0
    path, tensors, saved = _newest_readable(found)
    for key, value in metadata.items():
        if saved.get(key) != value:
            raise ValueError(f"{path} belongs to another run: its {key} is {saved.get(key)}, this one's is {value}")
    method.load_state_dict(_below("method.", tensors))
    if watched is not None:
        watched |= _below("watched.", tensors)
    rest = {name: t for name, t in tensors.items() if not name.startswith(("method.", "watched."))}
    load_optimizer_state(optimizer, rest)
    return int(saved["epoch"])


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def _newest_readable(found: list[Path]) -> tuple[Path, dict[str, Tensor], dict[str, Any]]:
    """A damaged file costs an epoch, which gives the same bits when it is done again, not the run."""
    problem: ValueError | None = None
    for path in reversed(found):
        try:
            tensors, saved = read_tensors(path)
        except ValueError as error:
            problem = problem or error
            continue
        if problem is not None:
            warnings.warn(f"{problem}; going back to {path.name}", stacklevel=2)
        return path, tensors, saved
    raise ValueError(f"{problem}; remove {found[-1].parent} to start again") from problem
