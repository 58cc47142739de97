"""One small run on digits for all tests of the audit, and audits made by hand."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import elr
from elr.audit.issues import LabelIssues


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; tests that write take a copy."""
    out = tmp_path_factory.mktemp("audit") / "run"
    noise, optim = {"kind": "symmetric", "rate": 0.2}, {"lr": 0.1, "batch_size": 32}
    elr.fit("mlp", "digits", method="elr", epochs=8, noise=noise, optim=optim, out=out, runtime={"threads": 1})
    return out


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def made() -> Callable[..., LabelIssues]:
    """An audit from qualities: half of the doubt goes to the next class, or all of it if there are two."""

    def make(
        quality: Sequence[float], given: Sequence[str] | None = None, classes: Sequence[str] = ("a", "b", "c")
    ) -> LabelIssues:
        q = np.asarray(quality, dtype=np.float64)
        names = [classes[k % len(classes)] for k in range(len(q))] if given is None else list(given)
        number = np.array([list(classes).index(name) for name in names])
        other = np.array(list(classes), dtype=object)[(number + 1) % len(classes)]
        share = (1 - q) / (1 if len(classes) == 2 else 2)
        label = np.array(names, dtype=object)
        predicted = np.where(share > q, other, label)
        columns = {
            "id": np.array([f"x{k}" for k in range(len(q))], dtype=object),
            "source": np.array(["train"] * len(q), dtype=object),
            "given_label": label,
            "predicted_label": predicted,
            "label_quality": q,
            "is_label_issue": (q < 0.5) & (predicted != label),
            "suggested_label": other,
            "suggested_probability": share,
        }
        C = len(classes)
        return LabelIssues(columns, tuple(classes), 0.2, (0.1, 0.3), np.eye(C), np.eye(C), 0.5, [])

    return make
