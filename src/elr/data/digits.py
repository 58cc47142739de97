"""The 1,797 handwritten digits that ship inside scikit-learn (8 x 8 pixels, 17 grey levels)."""

import numpy as np
import torch

from elr.data.config import DataConfig
from elr.data.inputs import Rows, TensorInputs
from elr.data.source import Part, Source, image_transform
from elr.data.split import stratified
from elr.parts.draw import fold, generator

_CONSTANTS = (0.3053,), (0.3760,)  # of all 1,797 images, as x / 255
_TEST = 360


def read_digits(config: DataConfig) -> Source:
    """1,437 training and 360 test digits. The test part is the same for every seed: it belongs to the data set."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]  # (N, 1, 8, 8)
    y = bunch.target.astype(np.int64)
    inputs = TensorInputs(torch.from_numpy(x))
    rest, test = (
        Part(Rows(inputs, torch.from_numpy(rows)), y[rows], rows)
        for rows in stratified(y, _TEST, generator(fold(0, "digits test")))
    )
    # A pixel of shift is an eighth of the image; a mirrored digit is another sign.
    transform = image_transform(config, _CONSTANTS, pad=1, flip=False)
    return Source("digits", rest, lambda _: transform, test=test, classes=tuple("0123456789"), clean=True)
