"""One .npz file: x, y and optionally x_test, y_test, y_true, id, classes."""

from pathlib import Path

from elr.data.arrays import read_arrays
from elr.data.config import DataConfig
from elr.data.source import Source
from elr.data.table import read_npz


def read_npz_source(path: Path, config: DataConfig) -> Source:
    """Arrays of the file, under the names above or x_train, y_train."""
    arrays = read_npz(path)
    columns = {name.removesuffix("_train"): array for name, array in arrays.items()}
    for name in ("x", "y"):
        if name not in columns:
            raise ValueError(f"{path} has no array {name!r}, only {', '.join(arrays) or 'nothing'}")
    classes = columns.get("classes")
    return read_arrays(
        columns["x"],
        columns["y"],
        config=config,
        x_test=columns.get("x_test"),
        y_test=columns.get("y_test"),
        y_true=columns.get("y_true"),
        ids=columns.get("id"),
        classes=None if classes is None else tuple(str(name) for name in classes.tolist()),
        name=path.name,
    )
