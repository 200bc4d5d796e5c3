"""Rows of a table cached on a device.

The cache of a worker holds the rows it uses, looks them up and applies the optimizer's steps to
them on the device, and writes them back when somebody else looks: docs/params.md, "On a GPU".
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

    With one node and one worker nobody else changes a row (`alone`): cached rows are the only
    current ones, and are assigned to the node's rows when they are written back. Otherwise the
    gradients are also summed up in `pending`, and pushed when the clock advances `clocks` times;
    after that, a row is read again before its next use. If steps cannot be summed up (`owned`), the
    owner of a row makes them: a gradient is pushed before the row is read or gets another one."""

    def __init__(self, worker: Worker, place: Place, size: CacheSize, device: torch.device) -> None:
        self._optimizer = place.optimizer()
        self.alone = place.server.num_nodes == 1 and place.server.num_threads == 1
        self._owned = not self.alone and not row_steps.sums_up(self._optimizer)
        self._worker, self._place, self.device = worker, place, device
        self._rows = rows = min(size.rows, place.limit)
        self._clocks, self._clock = size.clocks, 0
        self._state_length = (
            row_steps.state_length(self._optimizer[0], place.length) if self.alone else 0
        )
        wide = torch.float64 if place.dtype == torch.float64 else torch.float32
        self._map = slot_map(place.limit, device)
        self.values = torch.empty((rows, place.length), dtype=place.dtype, device=device)
        self._state = torch.empty((rows, self._state_length), dtype=wide, device=device)
        self._pending = torch.zeros_like(self.values) if not self.alone else self.values[:0]
        self._ids = torch.zeros(rows, dtype=torch.int64, device=device)
        self._used = torch.zeros(rows, dtype=torch.int64, device=device)  # by tick
        self._read = torch.zeros(rows, dtype=torch.int64, device=device)  # by epoch
        self._dirty = torch.zeros(rows, dtype=torch.bool, device=device)
        self._leaders = torch.empty(rows, dtype=torch.int32, device=device)
        self._spare = torch.arange(rows, device=device)
        self._tick = self._epoch = 0
        self._latest: tuple[torch.Tensor, torch.Tensor] | None = None  # ids, and their slots
        self._lock = threading.RLock()
        self._stream: Any = None  # the latest one
        self._last: Any = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.stats = {"hits": 0, "misses": 0, "evictions": 0, "written": 0}

    # --- accesses -------------------------------------------------------------------------------

    def find(self, ids: torch.Tensor) -> torch.Tensor:
        """The slots in `values` of ids on the device; rows that are not cached are read first.
        Raises `InvalidError` for ids outside the table, and `Full` if there is no room."""
        with self._turn():
            return self._find(ids)

    def mark(self) -> None:
        """Other streams wait for what the current one does with `values` up to here."""
        with self._turn():
            pass

    def push(self, ids: torch.Tensor, grad: torch.Tensor, places: row_steps.Places) -> None:
        """One step for each id, with the sum of its gradients."""
        with self._turn():
            slots = self._again(ids)
            order, leaders = self._lead(slots)
            sums = row_steps.summed(grad.to(self._place.dtype), places, leaders, slots.numel())
            if self._owned:
                led = slots[leaders == order]
                self._write_back(led[self._dirty[led]])  # each gradient is a step
                self._read.index_fill_(0, slots, _STALE)
                self._latest = None
            else:
                self._step(slots, leaders, sums)
            if not self.alone:
                self._pending.index_add_(0, slots, sums)
            self._dirty.index_fill_(0, slots, True)

    def prefetch(self, ids: torch.Tensor) -> None:
        """Reads rows that will be used soon."""
        try:
            self.find(ids.detach().reshape(-1).to(self.device, torch.int64, non_blocking=True))
        except Full:
            pass  # the access will do without the cache

    # --- coherence ------------------------------------------------------------------------------

    def flush(self) -> None:
        """Writes all changed rows back."""
        with self._turn():
            self._write_back(self._dirty.nonzero().view(-1))

    def refresh(self) -> None:
        """Flushes; rows that others may have changed are read again before their next use."""
        with self._turn():
            self._write_back(self._dirty.nonzero().view(-1))
            self._epoch += not self.alone
            self._latest = None

    def forget(self) -> None:
        """Flushes, and empties the cache."""
        with self._turn():
            self._write_back(self._dirty.nonzero().view(-1))
            self._map.clear()
            self._latest = None
            self._used.zero_()
            self._spare = torch.arange(self._rows, device=self.device)

    def advance(self) -> None:
        """The worker's clock has advanced."""
        self._clock += 1
        if not self.alone and self._clock % self._clocks == 0:
            self.refresh()

    # --- under the lock -------------------------------------------------------------------------

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One thread at a time; a stream waits for what another one has done with the cache."""
        with self._lock, torch.no_grad():
            if self._last is not None:
                stream = torch.cuda.current_stream(self.device)
                if stream != self._stream:
                    self._change_stream(stream)
            yield

    def _change_stream(self, stream: Any) -> None:
        """Memory of another stream is not reused before this one is done with it."""
        if self._stream is not None:
            self._last.record(self._stream)
            stream.wait_event(self._last)
        for tensor in (self._spare, *self._map.replaced()):
            tensor.record_stream(stream)
        self._stream, self._latest = stream, None

    def _again(self, ids: torch.Tensor) -> torch.Tensor:
        """Most gradients are those of the latest lookup, whose rows are still where they were."""
        if self._latest is not None:
            before, slots = self._latest
            where = (ids.data_ptr(), ids.shape, ids.stride())
            if where == (before.data_ptr(), before.shape, before.stride()):
                return slots
        return self._find(ids, current=not self._owned)

    def _find(self, ids: torch.Tensor, current: bool = True) -> torch.Tensor:
        """`current`: what others may have changed is read again."""
        self._tick += 1
        self._latest = None
        slots = usable = self._map.find(ids)
        if not self.alone and current:
            usable = torch.where(self._read[slots] == self._epoch, slots, -1)
        missing = 0
        if ids.numel() and int(usable.min()) < 0:  # the only wait for the device if all are cached
            check_range(ids, self._place.limit)
            stale = usable < 0
            missing = int(stale.sum())
            self._used[slots[slots >= 0]] = self._tick  # they stay
            self._fill(torch.unique(ids[stale]))
            slots = self._map.find(ids)
        self.stats["hits"] += ids.numel() - missing
        self.stats["misses"] += missing
        self._used.index_fill_(0, slots, self._tick)
        if current:
            self._latest = ids, slots
        return slots

    def _lead(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The numbers of the slots, and for each slot the number of one that is equal: the same one
        for all that are equal. Faster than sorting, and does not wait for the device."""
        order = torch.arange(slots.numel(), dtype=torch.int32, device=self.device)
        self._leaders.index_copy_(0, slots, order)
        return order, self._leaders.index_select(0, slots)

    def _step(self, slots: torch.Tensor, leaders: torch.Tensor, sums: torch.Tensor) -> None:
        """One step of the optimizer. The sum of a slot is at its leader's number; at the others is
        zero, which is added to the row as well, or they get what the leader gets."""
        rate = self._place.rate()
        if row_steps.adds(self._optimizer, self.values.dtype):
            self.values.index_add_(0, slots, row_steps.change(self._optimizer, rate, sums))
            return
        before = self.values.index_select(0, slots), self._state.index_select(0, slots)
        each = sums.index_select(0, leaders)
        self._put(slots, *row_steps.step(self._optimizer, rate, *before, each))

    def _fill(self, ids: torch.Tensor) -> None:
        step = max(1, _CHUNK_BYTES // (8 * self._place.length))
        for part in torch.split(ids, step):
            slots = self._map.find(part)
            new = slots < 0
            if self._owned:
                held = slots[~new]
                self._write_back(held[self._dirty[held]])
            values, state = self._read_rows(part)
            count = int(new.sum())
            if count:
                slots[new] = taken = self._take(count)
                self._ids[taken] = part[new]
                self._map.put(part[new], taken)
            self._put(slots, values, state)
            self._used.index_fill_(0, slots, self._tick)
            self._read.index_fill_(0, slots, self._epoch)

    def _put(self, slots: torch.Tensor, values: torch.Tensor, state: torch.Tensor) -> None:
        self.values.index_copy_(0, slots, values)
        if self._state_length:
            self._state.index_copy_(0, slots, state)

    def _host(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """Host memory for a copy that does not block; torch's allocator reuses it afterwards."""
        return torch.empty(shape, dtype=dtype, pin_memory=self.device.type == "cuda")

    def _read_rows(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys = ids.cpu() + self._place.offset
        values = self._host(keys.numel(), self._place.length, dtype=self._place.dtype)
        state = self._host(keys.numel(), self._state_length, dtype=self._state.dtype)
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
                rows = self._to_host(self.values[part]), self._to_host(self._state[part])
                Worker.set_rows(self._worker, keys, *rows)
            else:
                Worker.push(self._worker, keys, self._to_host(self._pending[part]), True)
                self._pending[part] = 0
            self._dirty[part] = False
            self.stats["written"] += part.numel()

    def _to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.device.type != "cuda":
            return tensor
        to = self._host(*tensor.shape, dtype=tensor.dtype)
        to.copy_(tensor, non_blocking=True)
        torch.cuda.current_stream(self.device).synchronize()
        return to

    def _take(self, count: int) -> torch.Tensor:
        """Free slots, after an eviction if need be."""
        if self._spare.numel() < count:
            self._evict(count - self._spare.numel())
        taken, self._spare = self._spare[:count], self._spare[count:]
        return taken

    def _evict(self, count: int) -> None:
        """The rows that have not been used for longest; none of those in use now."""
        held = torch.ones(self._rows, dtype=torch.bool, device=self.device)
        held[self._spare] = False
        idle = int((held & (self._used < self._tick)).sum())
        if idle < count:
            raise Full
        count = min(idle, max(count, self._rows // _EVICTED_SHARE))
        age = torch.where(held, self._used, self._tick)
        slots = torch.topk(age, count, largest=False).indices
        self._write_back(slots[self._dirty[slots]])
        self._map.remove(self._ids[slots])
        self._spare = torch.cat((self._spare, slots))
        self.stats["evictions"] += count
