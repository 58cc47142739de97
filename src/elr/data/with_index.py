"""The index that methods with per-example memory need."""

from typing import Any

from torch.utils.data import Dataset


class WithIndex(Dataset[Any]):
    """Any map-style dataset with each item's own index added: (x, y) -> (x, y, index).

    Longer tuples keep their order and get the index last; dictionaries get the key ``"index"``. The index counts within
    the dataset wrapped here: wrap after taking a subset if targets are to be kept for that subset only.
    """

    def __init__(self, dataset: Any) -> None:
        if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            raise ValueError("WithIndex needs a dataset with a length and items; an iterable one has no index")
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        """Item and index; negative indices count from the end and come back positive."""
        index = int(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is outside a dataset of {len(self)}")
        index %= len(self)
        return _join(self.dataset[index], index)


def _join(item: Any, index: int) -> Any:
    if isinstance(item, dict):
        if "index" in item:
            raise ValueError("WithIndex: the dataset's items have a key 'index' already")
        return {**item, "index": index}
    if isinstance(item, tuple | list):
        return (*item, index)
    raise ValueError(f"WithIndex needs items that are (x, y, ...) or dictionaries, got {type(item).__name__}")
