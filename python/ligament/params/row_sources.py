"""The sources of a module's rows: host memory, for ids there or on a device, or a cache on that
device. All return the same rows, and sum the gradients of an id before they push them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch

from .cache_hooks import add_cache
from .device_rows import CacheSize, DeviceRows, Full, Place, check_range
from .recycled import Recycled
from .row_kernels import Bags
from .row_steps import Places, listed, summed, unpadded
from .rows import Worker


class Found(NamedTuple):
    """Rows, and the place of each id among them; None: row i belongs to id i."""

    rows: torch.Tensor
    places: torch.Tensor | None

    def each(self) -> torch.Tensor:
        """One row for each id, in memory that nothing else uses."""
        return self.rows if self.places is None else self.rows.index_select(0, self.places)

    def all_places(self) -> torch.Tensor:
        """The place of each id, even if row i belongs to id i."""
        if self.places is not None:
            return self.places
        return torch.arange(len(self.rows), device=self.rows.device)


class Gradients(NamedTuple):
    """The gradient of ids, and the places of the ids in it; the padding has none."""

    rows: torch.Tensor
    places: Places
    padding: int | None


class RowSource(Protocol):
    """Ids are int64 in one dimension, on the device of the source."""

    def pull(self, worker: Worker, ids: torch.Tensor) -> Found:
        """Reads rows; the caller calls `pulled` after it has used them. Refuses ids out of
        range."""

    def pulled(self) -> None:
        """Called when all work that uses the rows is queued on the current stream."""

    def bags(self, ids: torch.Tensor, bags: Bags) -> torch.Tensor | None:
        """The sums or means of bags of rows, in memory that nothing else uses; None: pull the rows,
        and sum them. Refuses ids out of range."""

    def push(self, worker: Worker, ids: torch.Tensor, gradients: Gradients) -> None:
        """Pushes gradients."""


class HostRows:
    """For ids in host memory."""

    def __init__(self, place: Place, memory: Recycled) -> None:
        self._place, self._memory = place, memory

    def _keys(self, ids: torch.Tensor) -> torch.Tensor:
        return ids + self._place.offset if self._place.offset else ids.contiguous()

    def pull(self, worker: Worker, ids: torch.Tensor) -> Found:
        check_range(ids, self._place.used)
        rows = self._memory.empty(ids.numel(), self._place.length, self._place.dtype)
        worker.pull(self._keys(ids), rows)
        return Found(rows, None)

    def pulled(self) -> None:
        pass

    def bags(self, ids: torch.Tensor, bags: Bags) -> torch.Tensor | None:
        return None

    def push(self, worker: Worker, ids: torch.Tensor, gradients: Gradients) -> None:
        ids, places = unpadded(ids, *gradients[1:])
        given = gradients.rows.to(self._place.dtype).contiguous()
        worker.push_sums(self._keys(ids), given, listed(places, ids.numel(), ids.device), True)


class StagedRows:
    """For ids on a device: each row is transferred once, through pinned memory on the current
    stream."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def _host(self, count: int, device: torch.device) -> torch.Tensor:
        """Pinned memory; torch's allocator reuses it after the copies from it have completed."""
        shape = (count, self._place.length)
        return torch.empty(shape, dtype=self._place.dtype, pin_memory=device.type == "cuda")

    def pull(self, worker: Worker, ids: torch.Tensor) -> Found:
        check_range(ids, self._place.used)
        distinct, places = torch.unique(ids, return_inverse=True)
        rows = self._host(distinct.numel(), ids.device)
        worker.pull(distinct.cpu() + self._place.offset, rows)
        return Found(rows.to(ids.device, non_blocking=True), places)

    def pulled(self) -> None:
        pass

    def bags(self, ids: torch.Tensor, bags: Bags) -> torch.Tensor | None:
        return None

    def push(self, worker: Worker, ids: torch.Tensor, gradients: Gradients) -> None:
        ids, places = unpadded(ids, *gradients[1:])
        distinct, inverse = torch.unique(ids, return_inverse=True)
        sums = summed(gradients.rows.to(self._place.dtype), places, inverse, distinct.numel())
        host = self._host(distinct.numel(), ids.device)
        host.copy_(sums, non_blocking=True)
        keys = distinct.cpu() + self._place.offset  # waits for both copies: they are in order
        worker.push(keys, host, True)


class CachedRows:
    """For ids on a device that caches rows."""

    def __init__(self, cache: DeviceRows, place: Place) -> None:
        self.cache, self._place = cache, place
        self._staged = StagedRows(place)

    def pull(self, worker: Worker, ids: torch.Tensor) -> Found:
        if self._place.used < self._place.limit:  # otherwise the lookup finds those out of range
            check_range(ids, self._place.used)
        try:
            return Found(self.cache.values, self.cache.find(ids, self._place.limit))
        except Full:
            return self._staged.pull(worker, ids)

    def pulled(self) -> None:
        self.cache.mark()

    def bags(self, ids: torch.Tensor, bags: Bags) -> torch.Tensor | None:
        try:
            return self.cache.bags(ids, self._place.used, bags)
        except Full:
            return None

    def push(self, worker: Worker, ids: torch.Tensor, gradients: Gradients) -> None:
        try:
            self.cache.push(ids, *gradients)
        except Full:
            self._staged.push(worker, ids, gradients)


def source_of(
    place: Place, worker: Worker, ids: torch.Tensor, size: CacheSize, memory: Recycled
) -> RowSource:
    """For ids on their device. A worker has one cache for a table, on the first device other than
    the host that its ids were on."""
    device = ids.device
    cache: DeviceRows | None = worker._caches.get(place.offset)
    if cache is not None and cache.device.type == "cpu" != device.type:
        cache.forget()
        cache = None
    if cache is None and size.rows:
        cache = DeviceRows(worker, place, size, device)
        add_cache(worker, place.offset, cache)
    if cache is not None and cache.device == device:
        return CachedRows(cache, place)
    return HostRows(place, memory) if device.type == "cpu" else StagedRows(place)
