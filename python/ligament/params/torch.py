"""Embeddings whose rows are stored in the parameter manager: forward pulls, backward pushes.

server = params.Server({"user": (10_000_000, 64)}, optimizer={"name": "adagrad", "lr": .1})
users = params.torch.Embedding(10_000_000, 64, server, "user")
for batch in params.torch.ahead(loader, keys=lambda batch: {users: batch["user"]}):
    loss(users(batch["user"])).backward()
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from ..errors import missing

try:
    import torch
except ImportError as error:
    raise missing(error, "ligament.params.torch") from None

from torch.autograd.function import once_differentiable
from torch.nn import functional

from ..errors import InvalidError, MismatchError
from ..tensors import of_torch
from .device_rows import CacheSize, Place, check_range
from .node import Server, only_server
from .recycled import Recycled
from .row_kernels import Bags
from .row_sources import Gradients, HostRows, RowSource, source_of
from .row_steps import Places
from .rows import Worker
from .tables import whole

__all__ = ["Ahead", "Embedding", "EmbeddingBag", "ahead"]

_CHUNK_BYTES = 64 << 20
_HASHED_IDS = 1 << 56  # above these bits of a hashed key is the number of its table


class _Rows(torch.autograd.Function):
    """Pulls one row for each id; their gradients are pushed. `handle` exists only for autograd,
    which does not call the backward of a function without an input that requires a gradient."""

    @staticmethod
    def forward(
        ctx: Any, handle: torch.Tensor, table: _Table, worker: Worker, ids: torch.Tensor
    ) -> torch.Tensor:
        ctx.table, ctx.worker = table, worker
        ctx.save_for_backward(ids)
        source = table._source(worker, ids)
        bags = Bags(None, ids.numel(), 1, False, table.padding_idx)
        found = source.bags(ids, bags)
        if found is not None:
            return found
        rows = source.pull(worker, ids).each()
        source.pulled()
        if table.padding_idx is not None:
            rows.masked_fill_((ids == table.padding_idx).unsqueeze(1), 0)
        return rows

    @staticmethod
    @once_differentiable  # type: ignore[misc, untyped-decorator, unused-ignore]
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[None, ...]:
        (ids,) = ctx.saved_tensors
        ctx.table._push(ctx.worker, ids, grad, None)
        return None, None, None, None


class _Bags(torch.autograd.Function):
    """Pulls the sums or means of bags of rows, and pushes the gradient of a bag to all its rows."""

    @staticmethod
    def forward(
        ctx: Any,
        handle: torch.Tensor,
        module: EmbeddingBag,
        worker: Worker,
        ids: torch.Tensor,
        bags: Bags,
    ) -> torch.Tensor:
        ctx.module, ctx.worker, ctx.bags = module, worker, bags._replace(starts=None)
        ctx.save_for_backward(ids, bags.starts)
        source = module._source(worker, ids)
        sums = source.bags(ids, bags)
        if sums is not None:
            return sums
        found = source.pull(worker, ids)
        places, padding = module._padded(ids, found.all_places())
        starts = bags.first_positions(ids.device)
        sums = functional.embedding_bag(
            places, found.rows, starts, mode=module.mode, padding_idx=padding
        )
        source.pulled()
        return sums

    @staticmethod
    @once_differentiable  # type: ignore[misc, untyped-decorator, unused-ignore]
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[None, ...]:
        ids, starts = ctx.saved_tensors
        bags = ctx.bags._replace(starts=starts)
        if starts is None and not bags.mean:
            ctx.module._push(ctx.worker, ids, grad, bags.size)
            return None, None, None, None, None
        starts = bags.first_positions(ids.device)
        places = torch.arange(ids.numel(), device=ids.device)
        places = torch.searchsorted(starts, places, right=True) - 1
        if bags.mean:
            ones = torch.ones(ids.numel(), dtype=grad.dtype, device=grad.device)
            if bags.padding is not None:
                ones[ids == bags.padding] = 0
            sizes = torch.zeros(len(starts), dtype=grad.dtype, device=grad.device)
            grad = grad / sizes.index_add_(0, places, ones).clamp_(min=1).unsqueeze(1)
        ctx.module._push(ctx.worker, ids, grad, places)
        return None, None, None, None, None


class _Table(torch.nn.Module):
    """The base class of both modules: `num` rows of a server, starting at the first key of a
    table."""

    def __init__(
        self,
        num: int,
        dim: int,
        server: Server | Worker,
        table: str | None,
        padding_idx: int | None,
        lr: float | None,
        device_rows: int = 0,
        device_clocks: int = 1,
    ) -> None:
        super().__init__()
        self._worker = server if isinstance(server, Worker) else None
        server = server.server if isinstance(server, Worker) else server
        offset, keys, length = _find(server, table)
        if length != dim:
            raise MismatchError(
                f"rows of {table or 'the server'} have {length} elements, not {dim}"
            )
        if num > keys:
            raise MismatchError(f"{table or 'the server'} has {keys} rows, not {num}")
        if not server.dtype.startswith(("float", "bfloat")):
            raise MismatchError(f"rows of {server.dtype} have no gradients")
        if padding_idx is not None and not -num <= padding_idx < num:
            raise InvalidError(f"padding_idx {padding_idx} is out of range for {num} rows")
        self.num_embeddings, self.embedding_dim = num, dim
        self.padding_idx = None if padding_idx is None else padding_idx % num
        self.lr = lr
        self.device_size = CacheSize(
            whole(device_rows, "device_rows", 0, 2**31 - 1),
            whole(device_clocks, "device_clocks", 1, 2**31 - 1),
        )
        self._memory = Recycled()
        self._server = server
        self._name = table
        self._offset = offset
        self._dtype = of_torch.dtype_of(server._code)
        limits = (_HASHED_IDS, _HASHED_IDS) if server._hashed else (keys, num)
        self._place = Place(server, table, offset, *limits, dim, self._dtype)

    # --- rows -----------------------------------------------------------------------------------

    def worker(self) -> Worker:
        """The worker that was passed, or this thread's."""
        return self._worker or self._server.worker()

    def keys(self, ids: torch.Tensor) -> torch.Tensor:
        """The server's keys of these ids, in host memory."""
        flat = self._flat(ids).cpu()
        check_range(flat, self._place.used)
        return flat + self._offset

    def prefetch(self, ids: torch.Tensor) -> None:
        """Reads rows that will be used soon into the cache on the device, if there is one; `ahead`
        does this."""
        cache = self.worker()._caches.get(self._offset)
        if cache is not None:
            flat = self._flat(ids)
            check_range(flat, self._place.used)
            cache.prefetch(flat)

    def _flat(self, ids: torch.Tensor) -> torch.Tensor:
        """The ids in one dimension, on their device, as int64."""
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise InvalidError(f"ids must be integers, not {ids.dtype}")
        return ids.detach().reshape(-1).to(torch.int64)

    def _source(self, worker: Worker, ids: torch.Tensor) -> RowSource:
        return source_of(self._place, worker, ids, self.device_size, self._memory)

    def _push(self, worker: Worker, ids: torch.Tensor, grad: torch.Tensor, places: Places) -> None:
        """Pushes the gradients of ids to the optimizer of their rows."""
        if not self._server._optimizes(self._name):
            if self.lr is None:
                raise InvalidError(
                    "the rows have no optimizer, so a push adds: pass optimizer= to the "
                    "server, or a learning rate (lr=) to the module"
                )
            grad = grad * -self.lr
        gradients = Gradients(grad.detach(), places, self.padding_idx)
        self._source(worker, ids).push(worker, ids, gradients)

    def _padded(self, ids: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, int | None]:
        """Places of ids in a table of rows where the padding has one place, and that place."""
        if self.padding_idx is None:
            return places, None
        found = (ids == self.padding_idx).nonzero().view(-1)
        if not found.numel():
            return places, None
        return places.index_fill(0, found, padding := int(places[found[0]])), padding

    def _each(self, worker: Worker, ids: torch.Tensor) -> torch.Tensor:
        """One row for each id, whose gradients are pushed: summed where ids are equal, before the
        optimizer applies them, as in torch's embeddings."""
        handle = torch.empty(0, requires_grad=True)
        return cast(torch.Tensor, _Rows.apply(handle, self, worker, ids))  # type: ignore[no-untyped-call, unused-ignore]

    def rows(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """The values of some rows, or of all, without a gradient."""
        wanted = torch.arange(self.num_embeddings) if ids is None else ids
        flat = self._flat(wanted).cpu()
        rows = HostRows(self._place, self._memory).pull(self.worker(), flat).rows
        if self.padding_idx is not None:
            rows[flat == self.padding_idx] = 0
        return rows.view(*wanted.shape, -1).to(wanted.device)

    # --- state ----------------------------------------------------------------------------------

    # The rows are the server's, and saved by it: a state_dict has none of them. One of torch's own
    # module can be loaded: its `weight` becomes the rows.
    def _load_from_state_dict(  # noqa: PLR0913 - torch's call
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        weight = state_dict.get(prefix + "weight")
        if weight is None:
            return
        shape = (self.num_embeddings, self.embedding_dim)
        if tuple(weight.shape) != shape:
            error_msgs.append(
                f"{prefix}weight has shape {tuple(weight.shape)}, but the rows have {shape}"
            )
            return
        worker = self.worker()
        step = max(1, _CHUNK_BYTES // (self.embedding_dim * 8))
        for first in range(0, self.num_embeddings, step):
            part = weight[first : first + step].detach().to("cpu", self._dtype)
            ids = torch.arange(first, first + len(part))
            worker.set(self.keys(ids), part.contiguous())

    def extra_repr(self) -> str:
        """As torch shows it."""
        of = f", table={self._name!r}" if self._name else ""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{of}{padding}"


class Embedding(_Table):
    """`torch.nn.Embedding` with the rows of a server, accessed by this thread's worker or by the
    worker passed instead of the server. Backward pushes the gradients to the rows' optimizer; if
    the server has none, it pushes `-lr * gradient`, which requires `lr`. Rows are not parameters:
    torch's optimizers do not see them, and `server.save` saves them.

    Ids may be on any device; the rows are returned there. Up to `device_rows` rows are cached on
    it. With several nodes or workers, changes of cached rows are exchanged when the worker's clock
    has advanced `device_clocks` times."""

    def __init__(
        self,
        num: int,
        dim: int,
        server: Server | Worker,
        table: str | None = None,
        padding_idx: int | None = None,
        lr: float | None = None,
        device_rows: int = 0,
        device_clocks: int = 1,
    ) -> None:
        super().__init__(num, dim, server, table, padding_idx, lr, device_rows, device_clocks)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """(...) ids to (..., dim) values."""
        rows = self._each(self.worker(), self._flat(ids))
        return rows.view(*ids.shape, self.embedding_dim)


class EmbeddingBag(_Table):
    """`torch.nn.EmbeddingBag` with the rows of a server: the "sum", "mean" or "max" of bags of
    rows. `device_rows` and `device_clocks` are those of `Embedding`."""

    def __init__(
        self,
        num: int,
        dim: int,
        server: Server | Worker,
        table: str | None = None,
        padding_idx: int | None = None,
        mode: str = "sum",
        lr: float | None = None,
        include_last_offset: bool = False,
        device_rows: int = 0,
        device_clocks: int = 1,
    ) -> None:
        super().__init__(num, dim, server, table, padding_idx, lr, device_rows, device_clocks)
        if mode not in ("sum", "mean", "max"):
            raise InvalidError(f"unknown mode {mode!r}: expected 'sum', 'mean' or 'max'")
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(
        self,
        ids: torch.Tensor,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(bags, n) ids, or a flat list of them with the first of each bag in `offsets`."""
        worker, flat = self.worker(), self._flat(ids)
        bags = self._bags(ids, offsets)
        if self.mode != "max" and per_sample_weights is None:
            handle = torch.empty(0, requires_grad=True)
            return cast(torch.Tensor, _Bags.apply(handle, self, worker, flat, bags))  # type: ignore[no-untyped-call, unused-ignore]
        rows = self._each(worker, flat)
        places, padding = self._padded(flat, torch.arange(flat.numel(), device=flat.device))
        weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
        return functional.embedding_bag(
            places,
            rows,
            bags.first_positions(ids.device),
            mode=self.mode,
            per_sample_weights=weights,
            padding_idx=padding,
        )

    def _bags(self, ids: torch.Tensor, offsets: torch.Tensor | None) -> Bags:
        mean = self.mode == "mean"
        if ids.dim() == 2:
            if offsets is not None:
                raise InvalidError("bags of ids in two dimensions need no offsets")
            return Bags(None, ids.shape[0], ids.shape[1], mean, self.padding_idx)
        if ids.dim() != 1 or offsets is None:
            raise InvalidError(
                f"ids have {ids.dim()} dimensions: expected two, or one and offsets of bags"
            )
        starts = offsets.to(ids.device, torch.int64)
        starts = (starts[:-1] if self.include_last_offset else starts).contiguous()
        return Bags(starts, len(starts), 0, mean, self.padding_idx)


def _find(server: Server, table: str | None) -> tuple[int, int, int]:
    """First key, number of keys and length of a table; None means the only table."""
    tables = server.tables
    if table is None:
        if len(tables) > 1:
            raise InvalidError(f"no table given: the server has {', '.join(tables)}")
        ((keys, length),) = tables.values()
        return 0, keys, length
    offset = server.offset(table)
    return (offset, *tables[table])


Keys = Any  # a tensor of keys, or {module: ids, ...}


class Ahead:
    """The result of `ahead`."""

    def __init__(
        self,
        loader: Iterable[Any],
        keys: Callable[[Any], Keys],
        batches: int,
        worker: Worker | None,
    ) -> None:
        if batches < 1:
            raise InvalidError(f"batches={batches}: expected at least 1")
        self._loader, self._keys, self._batches, self._worker = loader, keys, batches, worker

    def __len__(self) -> int:
        return len(cast(Any, self._loader))

    def __iter__(self) -> Iterator[Any]:
        worker = self._worker
        queue: deque[tuple[Any, Keys]] = deque()
        clock = 0
        for batch in self._loader:
            wanted = self._keys(batch)
            keys, found = self._of(wanted)
            if worker is None:
                worker = found or only_server().worker()
            if not queue:
                clock = max(clock, worker.current_clock())
            worker.intent(keys, clock, clock + 1)
            clock += 1
            queue.append((batch, wanted))
            if len(queue) > self._batches:
                yield self._next(queue)
                worker.advance_clock()
        while queue:
            yield self._next(queue)
            cast(Worker, worker).advance_clock()

    @staticmethod
    def _next(queue: deque[tuple[Any, Keys]]) -> Any:
        """The next batch. The rows of the one after it are copied to the device while the device
        is still computing."""
        batch, _ = queue.popleft()
        if queue and isinstance(queue[0][1], Mapping):
            for module, ids in queue[0][1].items():
                module.prefetch(ids)
        return batch

    def _of(self, keys: Keys) -> tuple[Any, Worker | None]:
        """The keys that were given for a batch, and the worker of their modules."""
        if not isinstance(keys, Mapping):
            return keys, None
        if not keys:
            return torch.empty(0, dtype=torch.int64), None
        for module in keys:
            if not isinstance(module, _Table):
                raise InvalidError(
                    "ahead: keys must be {module: ids} with modules of "
                    f"ligament.params.torch, not {module!r}"
                )
        parts = [module.keys(ids) for module, ids in keys.items()]
        return torch.cat(parts), next(iter(keys)).worker()


def ahead(
    loader: Iterable[Any],
    keys: Callable[[Any], Keys] = lambda batch: batch,
    batches: int = 100,
    worker: Worker | None = None,
) -> Ahead:
    """Iterates over the batches of a loader. Reads up to `batches` of them ahead, announces which
    rows each will use and when, and advances the worker's clock after each batch, so that rows are
    local before they are used. `keys(batch)` is a tensor of the server's keys, or `{embedding: ids,
    ...}`. `worker` defaults to this thread's worker of the process's only server, or of those
    modules."""
    return Ahead(loader, keys, batches, worker)
