"""What several processes saw of different examples, brought together: for training on several devices."""

import torch
from torch import Tensor
from torch import distributed as dist


def gathered(index: Tensor, rows: Tensor, group: dist.ProcessGroup) -> tuple[Tensor, Tensor, slice]:
    """Indices (N,) and rows (N, C) of all processes of a group, in their order, and where one's own stand.

    Every process of the group must call it; batches may differ in length.
    """
    count = dist.get_world_size(group)
    size = torch.tensor([len(index)], device=index.device)
    sizes = [torch.empty_like(size) for _ in range(count)]
    dist.all_gather(sizes, size, group=group)
    lengths = [int(each) for each in sizes]
    own = dist.get_rank(group)
    start = sum(lengths[:own])
    return (
        _joined(index, lengths, group),
        _joined(rows, lengths, group),
        slice(start, start + lengths[own]),
    )


def _joined(own: Tensor, lengths: list[int], group: dist.ProcessGroup) -> Tensor:
    """Collectives take equal shapes: every part is filled up to the longest, and cut again."""
    longest = max(lengths)
    padded = torch.cat([own, own.new_zeros(longest - len(own), *own.shape[1:])])
    parts = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])


def several() -> bool:
    """Whether this process is one of several that train together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
