"""Stores checkpoints of torch.distributed.checkpoint in a store.

    dcp.save(state, checkpoint_id="step-10", storage_writer=StorageWriter("runs", run="a"))
    dcp.load(state, checkpoint_id="step-10", storage_reader=StorageReader("runs", run="a"))

Every rank writes a part, and the coordinator creates one model from the parts with one commit.
Values that are not tensors are stored as the bytes into which the planner pickled them."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import json
import math
import os
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import missing

try:
    import torch
except ImportError as error:
    raise missing(error, "ligament.checkpoint.dcp") from None

from torch.distributed.checkpoint import filesystem, staging, storage
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
)
from torch.distributed.tensor import DTensor
from torch.futures import Future

from .. import _core, tensors
from ..errors import CorruptError, ExistsError, InvalidError, MismatchError
from ..store import Store
from ..tensors import Fresh
from ..tensors.allocate import groups
from ..tensors.torch_snapshot import lazy_clones
from ..tree import decode, encode
from . import runs

_GROUP_BYTES = 48 << 20  # memory of ours that waits to be copied
_REPLACE = 1
_META = dataclasses.fields(StorageMeta)
_Path = str | os.PathLike[str]


class _Place:
    """A store, opened on first use, and the name of a model. Pickles as both, for DCP's background
    process."""

    def __init__(self, uri: _Path | Store, name: str | None, mode: str, run: str | None) -> None:
        self.run = None if run is None else runs.check(run)
        self._uri: Any = uri if isinstance(uri, Store) else os.fspath(uri)
        self._mode, self.name = mode, name
        self._opened: Store | None = uri if isinstance(uri, Store) else None

    @property
    def store(self) -> Store:
        if self._opened is None:
            self._opened = Store(self._uri, self._mode)
        return self._opened

    @property
    def checkpoint_id(self) -> str | None:
        """The name of the model, in DCP's terms."""
        return self.name

    @property
    def model(self) -> str:
        """The name of the model, which must be known by now."""
        if not self.name:
            raise InvalidError(
                "no model name: pass checkpoint_id=... to dcp.save or dcp.load, or name="
            )
        return self.name if self.run is None else f"{self.run}/{self.name}"

    def _called(self, checkpoint_id: _Path | None) -> None:
        if checkpoint_id is not None:
            self.name = os.fspath(checkpoint_id)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "_part": None, "_lock": None, "_ref": None}


class StorageWriter(_Place, storage.StorageWriter):
    """The `storage_writer` of `dcp.save` and `dcp.async_save`. `checkpoint_id`, or `name`, is the
    model's name; an existing model of that name is replaced unless `replace` is False. With a `run`
    the name is RUN/NAME, and no other process can write to the run while the coordinator saves."""

    _synchronize_after_execute = should_synchronize_after_execute = False

    def __init__(
        self,
        uri: _Path | Store,
        name: str | None = None,
        replace: bool = True,
        *,
        run: str | None = None,
    ) -> None:
        super().__init__(uri, name, "a", run)
        self.replace, self.save_id = replace, str(uuid.uuid4())
        self._part: _core.Part | None = None
        self._lock: _core.Lock | None = None  # of the run, while the coordinator saves

    def reset(self, checkpoint_id: _Path | None = None) -> None:
        """Begins a new checkpoint and releases the resources of the previous one."""
        self._called(checkpoint_id)
        self.save_id = str(uuid.uuid4())
        self._let_go()

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Opens the store. Without collectives every rank would write its own model, which is
        refused."""
        if not kwargs.get("use_collectives", True):
            raise InvalidError(
                "use_collectives=False is not supported: one model is built from all ranks"
            )
        self._let_go()
        self.store.wait()
        _ = self.model
        if is_coordinator and self.run is not None:
            self._lock = runs.hold(self.store, self.run)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Refuses a name that is in use, before anything is written."""
        if not self.replace and self.model in self.store:
            raise self._taken()
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Sends each rank the positions of its tensors in the model, None for tensors that another
        rank also writes."""
        order: dict[str, int] = {}
        taken: set[tuple[Any, ...]] = set()
        made = []
        for plan in plans:
            places: list[int | None] = []
            for item in plan.items:
                key = (item.index.fqn, item.index.offset)
                place = order.setdefault(item.index.fqn, len(order))
                places.append(None if key in taken else place)
                taken.add(key)
            made.append(dataclasses.replace(plan, storage_data=places))
        return made

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[storage.WriteResult]]:
        """Writes this rank's part, which is durable but not visible yet."""
        names, values, boxes = [], [], []
        for item, order in zip(plan.items, plan.storage_data, strict=True):
            if order is None or _is_empty(item):
                continue
            data = planner.resolve_data(item)
            names.append(item.index.fqn)
            values.append(_bytes(data) if isinstance(data, io.BytesIO) else data.detach())
            boxes.append(_box(item, order))
        part = b""
        if names:
            self._part = _core.Part(boxes)
            batch = _core.Batch(names, tensors.lend(values))
            options = (_REPLACE if self.replace else 0, None, None, None, None, None, (), None)
            with self._refusing():
                self.store._core.save(self.model, batch, (*options, self._part))
            part = self._part.bytes()
        results = [storage.WriteResult(item.index, 0, b"") for item in plan.items]
        if results:
            results[0] = dataclasses.replace(results[0], storage_data=part)
        done: Future[list[storage.WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[storage.WriteResult]]) -> None:
        """Creates the model from all parts with one commit; without parts it has no tensors."""
        found = (result.storage_data for each in results for result in each)
        parts = tuple(part for part in found if part)
        metadata.storage_meta = self.storage_meta()
        metadata.version = getattr(filesystem, "CURRENT_DCP_VERSION", None)
        flags, tags = _REPLACE if self.replace else 0, {"door": "dcp"}
        options = (flags, None, None, tags, None, _text(metadata), (), None, None)
        with self._refusing():
            if parts:
                self.store._core.join(self.model, parts, options)
            else:
                self.store._core.save(self.model, _core.Batch([], []), options)
        self._unlock()

    def storage_meta(self) -> StorageMeta:
        """For planners, and for programs that read the checkpoint."""
        return StorageMeta(checkpoint_id=self.checkpoint_id, save_id=self.save_id)

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except ExistsError:  # another job was first
            raise self._taken() from None

    def _taken(self) -> ExistsError:
        return ExistsError(
            f"Checkpoint already exists: model '{self.model}' already exists "
            "(use StorageWriter(..., replace=True) to replace it)"
        )

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: _Path) -> bool:
        """False: a name is not a path from which DCP could choose a storage."""
        return False

    def _let_go(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            part.close(self.store._core)
        self._unlock()

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    # --- as DCP's stager, for async_save --------------------------------------------------------

    def stage(self, state_dict: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Captures the state at the call. Tensors in host memory are captured copy-on-write, which
        costs nothing until training writes to them; others are copied as DCP does."""
        if not all(tensor.device.type == "cpu" for tensor in _tensors(state_dict)):
            copied: dict[str, Any] = staging.BlockingAsyncStager().stage(state_dict)
            return copied
        held: dict[str, Any] = _held(state_dict)
        return held

    def synchronize_staging(self) -> None:
        """Nothing to do: staging is done when `stage` returns."""

    def close(self) -> None:
        """Nothing to close: no state is kept between saves."""


class StorageReader(_Place, storage.StorageReader):
    """The `storage_reader` of `dcp.load`. Reads models written by `StorageWriter`, and any other
    model of named tensors. `run` is that of the writer."""

    def __init__(
        self, uri: _Path | Store, name: str | None = None, *, run: str | None = None
    ) -> None:
        super().__init__(uri, name, "r", run)
        self.load_id = str(uuid.uuid4())
        self._ref: _core.Ref | None = None  # from the metadata to the data

    def reset(self, checkpoint_id: _Path | None = None) -> None:
        """Switches to another checkpoint."""
        self._called(checkpoint_id)
        self.load_id = str(uuid.uuid4())
        self._ref = None

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The contents of the model, as DCP describes them."""
        self._ref = self.store._core.resolve(self.model)
        metadata = _metadata(self._ref.model)
        meta = metadata.storage_meta or StorageMeta(checkpoint_id=self.checkpoint_id)
        metadata.storage_meta = dataclasses.replace(meta, load_id=self.load_id)
        return metadata

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Nothing to set up."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Reports which version of the model this rank has seen."""
        seen = None if self._ref is None else self._ref.model.id
        return dataclasses.replace(plan, storage_data=seen)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Makes all ranks read the version that the first rank has seen."""
        return [dataclasses.replace(plan, storage_data=plans[0].storage_data) for plan in plans]

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Reads the slices of the plan directly into the planner's tensors."""
        ref, self._ref = self._ref, None
        if ref is None or plan.storage_data not in (None, ref.model.id):
            ref = self.store._core.resolve(plan.storage_data or self.model)
        rows = {row[0]: row for row in ref.model.tensors()}
        for item in plan.items:
            if item.storage_index.fqn not in rows:
                name = self.model
                raise CorruptError(f"model '{name}' has no '{item.storage_index.fqn}'")
        for group in _groups(plan.items, rows):
            self._read(ref, group, rows, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _read(
        self, ref: _core.Ref, items: list[ReadItem], rows: _Rows, planner: LoadPlanner
    ) -> None:
        places, targets = [], []
        for item in items:
            _, code, shape, *_ = rows[item.storage_index.fqn]
            target = None if _is_bytes(item) else planner.resolve_tensor(item).detach()
            targets.append(target)
            places.append(_memory(target, code, shape if target is None else tuple(item.lengths)))
        batch = _core.Batch([str(i) for i in range(len(items))], tensors.lend(places, True), True)
        ref.read(
            batch,
            tuple(item.storage_index.fqn for item in items),
            tuple(_slices(item, rows[item.storage_index.fqn][2]) for item in items),
        )
        for item, place, target in zip(items, places, targets, strict=True):
            if target is None:
                planner.load_bytes(item, io.BytesIO(place.array().tobytes()))
                continue
            if place is target:
                torch.autograd.graph.increment_version(target)
            else:
                target.copy_(tensors.framework("torch").result(place, None))
            planner.commit_tensor(item, target)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: _Path) -> bool:
        """False: a name is not a path from which DCP could choose a storage."""
        return False


# --- items of plans -----------------------------------------------------------------------------

_Rows = dict[str, Any]


def _bytes(data: io.BytesIO) -> Any:
    return np.frombuffer(data.getvalue(), np.uint8)


def _box(item: WriteItem, order: int) -> tuple[Any, Any, int]:
    """The position of an item's tensor in the whole tensor; None if it is the whole tensor."""
    about = item.tensor_data
    if about is None or about.chunk.sizes == about.size:
        return None, None, order
    return tuple(about.size), tuple(about.chunk.offsets), order


def _is_empty(item: WriteItem) -> bool:
    """Whether it is an empty shard of a tensor that is not empty."""
    about = item.tensor_data
    return about is not None and about.chunk.sizes.numel() == 0 and about.size.numel() > 0


def _is_bytes(item: ReadItem) -> bool:
    return item.type == LoadItemType.BYTE_IO


def _memory(target: Any, code: int, shape: tuple[int, ...]) -> Any:
    """The tensor itself if it can be filled, otherwise temporary memory that is copied into it."""
    if (
        target is not None
        and type(target) is torch.Tensor
        and (target.device.type == "cpu" or tensors.lendable(target))
        and tuple(target.shape) == shape
        and tensors.code_of(str(target.dtype).removeprefix("torch.")) == code
        and not (target.is_conj() or target.is_neg())
    ):
        return target
    if target is not None and tuple(target.shape) != shape:
        raise MismatchError(
            f"a tensor of shape {tuple(target.shape)} does not match a slice of shape {shape}"
        )
    return Fresh(code, shape)


def _slices(item: ReadItem, shape: tuple[int, ...]) -> Any:
    """Start, step and count in each dimension of the stored tensor; None: all of it."""
    lengths = tuple(item.lengths)
    if _is_bytes(item) or lengths == tuple(shape):
        return None
    chunk = item.storage_index.offset or (0,) * len(lengths)
    starts = (a + b for a, b in zip(chunk, item.storage_offsets, strict=True))
    return tuple((start, 1, count) for start, count in zip(starts, lengths, strict=True))


def _groups(items: list[ReadItem], rows: _Rows) -> Iterator[list[ReadItem]]:
    """Groups of limited size, so that little memory waits to be copied."""

    def size_of(item: ReadItem) -> int:
        _, _, shape, size, *_ = rows[item.storage_index.fqn]
        share = math.prod(item.lengths) / max(math.prod(shape), 1)
        return size if _is_bytes(item) else int(size * min(share, 1))

    return groups(items, size_of, _GROUP_BYTES)


# --- metadata -----------------------------------------------------------------------------------


def _text(metadata: Metadata) -> str:
    """The text of the model's structure: a flat dict of its tensors, and DCP's metadata."""
    described: dict[str, Any] = {}
    for name, one in metadata.state_dict_metadata.items():
        if isinstance(one, BytesStorageMetadata):
            described[name] = None
            continue
        dtype = str(one.properties.dtype).removeprefix("torch.")
        boxes = [[list(c.offsets), list(c.sizes)] for c in one.chunks]
        described[name] = [dtype, one.properties.requires_grad, list(one.size), boxes]
    names, _, planner = encode({"data": metadata.planner_data, "": None}, lambda value: False)
    tree = {"$dict": [[name, {"$tensor": name}] for name in described]}
    meta = None if metadata.storage_meta is None else dataclasses.asdict(metadata.storage_meta)
    known = {"version": 1, "tensors": described, "planner": planner, "meta": meta}
    known["format"] = getattr(metadata, "version", None)
    return json.dumps({"tree": tree, "dcp": known}, separators=(",", ":"))


def _metadata(model: _core.Model) -> Metadata:
    """The metadata stored by `_text`; for models saved in another way, what can be derived from
    their tensors."""
    known = None
    try:
        known = json.loads(model.structure).get("dcp") if model.structure else None
        if known is None:
            return Metadata({row[0]: _whole(row) for row in model.tensors()}, storage_data={})
        if known["version"] != 1:
            raise ValueError(f"version {known['version']}")
        described = {
            name: BytesStorageMetadata() if one is None else _described(*one)
            for name, one in known["tensors"].items()
        }
        planner = decode(known["planner"], {})["data"]
        kept = known.get("meta") or {}
        fields = {one.name: kept[one.name] for one in _META if one.name in kept}
        meta = StorageMeta(**fields) if fields else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptError(f"cannot read DCP's metadata of '{model.name}': {error}") from None
    found = Metadata(described, planner, storage_data={}, storage_meta=meta)
    found.version = known.get("format")
    return found


def _described(dtype: str, grad: bool, size: list[int], boxes: list[Any]) -> TensorStorageMetadata:
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise ValueError(f"torch has no dtype {dtype!r}")
    chunks = [ChunkStorageMetadata(torch.Size(a), torch.Size(n)) for a, n in boxes]
    properties = TensorProperties(dtype=kind, requires_grad=bool(grad))
    return TensorStorageMetadata(properties, torch.Size(size), chunks)


def _whole(row: _core.StoredTensor) -> TensorStorageMetadata:
    shape = list(row[2])
    return _described(tensors.name_of(row[1]), False, shape, [[[0] * len(shape), shape]])


# --- staging ------------------------------------------------------------------------------------


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _tensors(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        tree = tree.values()
    elif isinstance(tree, torch.Tensor):
        yield tree
        return
    elif not isinstance(tree, (list, tuple)):
        return
    for item in tree:
        yield from _tensors(item)


def _held(tree: Any) -> Any:
    """The tree with a snapshot of every tensor."""
    with torch.no_grad():
        local = [t.to_local() if isinstance(t, DTensor) else t for t in _tensors(tree)]
        plain = [t for t in local if type(t) in _PLAIN and t.layout is torch.strided]
        clones = dict(zip(map(id, plain), lazy_clones(plain), strict=True))
        return _snapshot(tree, clones)


def _snapshot(tree: Any, clones: dict[int, Any]) -> Any:
    if isinstance(tree, dict):
        return {key: _snapshot(item, clones) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)) and not hasattr(tree, "_fields"):
        return type(tree)(_snapshot(item, clones) for item in tree)
    if isinstance(tree, DTensor):
        where, shape = (tree.device_mesh, tree.placements), tree.shape
        local = _snapshot(tree.to_local(), clones)
        return DTensor.from_local(local, *where, run_check=False, shape=shape, stride=tree.stride())
    if isinstance(tree, torch.Tensor):
        clone = clones.get(id(tree))
        return tree.detach().clone() if clone is None else clone
    return copy.deepcopy(tree)
