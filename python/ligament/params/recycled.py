"""Host memory for results, which is reused once nothing refers to them: the page faults of fresh
memory take longer than copying the rows into it."""

from __future__ import annotations

import mmap
import sys

import torch

_LEAST_BYTES = 1 << 20  # smaller ones are the allocator's
_MOST = 3  # results that a training loop holds at a time


class Recycled:
    """Allocates tensors. A buffer is free again when the last tensor in it has been freed: each
    holds a reference to it."""

    def __init__(self) -> None:
        self._buffers: list[mmap.mmap] = []

    def empty(self, rows: int, length: int, dtype: torch.dtype) -> torch.Tensor:
        """A new tensor with arbitrary values."""
        count = rows * length
        size = count * dtype.itemsize
        buffer = self._take(size) if size >= _LEAST_BYTES else None
        if buffer is None:
            return torch.empty((rows, length), dtype=dtype)
        storage = torch.frombuffer(buffer, dtype=dtype, count=count).untyped_storage()
        # Not a view: the result of an autograd function that is one cannot be changed in place.
        return torch.empty(0, dtype=dtype).set_(storage, 0, (rows, length), (length, 1))

    def _take(self, size: int) -> mmap.mmap | None:
        """A free buffer of that size or up to twice as much; None if all are in use."""
        free = []
        for at in range(len(self._buffers)):
            if sys.getrefcount(self._buffers[at]) == 2:  # the list's, and the argument
                if size <= len(self._buffers[at]) <= 2 * size:
                    return self._buffers[at]
                free.append(at)
        for at in reversed(free):
            del self._buffers[at]
        if len(self._buffers) == _MOST:
            return None
        self._buffers.append(mmap.mmap(-1, size))
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._buffers[-1].madvise(mmap.MADV_HUGEPAGE)
        return self._buffers[-1]
