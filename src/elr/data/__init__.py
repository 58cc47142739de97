"""Where inputs and labels come from, and how batches are made of them."""

from elr.data.augment import CropTransform, ImageTransform, VectorTransform, describe, from_description
from elr.data.config import DataConfig
from elr.data.examples import Data, Examples
from elr.data.load import SOURCES, from_arrays, from_dataset, load
from elr.data.unlabelled import Unlabelled, load_unlabelled
from elr.data.with_index import WithIndex

__all__ = [
    "SOURCES",
    "CropTransform",
    "Data",
    "DataConfig",
    "Examples",
    "ImageTransform",
    "Unlabelled",
    "VectorTransform",
    "WithIndex",
    "describe",
    "from_arrays",
    "from_dataset",
    "from_description",
    "load",
    "load_unlabelled",
]
