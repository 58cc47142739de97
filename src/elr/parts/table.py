"""One row of state for each training example, such as ELR's targets."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn


class ExampleTable(nn.Module):
    """An (n, width) table addressed by the row of the training set, float32 unless told otherwise.

    Not a registered buffer: DistributedDataParallel overwrites buffers with rank 0's copy at every forward.
    It moves with the module and travels in ``state_dict`` as extra state, a plain tensor.
    """

    def __init__(self, num_examples: int, width: int, *, fill: float = 0.0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.values = torch.full((num_examples, width), fill, dtype=dtype)
        self._slots = torch.zeros(num_examples, dtype=torch.int64)  # scratch
        self._order = torch.arange(128)  # scratch

    def rows(self, index: Tensor) -> Tensor:
        """The rows of these examples, (B, C)."""
        try:
            return self.values.index_select(0, index)
        except (IndexError, RuntimeError) as error:
            raise self._explain(index) from error

    @torch.no_grad()
    def write(self, index: Tensor, rows: Tensor) -> None:
        """Put rows (B, width) in the place of these examples; of one that stands there twice only one row is kept."""
        self.values[index] = rows.to(self.values.dtype)

    def average_in(self, index: Tensor, p: Tensor, beta: float) -> Tensor:
        """t <- beta t + (1 - beta) p for these examples; returns the new rows.

        An example that stands twice in the batch is updated once, with the mean of its predictions, in whatever order
        they come. A row of p with a NaN leaves its target alone. Neither costs a host synchronisation.
        """
        p = p.detach()  # nothing here has a graph, and no_grad costs more than these kernels
        old = self.rows(index)  # (B, C)
        if self._simple(index, p):
            new = torch.lerp(p, old, beta)
            self.values.index_copy_(0, index, new)
            return new
        self._slots.scatter_(0, index, 0).scatter_add_(0, index, torch.ones_like(index))
        hits = self._slots.gather(0, index)  # (B,) how often each row stands in the batch
        change = torch.sub(p, old).mul_(((1.0 - beta) / hits).unsqueeze(1)).nan_to_num_(nan=0.0)
        # index_put_ sums duplicates in a fixed order on every device; index_add_ does not on CUDA.
        self.values.index_put_((index,), change, accumulate=True)
        new = self.values.index_select(0, index).clamp_(max=1.0)  # the rounded sum of two changes may overshoot
        self.values.index_copy_(0, index, new)
        return new

    def _simple(self, index: Tensor, p: Tensor) -> bool:
        """Whether all rows are distinct and finite. Looked at on the CPU only, where there is nothing to wait for."""
        if index.device.type != "cpu":
            return False
        size = index.shape[0]
        order = self._order[:size]
        if order.shape[0] < size:
            order = self._order = torch.arange(size)
        self._slots.scatter_(0, index, order)  # of two equal indices only one finds its own number again
        return torch.equal(self._slots.gather(0, index), order) and math.isfinite(p.sum().item())

    def _explain(self, index: Tensor) -> IndexError:
        n = len(self.values)
        if index.dtype not in (torch.int64, torch.int32) or index.dim() != 1:
            return IndexError(
                f"index must be a 1-D integer tensor of dataset rows, got {index.dtype} {tuple(index.shape)}"
            )
        if index.device != self.values.device:
            return IndexError(
                f"index is on {index.device} but the targets are on {self.values.device}: move one of them"
            )
        bad = index[(index < 0) | (index >= n)]
        return IndexError(
            f"index {bad[0].item() if len(bad) else '?'} is outside the {n} rows: pass the row of the training set"
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "ExampleTable":
        # Only the device may change: half-precision targets lose the digits near 1 that the penalty lives on.
        self.values = self.values.to(fn(self.values).device)
        self._slots = self._slots.to(self.values.device)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def get_extra_state(self) -> Tensor:
        """The table, for ``state_dict``."""
        return self.values

    def set_extra_state(self, state: Tensor) -> None:
        """Take a saved table of the same shape."""
        if state.shape != self.values.shape:
            raise ValueError(f"saved table has shape {tuple(state.shape)}, this one {tuple(self.values.shape)}")
        self.values.copy_(state)


def normalised(table: Tensor) -> Tensor:
    """Rows that sum to 1; uniform where nothing has been put in yet."""
    total = table.sum(dim=1, keepdim=True)
    return torch.where(total > 0, table / total.clamp_min(1e-30), 1.0 / table.shape[1])
