"""Penultimate features of some examples, for showing what a network takes for alike."""

import numpy as np
import numpy.typing as npt
import torch

from elr.data import Data, Examples
from elr.data.stream import place
from elr.methods.base import Method
from elr.parts.features import penultimate


@torch.inference_mode()
def features_of(
    method: Method,
    data: Data,
    examples: Examples,
    rows: npt.NDArray[np.int64],
    device: torch.device,
    *,
    channels_last: bool = False,
    batch_size: int = 512,
) -> npt.NDArray[np.float16]:
    """What enters the last layer of the first network for these rows, unaugmented, (m, D)."""
    net, training = method.nets[0], method.nets[0].training
    net.eval()
    out = []
    for part in torch.split(torch.from_numpy(rows), batch_size):
        x = data.transform(examples.inputs.fetch(part), examples.keys[part], None)
        with penultimate(net) as found:
            net(place(x, device, channels_last and len(examples.inputs.shape) == 3))
        out.append(found[-1].flatten(1).float().cpu())
    net.train(training)
    # Half precision holds 65,504 at most, and only directions are compared.
    features = torch.nn.functional.normalize(torch.cat(out), dim=1)
    return features.half().numpy()
