"""Rows of a table cached on a device.

The cache of a worker holds the rows it uses, looks them up and applies the optimizer's steps to
them on the device, and writes them back before any other access: docs/params.md, "On a GPU".
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from ..errors import InvalidError
from . import row_steps
from .node import Server
from .row_kernels import NONE, Bags, row_kernels
from .rows import Worker
from .slot_map import slot_map

_CHUNK_BYTES = 16 << 20
_EVICTED_SHARE = 64  # at least this part of the cache is evicted at a time
_SERIAL = 1 << 14  # ids; torch shares the work on more
_STALE = -1  # no epoch: the row is read before its next use


class Place(NamedTuple):
    """The rows of a table that a module uses."""

    server: Server
    table: str | None
    offset: int  # of the first key
    limit: int  # ids of the table are below
    used: int  # ids of the module are below
    length: int
    dtype: torch.dtype

    def optimizer(self) -> Any:
        """As in `tables.Table`."""
        found = [t for t in self.server._tables if self.table in (None, t.name)]
        return found[0].optimizer

    def rate(self) -> float:
        """The learning rate of this node's steps."""
        return self.server._core.get_lr(self.table)


class CacheSize(NamedTuple):
    """The options of a module."""

    rows: int  # 0: no cache
    clocks: int  # between exchanges with other nodes and workers


class Full(Exception):
    """The cache is smaller than one batch."""


def check_range(ids: torch.Tensor, limit: int) -> None:
    """Raises `InvalidError` unless all ids are below the limit, and not negative."""
    # On the host in parts that torch leaves to one thread: its threads spin for a while after their
    # work, when ours need the processors.
    size = max(1, ids.numel() if ids.is_cuda else _SERIAL)
    for part in torch.split(ids, size) if ids.numel() else ():
        least, most = torch.stack(torch.aminmax(part)).tolist()
        if least < 0 or most >= limit:
            wrong = least if least < 0 else most
            raise InvalidError(f"id {wrong} is out of range: ids are 0 to {limit - 1}")


class DeviceRows:
    """At most `rows` rows of a table on a device.

    With one node and one worker nothing else changes a row (`alone`): cached rows are the only
    current ones, and are assigned to the node's rows when they are written back. Otherwise the
    gradients are also summed up in `pending`, and pushed when the clock advances `clocks` times;
    after that, a row is read again before its next use. If steps cannot be summed up (`owned`), the
    owner of a row makes them: a gradient is pushed before the row is read or gets another one."""

    def __init__(self, worker: Worker, place: Place, size: CacheSize, device: torch.device) -> None:
        self.optimizer = place.optimizer()
        self.alone = place.server.num_nodes == 1 and place.server.num_threads == 1
        self.owned = not self.alone and not row_steps.sums_up(self.optimizer)
        self._worker, self._place, self.device = worker, place, device
        self._rows = rows = min(size.rows, place.limit)
        self._clocks, self._clock = size.clocks, 0
        self._state_length = (
            row_steps.state_length(self.optimizer[0], place.length) if self.alone else 0
        )
        wide = torch.float64 if place.dtype == torch.float64 else torch.float32
        self.slot_map = slot_map(place.limit, device)
        self.values = torch.empty((rows, place.length), dtype=place.dtype, device=device)
        self.state = torch.empty((rows, self._state_length), dtype=wide, device=device)
        self.pending = torch.zeros_like(self.values) if not self.alone else self.values[:0]
        self._ids = torch.zeros(rows, dtype=torch.int64, device=device)
        self.used = torch.zeros(rows, dtype=torch.int64, device=device)  # by tick
        self.read = torch.zeros(rows, dtype=torch.int64, device=device)  # by epoch
        self.dirty = torch.zeros(rows, dtype=torch.bool, device=device)
        self.leaders = torch.empty(rows, dtype=torch.int32, device=device)
        self._spare = torch.arange(rows, device=device)
        self.tick = self.epoch = 0
        self._latest: tuple[torch.Tensor, torch.Tensor] | None = None  # ids, and their slots
        self._kernels = row_kernels(self)
        self._lock = threading.RLock()
        self._stream: Any = None  # the latest one
        self._last: Any = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.stats = {"hits": 0, "misses": 0, "evictions": 0, "written": 0}

    # --- accesses -------------------------------------------------------------------------------

    def find(self, ids: torch.Tensor, bound: int) -> torch.Tensor:
        """The slots in `values` of ids on the device; rows that are not cached are read first.
        Raises `InvalidError` unless ids are below the bound, and `Full` if there is no room."""
        with self._turn():
            return self._find(ids, bound)[0]

    def bags(self, ids: torch.Tensor, bound: int, bags: Bags) -> torch.Tensor | None:
        """The sums or means of bags of rows, read and refused as by `find`; None: it cannot sum."""
        if self._kernels is None:
            return None
        with self._turn():
            return self._find(ids, bound, bags=bags)[1]

    def mark(self) -> None:
        """Makes other streams wait for the current one's work on `values` so far."""
        with self._turn():
            pass

    def push(
        self,
        ids: torch.Tensor,
        grad: torch.Tensor,
        places: row_steps.Places,
        padding: int | None = None,
    ) -> None:
        """One step for each id other than the padding, with the sum of its gradients."""
        if self._kernels is None:
            ids, places = row_steps.unpadded(ids, places, padding)
        with self._turn():
            slots = self._again(ids)
            if self._kernels is not None:
                given, rate = grad.to(self._place.dtype), self._place.rate()
                self._kernels.step(ids, slots, given, places, padding, rate, self._number())
                return
            order, leaders = self._lead(slots)
            sums = row_steps.summed(grad.to(self._place.dtype), places, leaders, slots.numel())
            if self.owned:
                led = slots[leaders == order]
                self._write_back(led[self.dirty[led]])  # each gradient is a step
                self.read.index_fill_(0, slots, _STALE)
                self._latest = None
            else:
                self._step(slots, leaders, sums)
            if not self.alone:
                self.pending.index_add_(0, slots, sums)
            self.dirty.index_fill_(0, slots, True)

    def prefetch(self, ids: torch.Tensor) -> None:
        """Reads rows that will be used soon."""
        try:
            given = ids.detach().reshape(-1).to(self.device, torch.int64, non_blocking=True)
            self.find(given, self._place.limit)
        except Full:
            pass  # the access will do without the cache

    # --- coherence ------------------------------------------------------------------------------

    def flush(self) -> None:
        """Writes all changed rows back."""
        with self._turn():
            self._write_back(self.dirty.nonzero().view(-1))

    def refresh(self) -> None:
        """Flushes; rows that others may have changed are read again before their next use."""
        with self._turn():
            self._write_back(self.dirty.nonzero().view(-1))
            self.epoch += not self.alone
            self._latest = None

    def forget(self) -> None:
        """Flushes, and empties the cache."""
        with self._turn():
            self._write_back(self.dirty.nonzero().view(-1))
            self.slot_map.clear()
            self._latest = None
            self.used.zero_()
            self._spare = torch.arange(self._rows, device=self.device)

    def advance(self) -> None:
        """Called when the worker's clock has advanced."""
        self._clock += 1
        if not self.alone and self._clock % self._clocks == 0:
            self.refresh()

    # --- under the lock -------------------------------------------------------------------------

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Admits one thread at a time; a stream waits for the work of other streams on the
        cache."""
        with self._lock, torch.no_grad():
            if self._last is not None:
                stream = torch.cuda.current_stream(self.device)
                if self._stream is None or stream != self._stream:
                    self._change_stream(stream)
            yield

    def _change_stream(self, stream: Any) -> None:
        """Switches the cache to a stream, which waits for the previous one. Memory of other streams
        is not reused before this one is done with it."""
        if self._stream is not None:
            self._last.record(self._stream)
            stream.wait_event(self._last)
        for tensor in (self._spare, *self.slot_map.replaced()):
            tensor.record_stream(stream)
        if self._kernels is not None:
            self._kernels.used_by(stream)
        self._stream, self._latest = stream, None

    def _again(self, ids: torch.Tensor) -> torch.Tensor:
        """The slots of the latest lookup, if its rows are still in place: most gradients belong to
        it."""
        if self._latest is not None:
            before, slots = self._latest
            where = (ids.data_ptr(), ids.shape, ids.stride())
            if where == (before.data_ptr(), before.shape, before.stride()):
                return slots
        return self._find(ids, self._place.limit, not self.owned)[0]

    def _number(self) -> int:
        """The CUstream of this turn."""
        number: int = self._stream.cuda_stream
        return number

    def _find(
        self, ids: torch.Tensor, bound: int, current: bool = True, bags: Bags = NONE
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The slots, and with kernels the bags. `current`: rows that others may have changed are
        read again."""
        self.tick += 1
        self._latest = None
        slots, sums, complete = self._look(ids, bound, current, bags)
        missing = 0
        if not complete:
            missing = self._read_missing(ids, bound, current)
            slots, sums, _ = self._look(ids, bound, current, bags)
        self.stats["hits"] += ids.numel() - missing
        self.stats["misses"] += missing
        if current:
            self._latest = ids, slots
        return slots, sums

    def _look(
        self, ids: torch.Tensor, bound: int, current: bool, bags: Bags
    ) -> tuple[torch.Tensor, torch.Tensor, bool]:
        """Like RowKernels.find. This is the only wait for the device if all rows are cached."""
        if self._kernels is not None:
            return self._kernels.find(ids, bound, bags, self._number())
        slots, usable = self._slots(ids, current)
        complete = not ids.numel() or int(usable.min()) >= 0
        if complete:
            self.used.index_fill_(0, slots, self.tick)
        return slots, self.values[:0], complete

    def _slots(self, ids: torch.Tensor, current: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """The slots, and those that can be used; -1 in place of others."""
        slots = self.slot_map.find(ids)
        if self.alone or not current:
            return slots, slots
        return slots, torch.where(self.read[slots] == self.epoch, slots, -1)

    def _read_missing(self, ids: torch.Tensor, bound: int, current: bool) -> int:
        """Reads the missing rows; returns how many ids had no usable row."""
        check_range(ids, bound)
        slots, usable = self._slots(ids, current)
        stale = usable < 0
        missing = int(stale.sum())
        self.used[slots[slots >= 0]] = self.tick  # they stay
        self._fill(torch.unique(ids[stale]))
        return missing

    def _lead(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The numbers of the slots, and for each slot the number of a representative among equal
        slots. Faster than sorting, and does not wait for the device."""
        order = torch.arange(slots.numel(), dtype=torch.int32, device=self.device)
        self.leaders.index_copy_(0, slots, order)
        return order, self.leaders.index_select(0, slots)

    def _step(self, slots: torch.Tensor, leaders: torch.Tensor, sums: torch.Tensor) -> None:
        """One step of the optimizer. The sum of a slot is at the number of its representative.
        Other numbers of the slot have zero, which is also added to the row, or get the same as the
        representative."""
        rate = self._place.rate()
        if row_steps.adds(self.optimizer, self.values.dtype):
            self.values.index_add_(0, slots, row_steps.change(self.optimizer, rate, sums))
            return
        before = self.values.index_select(0, slots), self.state.index_select(0, slots)
        each = sums.index_select(0, leaders)
        self._put(slots, *row_steps.step(self.optimizer, rate, *before, each))

    def _fill(self, ids: torch.Tensor) -> None:
        step = max(1, _CHUNK_BYTES // (8 * self._place.length))
        for part in torch.split(ids, step):
            slots = self.slot_map.find(part)
            new = slots < 0
            if self.owned:
                held = slots[~new]
                self._write_back(held[self.dirty[held]])
            values, state = self._read_rows(part)
            count = int(new.sum())
            if count:
                slots[new] = taken = self._take(count)
                self._ids[taken] = part[new]
                self.slot_map.put(part[new], taken)
            self._put(slots, values, state)
            self.used.index_fill_(0, slots, self.tick)
            self.read.index_fill_(0, slots, self.epoch)

    def _put(self, slots: torch.Tensor, values: torch.Tensor, state: torch.Tensor) -> None:
        self.values.index_copy_(0, slots, values)
        if self._state_length:
            self.state.index_copy_(0, slots, state)

    def _host(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """Host memory for a copy that does not block; torch's allocator reuses it afterwards."""
        return torch.empty(shape, dtype=dtype, pin_memory=self.device.type == "cuda")

    def _read_rows(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys = ids.cpu() + self._place.offset
        values = self._host(keys.numel(), self._place.length, dtype=self._place.dtype)
        state = self._host(keys.numel(), self._state_length, dtype=self.state.dtype)
        if self.alone:
            Worker.get_rows(self._worker, keys, values, state)
        else:
            Worker.pull(self._worker, keys, values)
        return (
            values.to(self.device, non_blocking=True),
            state.to(self.device, non_blocking=True),
        )

    def _write_back(self, slots: torch.Tensor) -> None:
        if not slots.numel():
            return
        step = max(1, _CHUNK_BYTES // (8 * self._place.length))
        for part in torch.split(slots, step):
            keys = self._ids[part].cpu() + self._place.offset
            if self.alone:
                rows = self._to_host(self.values[part]), self._to_host(self.state[part])
                Worker.set_rows(self._worker, keys, *rows)
            else:
                Worker.push(self._worker, keys, self._to_host(self.pending[part]), True)
                self.pending[part] = 0
            self.dirty[part] = False
            self.stats["written"] += part.numel()

    def _to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.device.type != "cuda":
            return tensor
        to = self._host(*tensor.shape, dtype=tensor.dtype)
        to.copy_(tensor, non_blocking=True)
        torch.cuda.current_stream(self.device).synchronize()
        return to

    def _take(self, count: int) -> torch.Tensor:
        """Free slots, after an eviction if necessary."""
        if self._spare.numel() < count:
            self._evict(count - self._spare.numel())
        taken, self._spare = self._spare[:count], self._spare[count:]
        return taken

    def _evict(self, count: int) -> None:
        """Evicts the least recently used rows; none of those in use now."""
        held = torch.ones(self._rows, dtype=torch.bool, device=self.device)
        held[self._spare] = False
        idle = int((held & (self.used < self.tick)).sum())
        if idle < count:
            raise Full
        count = min(idle, max(count, self._rows // _EVICTED_SHARE))
        age = torch.where(held, self.used, self.tick)
        slots = torch.topk(age, count, largest=False).indices
        self._write_back(slots[self.dirty[slots]])
        self.slot_map.remove(self._ids[slots])
        self._spare = torch.cat((self._spare, slots))
        self.stats["evictions"] += count
