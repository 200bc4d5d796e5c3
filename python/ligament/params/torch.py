"""Embeddings whose rows lie in the parameter manager: forward pulls, backward pushes.

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
from .node import Server, only_server
from .rows import Worker

__all__ = ["Ahead", "Embedding", "EmbeddingBag", "ahead"]

_CHUNK_BYTES = 64 << 20
_HASHED_IDS = 1 << 56  # above these bits of a hashed key is the number of its table


class _Rows(torch.autograd.Function):
    """Pulls rows; their gradients are pushed. `handle` exists only for autograd, which does not
    call the backward of a function without an input that requires a gradient."""

    @staticmethod
    def forward(
        ctx: Any, handle: torch.Tensor, table: _Table, worker: Worker, keys: torch.Tensor
    ) -> torch.Tensor:
        ctx.table, ctx.worker = table, worker
        ctx.save_for_backward(keys)
        return table.pull(worker, keys)

    @staticmethod
    @once_differentiable  # type: ignore[misc, untyped-decorator, unused-ignore]
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[None, ...]:
        (keys,) = ctx.saved_tensors
        ctx.table.push(ctx.worker, keys, grad)
        return None, None, None, None


class _Table(torch.nn.Module):
    """The common part of both modules: `num` rows of a server, starting at the first key of a
    table."""

    def __init__(
        self,
        num: int,
        dim: int,
        server: Server | Worker,
        table: str | None,
        padding_idx: int | None,
        lr: float | None,
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
        self._server = server
        self._name = table
        self._offset = offset
        self._dtype = of_torch.dtype_of(server._code)

    # --- rows -----------------------------------------------------------------------------------

    def worker(self) -> Worker:
        """The one that was given, or this thread's."""
        return self._worker or self._server.worker()

    def keys(self, ids: torch.Tensor) -> torch.Tensor:
        """The server's keys of these ids."""
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise InvalidError(f"ids must be integers, not {ids.dtype}")
        ids = ids.detach().reshape(-1).to("cpu", torch.int64)
        if ids.numel():
            limit = _HASHED_IDS if self._server._hashed else self.num_embeddings
            least, most = int(ids.min()), int(ids.max())
            if least < 0 or most >= limit:
                wrong = least if least < 0 else most
                raise InvalidError(f"id {wrong} is out of range: ids are 0 to {limit - 1}")
        return ids + self._offset if self._offset else ids.contiguous()

    def pull(self, worker: Worker, keys: torch.Tensor) -> torch.Tensor:
        """Their rows; the padding row is 0."""
        rows = torch.empty((keys.numel(), self.embedding_dim), dtype=self._dtype)
        worker.pull(keys, rows)
        if self.padding_idx is not None:
            rows[keys == self.padding_idx + self._offset] = 0
        return rows

    def push(self, worker: Worker, keys: torch.Tensor, grad: torch.Tensor) -> None:
        """Pushes the gradient of rows to their optimizer."""
        if not self._server._optimizes(self._name):
            if self.lr is None:
                raise InvalidError(
                    "the rows have no optimizer, so a push adds: pass optimizer= to the "
                    "server, or a learning rate (lr=) to the module"
                )
            grad = grad * -self.lr
        grad = grad.detach().to("cpu", self._dtype)
        if self.padding_idx is not None:
            kept = keys != self.padding_idx + self._offset
            keys, grad = keys[kept], grad[kept]
        worker.push(keys, grad.contiguous(), True)

    def _distinct(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows of distinct ids, and the position of each id among them: gradients of equal ids
        are summed before the optimizer applies them, as in torch's embeddings."""
        found, places = torch.unique(self.keys(ids), return_inverse=True)
        worker = self.worker()
        if torch.is_grad_enabled():
            handle = torch.empty(0, requires_grad=True)
            rows = cast(torch.Tensor, _Rows.apply(handle, self, worker, found))  # type: ignore[no-untyped-call, unused-ignore]
        else:
            rows = self.pull(worker, found)
        return rows.to(ids.device), places.view(ids.shape).to(ids.device)

    def rows(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """The values of some rows, or of all, without a gradient."""
        wanted = torch.arange(self.num_embeddings) if ids is None else ids
        return self.pull(self.worker(), self.keys(wanted)).view(*wanted.shape, -1)

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
    torch's optimizers do not see them, and `server.save` saves them."""

    def __init__(
        self,
        num: int,
        dim: int,
        server: Server | Worker,
        table: str | None = None,
        padding_idx: int | None = None,
        lr: float | None = None,
    ) -> None:
        super().__init__(num, dim, server, table, padding_idx, lr)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """(...) ids to (..., dim) values."""
        rows, places = self._distinct(ids)
        return functional.embedding(places, rows)


class EmbeddingBag(_Table):
    """`torch.nn.EmbeddingBag` with the rows of a server: the "sum", "mean" or "max" of bags of
    rows."""

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
    ) -> None:
        super().__init__(num, dim, server, table, padding_idx, lr)
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
        rows, places = self._distinct(ids)
        padding = None
        if self.padding_idx is not None:
            found = (ids == self.padding_idx).nonzero()
            padding = int(places[tuple(found[0])]) if len(found) else None
        return functional.embedding_bag(
            places,
            rows,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=padding,
        )


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
        queue: deque[Any] = deque()
        clock = 0
        for batch in self._loader:
            keys, found = self._of(batch)
            if worker is None:
                worker = found or only_server().worker()
            if not queue:
                clock = max(clock, worker.current_clock())
            worker.intent(keys, clock, clock + 1)
            clock += 1
            queue.append(batch)
            if len(queue) > self._batches:
                yield queue.popleft()
                worker.advance_clock()
        while queue:
            yield queue.popleft()
            cast(Worker, worker).advance_clock()

    def _of(self, batch: Any) -> tuple[Any, Worker | None]:
        """The keys of a batch, and the worker of their modules."""
        keys = self._keys(batch)
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
