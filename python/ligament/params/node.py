"""Nodes: a process's part of the rows, and the scheduler that connects the nodes."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from .. import _core, environment, tensors
from ..arguments import nanoseconds
from ..errors import InvalidError
from ..place import absolute
from ..store import Store
from . import tables as described
from .rows import Worker

_TECHNIQUES = ("all", "replication_only", "relocation_only")
_DTYPES = ("float32", "float64", "bfloat16", "int32", "int64")
_ANY_RANK = 2**32 - 1
_NODES_MOST = 1024
_WORKERS_MOST = 1024
_BATCH_THREADS_MOST = 64
_HAS_SCHEDULER, _HASHED, _TRUSTED_FABRIC, _ANY_DEVICE = 1, 2, 4, 8


@dataclass(frozen=True)
class Setup:
    """The arguments of `setup`; pass it as `Server(..., setup=...)` if a process has several."""

    num_keys: int | None
    num_threads: int
    techniques: int
    place: environment.Place
    secret: bytes | None
    transport: str
    times: tuple[int, int, int, int]  # timeout, liveness, spin, round in nanoseconds
    hashed: bool
    fabric: int = 0  # flags
    batch_threads: int = 0

    def open(self, tables: tuple[described.Table, ...], code: int, hashed: bool) -> _core.Params:
        """Joins the job."""
        place = self.place
        scheduler = bool(place.scheduler)
        return _core.Params(
            (
                int(place.role == "scheduler"),
                _ANY_RANK if place.rank is None else place.rank,
                place.servers,
                self.num_threads,
                code,
                self.techniques,
                _HAS_SCHEDULER * scheduler | _HASHED * hashed | self.fabric,
                self.batch_threads,
            ),
            tables,
            place.address or None,
            self.transport,
            place.host,
            self.secret,
            self.times,
        )


_setup: list[Setup] = []
_servers: weakref.WeakSet[Server] = weakref.WeakSet()


def setup(
    num_keys: int | None = None,
    num_threads: int = 1,
    use_techniques: str = "",
    num_channels: int = -1,
    *,
    role: str | None = None,
    rank: int | None = None,
    servers: int | None = None,
    address: str | None = None,
    secret: str | bytes | None = None,
    transport: str = "auto",
    timeout_ms: float = 60000,
    liveness_ms: float = 10000,
    spin_us: float = 20,
    round_us: float = 1000,
    hashed: bool = False,
    with_scheduler: bool | None = None,
    trusted_fabric: bool | str | None = None,
    batch_threads: int = 0,
) -> Setup:
    """Configures the next `Server` of this process: `num_keys` keys (None: as many as its tables
    have), `num_threads` workers on each node. Arguments that are None are taken from the variables
    of DMLC, torchrun, Slurm or PBS; without any, the job has one process. `use_techniques` is
    "all", "replication_only" or "relocation_only"; `num_channels` is accepted and ignored. Without
    a scheduler, node 0 runs the rendezvous at `address`. Large batches of local rows use
    `batch_threads` threads (0: one for each processor, at most 8). `trusted_fabric` is described in
    `ligament.Mesh`."""
    if num_keys is not None:
        num_keys = described.whole(num_keys, "num_keys", 1, 2**63 - 1)
    name = use_techniques or "all"
    if name not in _TECHNIQUES:
        known = ", ".join(_TECHNIQUES)
        raise InvalidError(f"unknown use_techniques={use_techniques!r}: expected one of {known}")
    place = environment.node(role, rank, servers, address)
    if with_scheduler is not None:
        place = environment.with_scheduler(place, with_scheduler)
    elif place.source == "arguments" and place.role != "scheduler":
        place = environment.with_scheduler(place, False)
    described.whole(place.servers, "servers", 1, _NODES_MOST)
    trusted, any_device = environment.trusted_fabric(trusted_fabric)
    made = Setup(
        num_keys=num_keys,
        num_threads=described.whole(num_threads, "num_threads", 1, _WORKERS_MOST),
        techniques=_TECHNIQUES.index(name),
        place=place,
        secret=environment.secret(secret),
        transport=transport,
        times=(
            nanoseconds(timeout_ms, "timeout_ms", 1),
            nanoseconds(liveness_ms, "liveness_ms", 1),
            nanoseconds(spin_us, "spin_us") or -1,
            nanoseconds(round_us, "round_us"),
        ),
        hashed=hashed,
        fabric=_TRUSTED_FABRIC * trusted | _ANY_DEVICE * any_device,
        batch_threads=described.whole(batch_threads, "batch_threads", 0, _BATCH_THREADS_MOST),
    )
    _setup[:] = [made]
    return made


def scheduler(num_keys: int | None = None, num_threads: int = 1, **options: Any) -> None:
    """Connects the nodes and serves until all have left. `options` are those of `setup`."""
    before = list(_setup)
    made = setup(num_keys, num_threads, **(options | {"role": "scheduler"}))
    _setup[:] = before
    core = made.open((), tensors.NAMES["float32"], False)
    try:
        core.shutdown(None)
    finally:
        core.close()


class Server:
    """A node with its part of the rows. `value_lengths` is one length, one length per key, or
    `{"user": (keys, length), ...}`; the keys of the tables follow each other.

    `optimizer={"name": "adagrad", "lr": .1}` (sgd, adagrad, rowwise_adagrad, adam) makes a push a
    gradient; `init={"name": "uniform", "low": -.1, "high": .1, "seed": 0}` (zeros, constant,
    uniform, normal) sets the initial values. Both can be given by table: `{"user": {...}}`. With
    `hashed=True` any key may be used, up to the given number of keys.
    """

    def __init__(
        self,
        value_lengths: Any,
        dtype: Any = "float32",
        optimizer: Any = None,
        init: Any = None,
        *,
        hashed: bool | None = None,
        setup: Setup | None = None,
    ) -> None:
        self._setup = setup or (_setup[0] if _setup else None) or _default()
        self._hashed = self._setup.hashed if hashed is None else bool(hashed)
        if self._setup.place.role == "scheduler":
            raise InvalidError("this process is the scheduler: call params.scheduler instead")
        self._code = tensors.code_of_any(dtype)
        if tensors.name_of(self._code) not in _DTYPES:
            raise InvalidError(
                f"the dtype of rows must be one of {', '.join(_DTYPES)}, not {dtype!r}"
            )
        self._tables = described.tables(
            value_lengths, self._setup.num_keys, optimizer, init, self._hashed
        )
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._workers: weakref.WeakSet[Worker] = weakref.WeakSet()
        self._own: list[Worker] = []  # created by `worker`: nothing else refers to them
        self._core = self._setup.open(self._tables, self._code, self._hashed)
        self._rank, self._nodes, self._num_keys = self._core.facts()
        self._finalizer = weakref.finalize(self, self._core.close)
        _servers.add(self)

    # --- tables ---------------------------------------------------------------------------------

    def offset(self, table: str) -> int:
        """The first key of a table."""
        return self._core.offset(table)

    @property
    def tables(self) -> dict[str, tuple[int, int]]:
        """{name: (keys, length)}; a length of 0 means that lengths differ."""
        return {one.name or "values": (one.keys, one.length) for one in self._tables}

    @property
    def num_keys(self) -> int:
        """The number of keys of all tables; hashed: the maximum."""
        return self._num_keys

    @property
    def num_threads(self) -> int:
        """Workers of each node."""
        return self._setup.num_threads

    @property
    def num_nodes(self) -> int:
        """Nodes of the job."""
        return self._nodes

    @property
    def dtype(self) -> str:
        """The dtype of all rows."""
        return tensors.name_of(self._code)

    @property
    def _first_length(self) -> int:
        return self._tables[0].length

    def _uniform(self, keys: Any, count: int, elements: int) -> bool:
        """Whether the rows of these keys have the same length."""
        lengths = {one.length for one in self._tables}
        if len(lengths) == 1 and 0 not in lengths:
            return True
        if count == 0 or elements % count:
            return False
        numbers: Any = (keys,) if isinstance(keys, int) else keys
        flat = numbers.reshape(-1) if hasattr(numbers, "reshape") else numbers
        return len({self._core.length(int(key)) for key in flat}) == 1

    # --- learning -------------------------------------------------------------------------------

    @property
    def lr(self) -> Any:
        """The learning rate of this node's pushes; {table: rate} if tables differ. Setting one
        number sets all."""
        rates = {one.name or "values": self._core.get_lr(one.name) for one in self._tables}
        return rates if len(set(rates.values())) > 1 else next(iter(rates.values()))

    @lr.setter
    def lr(self, value: float | Mapping[str, float]) -> None:
        rates = value if isinstance(value, Mapping) else {None: value}
        found = {table: described.number(rate, "lr") for table, rate in rates.items()}
        for table in found:
            if table is not None:
                self._core.offset(table)
        self._settle("flush")  # gradients so far are applied with the rate so far
        for table, rate in found.items():
            self._core.set_lr(table, rate)

    def _optimizes(self, table: str | None) -> bool:
        return any(one.optimizer[0] for one in self._tables if table in (None, one.name))

    def enable_sampling_support(
        self,
        scheme: str = "local",
        with_replacement: bool = True,
        distribution: Any = "uniform",
        min: int = 0,
        max: int | None = None,
        *,
        pool_size: int = 250,
        reuse: int = 1,
        seed: int = 0,
    ) -> None:
        """Enables sampling of keys from `min` to `max` - 1 with the scheme "naive", "preloc",
        "pool" or "local"; `distribution` is "uniform", "log-uniform" or one weight per key. All
        nodes must call it with the same arguments before the first `prepare_sample`."""
        last = described.whole(self.num_keys if max is None else max, "max", 0, 2**63 - 1)
        first = described.whole(min, "min", 0, 2**63 - 1)
        kinds = described.sampling(scheme, distribution, first, last)
        self._core.enable_sampling(
            kinds[0],
            kinds[1],
            first,
            last,
            kinds[2],
            with_replacement,
            described.whole(pool_size, "pool_size", 1, 2**31),
            described.whole(reuse, "reuse", 1, 2**31),
            described.whole(seed, "seed", 0, 2**64 - 1),
        )

    # --- the job --------------------------------------------------------------------------------

    def worker(self) -> Worker:
        """The worker of this thread: the last one it created; otherwise a new one with a free
        number, or that of a thread that has ended."""
        me = threading.get_ident()
        threading.current_thread()  # from here on threading.enumerate lists it
        with self._lock:
            mine = [one for one in self._workers if one._thread == me]
            if mine:
                return max(mine, key=lambda one: one._made)
            taken = {one._id for one in self._workers}
            free = [number for number in range(self.num_threads) if number not in taken]
            alive = {thread.ident for thread in threading.enumerate()}
            left = [one for one in self._own if one._thread not in alive]
            if left and not free:
                left[0]._thread = me
                return left[0]
            if not free:
                raise InvalidError(
                    f"all {self.num_threads} workers belong to other threads (increase "
                    "num_threads in params.setup)"
                )
            self._own.append(Worker(free[0], self))
            return self._own[-1]

    def barrier(self, timeout_ms: float | None = None) -> None:
        """Waits until all nodes have called it; one thread of each node calls."""
        self._core.barrier(timeout_ms)

    def my_rank(self) -> int:
        """The number of this node."""
        return self._rank

    def save(
        self, uri: str | os.PathLike[str] | Store, name: str, timeout_ms: float | None = None
    ) -> None:
        """Saves all rows and their optimizer state as one model of a store. Every node calls it,
        and no worker may push meanwhile. Replaces an existing model of that name. Rows that have
        not changed since the last save are not written again."""
        self._settle("flush")
        self._core.save(_place(uri), name, timeout_ms)

    def load(
        self, uri: str | os.PathLike[str] | Store, name: str, timeout_ms: float | None = None
    ) -> None:
        """Loads saved rows, from a save of any number of nodes. Every node calls it."""
        self._settle("forget")
        self._core.load(_place(uri), name, timeout_ms)

    def _settle(self, act: str) -> None:
        """Applies `flush` or `forget` to the rows that its workers cache on devices."""
        for worker in list(self._workers):
            worker._settle(act)

    def stats(self) -> dict[str, Any]:
        """Statistics of this node. Of the pulls, pushes and sets (in keys), `local_percent` were in
        rows that this node owns and `replica_percent` in replicas."""
        stats: dict[str, Any] = self._core.stats()
        accesses = stats["local"] + stats["replica"] + stats["shared"] + stats["remote"]
        stats["local_percent"] = 100.0 * stats["local"] / accesses if accesses else 0.0
        stats["replica_percent"] = 100.0 * stats["replica"] / accesses if accesses else 0.0
        stats["relocations"] = stats["relocations_in"]
        stats["bytes"] = stats["bytes_sent"] + stats["bytes_received"]
        return stats

    def reset_stats(self) -> None:
        """Resets the statistics."""
        self._core.stats_reset()

    def shutdown(self, timeout_ms: float | None = None) -> None:
        """Waits for all nodes, then leaves. Node 0 (or the scheduler) serves until all have left.
        Does nothing if this node has already left."""
        if not self._finalizer.alive:
            return
        self._settle("flush")
        self._core.shutdown(timeout_ms)
        self.close()

    def close(self) -> None:
        """Leaves immediately."""
        for one in list(self._workers):
            one.close()
        self._own.clear()
        self._finalizer()
        _servers.discard(self)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._finalizer.alive:
                self.shutdown()
        finally:
            self.close()

    def __repr__(self) -> str:
        state = "" if self._finalizer.alive else ", closed"
        tables = ", ".join(f"{name} {list(shape)}" for name, shape in self.tables.items())
        return (
            f"<ligament.params.Server node {self._rank} of {self._nodes}: {tables} of "
            f"{self.dtype}{state}>"
        )


def _default() -> Setup:
    """The configuration if `setup` was not called: from the environment, with one worker."""
    made = setup()
    _setup.clear()
    return made


def _place(uri: str | os.PathLike[str] | Store) -> str:
    return uri.uri if isinstance(uri, Store) else absolute(os.fspath(uri))


def only_server() -> Server:
    """The only open server of this process."""
    found = [one for one in _servers if one._finalizer.alive]
    if len(found) == 1:
        return found[0]
    raise InvalidError(f"this process has {len(found)} open servers: pass the one to use")
