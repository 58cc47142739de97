"""Weights from a local file into a network, whose head may be for other classes. Never executes pickle code."""

import pickle
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """State dict of a .safetensors file, or of a torch file that holds tensors and nothing else."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no weight file {path}; name one with --model.weights FILE")
    state: Any
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = "it holds more than tensors" if isinstance(error, pickle.UnpicklingError) else str(error)
        raise ValueError(f"cannot load weights from {path}: {reason.splitlines()[0]}") from error
    for wrapper in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(wrapper), dict):
            state = state[wrapper]
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"cannot load weights from {path}: it is not a state dict of tensors")
    return {str(name): value for name, value in state.items()}


def load_weights(model: nn.Module, state: Mapping[str, Tensor], head: Collection[str], source: str) -> None:
    """Copy ``state`` into ``model``; only the entries named in ``head`` may have another shape, and then stay fresh."""
    own = model.state_dict()
    kept = {
        name: value
        for name, value in state.items()
        if not (name in head and name in own and value.shape != own[name].shape)
    }
    wrong = [name for name, value in kept.items() if name not in own or value.shape != own[name].shape]
    # A count that batch norm keeps for nobody here; older files, many of torchvision's among them, do not have it.
    missing = [name for name in own if name not in state and not name.endswith(".num_batches_tracked")]
    if wrong or missing:
        raise ValueError(
            f"weights {source} are of another architecture: {len(wrong)} entries do not fit"
            f" and {len(missing)} are missing, for example {(wrong + missing)[0]!r}"
        )
    model.load_state_dict(kept, strict=False)
