"""Train classifiers that stay right when labels are wrong.

Implements *Early-Learning Regularization Prevents Memorization of Noisy Labels* (Liu et al., NeurIPS 2020).
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from elr.audit.issues import find_label_issues
from elr.data import WithIndex
from elr.fit import fit
from elr.losses import ELRLoss, elr_gradient, elr_penalty
from elr.run import Run

if TYPE_CHECKING:
    from elr.estimator import NoisyLabelClassifier

try:
    __version__ = version("elr")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0"

__all__ = [
    "ELRLoss",
    "NoisyLabelClassifier",
    "Run",
    "WithIndex",
    "__version__",
    "elr_gradient",
    "elr_penalty",
    "find_label_issues",
    "fit",
]


def __getattr__(name: str) -> Any:
    """scikit-learn is slow to import, and most who train do not need its estimator."""
    if name == "NoisyLabelClassifier":
        from elr.estimator import NoisyLabelClassifier

        return NoisyLabelClassifier
    raise AttributeError(f"module 'elr' has no attribute {name!r}")
