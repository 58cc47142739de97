"""A table of image files: path, label and optionally split and id, under any column names."""

from collections import Counter
from pathlib import Path

from elr.data.config import DataConfig
from elr.data.files import SPLITS, File, read_files
from elr.data.source import Source
from elr.data.table import read_table


def read_manifest(path: Path, config: DataConfig) -> Source:
    """Relative paths start from data.root, or from the manifest's own folder."""
    columns = read_table(path)
    names = column(columns, config, "path_column", path)
    labels = column(columns, config, "label_column", path)
    splits = optional_column(columns, config, "split_column", path) or ["train"] * len(names)
    ids = optional_column(columns, config, "id_column", path) or names
    for row, (name, label, split) in enumerate(zip(names, labels, splits, strict=True)):
        if not name or not label:
            raise ValueError(f"row {row + 1} of {path} has no {'label' if name else 'path'}")
        if split and split.lower() not in SPLITS:
            raise ValueError(f"split {split!r} in row {row + 1} of {path} is none of {', '.join(SPLITS)}")
    if repeated := [name for name, count in Counter(ids).items() if count > 1]:
        raise ValueError(
            f"id {repeated[0]!r} occurs more than once in {path}: an example has one row and one label; merge several "
            "labels of one first, by majority, say"
        )
    root = Path(config.root) if config.root else path.parent
    files = [
        File(root / name, label, SPLITS[split.lower() or "train"], id_)
        for name, label, split, id_ in zip(names, labels, splits, ids, strict=True)
    ]
    if not files:
        raise ValueError(f"{path} has no rows")
    return read_files(path.stem, files, config)


def column(columns: dict[str, list[str]], config: DataConfig, option: str, path: Path) -> list[str]:
    """The column that must be there under the name that this option has."""
    name = getattr(config, option)
    if name not in columns:
        raise ValueError(f"{path} has no column {name!r}, only {', '.join(columns) or 'none'}; set data.{option}")
    return columns[name]


def optional_column(columns: dict[str, list[str]], config: DataConfig, option: str, path: Path) -> list[str] | None:
    """One that must be there if the option names it; otherwise its usual name will do."""
    if getattr(config, option) is not None:
        return column(columns, config, option, path)
    return columns.get(option.removesuffix("_column"))
