"""Memory of the core whose ownership passes to a framework without a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

import numpy as np

from .. import _core
from .dtypes import BYTES, NUMPY

ALIGNMENT = 64  # TensorFlow aborts the process on less
PAGE = 4096  # the disk writes straight into memory that begins at a page
_LARGE = 1 << 20

Item = TypeVar("Item")


def groups(
    items: Iterable[Item], size_of: Callable[[Item], int], limit: int
) -> Iterator[list[Item]]:
    """The items in order, in lists of at most `limit` bytes; a larger item has its own list."""
    group: list[Item] = []
    waiting = 0
    for item in items:
        size = size_of(item)
        if group and waiting + size > limit:
            yield group
            group, waiting = [], 0
        group.append(item)
        waiting += size
    if group:
        yield group


class Fresh:
    """A tensor in the core's memory: an allocation, or a piece of a mapping. Can be read as a
    tensor and exported by DLPack or the buffer protocol."""

    def __init__(
        self, code: int, shape: tuple[int, ...], memory: _core.Memory | None = None
    ) -> None:
        count = 1
        for size in shape:
            count *= size
        bytes_ = count * BYTES[code]
        if memory is None:
            memory = _core.allocate(bytes_, PAGE if bytes_ >= _LARGE else ALIGNMENT)
        self.code, self.shape, self.memory, self.bytes = code, shape, memory, bytes_

    def item(self) -> tuple[Any, ...]:
        """As an item of a Batch."""
        return (self.memory, self.memory.address, self.code, self.shape, None)

    def array(self) -> np.ndarray[Any, Any]:
        """The memory as an array."""
        dtype, memory = NUMPY.get(self.code), cast(Any, self.memory)
        if dtype is not None:
            return np.ndarray(self.shape, dtype, memory)
        if BYTES[self.code] == 4:  # complex32
            return np.ndarray((*self.shape, 2), np.float16, memory)
        return np.ndarray(self.shape, np.uint8, memory)

    def dlpack(self) -> Any:
        """A capsule of the old kind, which every framework accepts."""
        return self.memory.dlpack(self.code, self.shape)

    def __dlpack__(
        self, *, stream: Any = None, max_version: tuple[int, int] | None = None, **_: Any
    ) -> Any:
        versioned = max_version is not None and max_version[0] >= 1
        return self.memory.dlpack(self.code, self.shape, versioned)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)
