"""torch tensors in the memory of CUDA devices: read and filled there by the core, and snapshots of
them in spare device memory."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from .. import _core
from ..errors import InvalidError
from . import of_torch

_ALIGNMENT = 512  # as torch's allocator: copies are as fast as between tensors
_LARGE = 1 << 20  # bytes of a tensor that is copied by a call of the driver,
_MANY = 64  # and how many smaller ones are copied in few kernels


def lendable(value: Any) -> bool:
    """Whether the core can fill it in place."""
    return bool(
        value.is_cuda
        and type(value) in of_torch.registered()
        and value.layout is sys.modules["torch"].strided
        and value.dtype in of_torch.codes()
        and value.is_contiguous()
        and value.numel() > 0
        and not value.is_neg()
        and not value.is_conj()
    )


def _item(value: Any, holder: Any = None, address: int | None = None) -> tuple[Any, ...]:
    """The tensor in the form that a Batch accepts, at another address if one is given."""
    return (
        value if holder is None else holder,
        value.data_ptr() if address is None else address,
        of_torch.codes()[value.dtype],
        tuple(value.shape),
        None,
        value.device.index,
    )


def _follow(devices: Iterable[Any]) -> None:
    """Orders the core's copies after the work that is queued on torch's current streams now."""
    current = sys.modules["torch"].cuda.current_stream
    for device in set(devices):
        _core.follow(device.index, current(device).cuda_stream)


def lend(values: list[Any], places: list[int]) -> None:
    """Adds descriptions of the tensors that can be filled to the list."""
    mine = [i for i in places if lendable(values[i])]
    devices = {values[i].device for i in mine}
    for i in mine:
        values[i] = _item(values[i])
    _follow(devices)


def _flat(value: Any) -> Any:
    """A tensor that the core can read: the value, or a copy of it on the same device. None if its
    kind is refused or it has no values."""
    torch = sys.modules["torch"]
    if lendable(value):
        return value
    plain = value.layout is torch.strided and not value.is_nested and not value.is_quantized
    if not plain or value.dtype not in of_torch.codes() or value.numel() == 0:
        return None
    if torch.utils._python_dispatch.is_traceable_wrapper_subclass(value):
        return None
    flat = value.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg().contiguous()
    return flat if lendable(flat) else None


def read(values: list[Any], places: list[int]) -> None:
    """The same for tensors that are only read: non-contiguous ones are packed on their device."""
    flat = {i: _flat(values[i]) for i in places}
    lent = {i: value for i, value in flat.items() if value is not None}
    for i, value in lent.items():
        values[i] = _item(value)
    _follow(value.device for value in lent.values())


# --- exchanges ----------------------------------------------------------------------------------


class Plain:
    """The tensors of a mesh's request or response, all of which the core can read and fill in
    place. Its copies are ordered after `stream`; None: the tensors are ready."""

    __slots__ = ("pull", "push", "stream")
    spare = ()

    def __init__(self, push: Sequence[Any], pull: Sequence[Any], stream: int | None) -> None:
        self.push, self.pull, self.stream = push, pull, stream

    def filled(self, stream: Any) -> None:
        """The answer has arrived, or the stream waits for it."""
        if stream is not None and not sys.modules["torch"].cuda.is_current_stream_capturing():
            for one in self.pull:
                if _is_cuda(one):
                    one.record_stream(stream)


class Exchange:
    """The same if some tensors are not contiguous: these are packed."""

    def __init__(self, push: list[Any], pull: list[Any], ordered: bool) -> None:
        self.push, self.pull = list(push), list(pull)
        self.spare: list[tuple[Any, Any]] = []  # pull tensors with gaps, and what is filled
        self.device: Any = None
        for i, value in enumerate(push):
            flat = _flat(value) if _is_cuda(value) else None
            if flat is not None:
                self.push[i] = _item(flat)
                self.device = flat.device
                ordered = ordered or flat is not value
        for i, value in enumerate(pull):
            if _is_cuda(value) and value.numel() > 0:  # others are described as in host memory
                self.pull[i] = _item(self._target(value))
                self.device = value.device
        cuda = sys.modules["torch"].cuda
        self.stream = None
        if self.device is not None and (ordered or cuda.is_current_stream_capturing()):
            self.stream = cuda.current_stream(self.device).cuda_stream

    def _target(self, value: Any) -> Any:
        torch = sys.modules["torch"]
        if lendable(value):
            return value
        if value.layout is not torch.strided or value.dtype not in of_torch.codes():
            raise InvalidError(f"a tensor of layout {value.layout} and dtype {value.dtype}")
        flat = torch.empty(value.shape, dtype=value.dtype, device=value.device)
        self.spare.append((value, flat))
        return flat

    def filled(self, stream: Any) -> None:
        """The answer has arrived, or the stream waits for it: fills the non-contiguous tensors."""
        torch = sys.modules["torch"]
        if not self.spare and stream is None:
            return
        with torch.no_grad(), torch.cuda.stream(stream):
            for value, flat in self.spare:
                value.copy_(flat)
        if stream is not None and not torch.cuda.is_current_stream_capturing():
            for one in self.pull:
                if isinstance(one, tuple) and isinstance(one[0], torch.Tensor):
                    one[0].record_stream(stream)


def _is_cuda(value: Any) -> bool:
    return bool(getattr(value, "is_cuda", False))


def stream_of(stream: Any) -> Any:
    """A torch stream, from a torch stream or the number of a CUstream."""
    torch = sys.modules["torch"]
    return stream if hasattr(stream, "cuda_stream") else torch.cuda.ExternalStream(int(stream))


def number_of(device: Any) -> int:
    """The number of a CUDA device, which is given in any form that torch accepts."""
    torch = sys.modules["torch"]
    found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if found.type != "cuda":
        raise InvalidError(f"device={device!r}: expected a CUDA device")
    if found.index is not None:
        return int(found.index)
    return int(torch.cuda.current_device()) if torch.cuda.is_initialized() else 0


# --- snapshots ----------------------------------------------------------------------------------


class _Arena:
    """Device memory for a snapshot; free once it is no longer held."""

    def __init__(self, bytes_: int, device: Any, apart: bool) -> None:
        torch = sys.modules["torch"]
        self._pool = torch.cuda.MemPool() if apart else None
        if self._pool is None:
            self.memory = torch.empty(bytes_, dtype=torch.uint8, device=device)
            return
        with torch.cuda.use_mem_pool(self._pool, device):
            self.memory = torch.empty(bytes_, dtype=torch.uint8, device=device)

    def __del__(self) -> None:
        self.memory = None  # before its pool


def _spare(device: Any, reserve: float) -> tuple[int, int]:
    """The bytes of the device that a snapshot may use, and the bytes that torch has reserved."""
    cuda = sys.modules["torch"].cuda
    free, total = cuda.mem_get_info(device)
    kept = cuda.memory_reserved(device) - cuda.memory_allocated(device)
    wanted = reserve * total if reserve < 1 else reserve
    return max(0, int(free - wanted)), kept


def _allocate(bytes_: int, device: Any, spare: int, kept: int) -> _Arena | None:
    """Memory that training does not need: at most `spare` bytes of the device. A part of a large
    block reserved by torch would make the whole block unavailable to the next step, so if the
    device could not replace that block, the snapshot gets separate blocks."""
    torch = sys.modules["torch"]
    apart = kept > spare and hasattr(torch.cuda, "MemPool")
    try:
        return _Arena(bytes_, device, apart)
    except torch.cuda.OutOfMemoryError:
        return None


_Memory = tuple[int, int]  # address and bytes


def _choose(memories: dict[int, _Memory], room: int) -> tuple[dict[_Memory, int], int]:
    """The positions of the tensors in an arena, tied ones once, and the size of the arena: at most
    `room` bytes. The arena holds the last tensors: those that do not fit are written first, and the
    call returns after that."""
    offsets: dict[_Memory, int] = {}
    used = 0
    for i in sorted(memories, reverse=True):
        memory = memories[i]
        size = -(-memory[1] // _ALIGNMENT) * _ALIGNMENT
        if memory in offsets:
            continue
        if used + size > room:
            break
        offsets[memory] = used
        used += size
    return offsets, used


def _copy(pairs: list[tuple[Any, Any]]) -> None:
    """Copies bytes of tensors: large ones by the driver, small ones in few kernels if torch
    supports it. The first of these kernels takes 15 ms to load, which a model of large tensors
    avoids."""
    torch = sys.modules["torch"]
    flat = [(into, value.detach().reshape(-1).view(torch.uint8)) for into, value in pairs]
    large = [pair for pair in flat if pair[0].numel() >= _LARGE]
    small = [pair for pair in flat if pair[0].numel() < _LARGE]
    many = getattr(torch, "_foreach_copy_", None)
    if many is None or len(small) < _MANY:
        large = flat
    else:
        many([into for into, _ in small], [value for _, value in small])
    for into, value in large:
        into.copy_(value)


def _snapshot_device(values: list[Any], mine: list[int], device: Any, reserve: float) -> set[int]:
    """Replaces the tensors that fit by copies, which are queued on torch's current stream; returns
    the others."""
    memories = {i: (values[i].data_ptr(), values[i].nbytes) for i in mine}
    spare, kept = _spare(device, reserve)
    offsets, size = _choose(memories, spare)
    arena = _allocate(size, device, spare, kept) if offsets else None
    if arena is None:
        return set(mine)
    first = {memory: values[i] for i, memory in memories.items() if memory in offsets}
    _copy([(arena.memory[at : at + m[1]], first[m]) for m, at in offsets.items()])
    start = arena.memory.data_ptr()
    taken = {i for i in mine if memories[i] in offsets}
    for i in taken:
        values[i] = _item(values[i], arena, start + offsets[memories[i]])
    return set(mine) - taken


def snapshot(values: list[Any], places: list[int], reserve: float) -> dict[int, bool]:
    """Replaces the tensors by tensors that the core can read. True: it is the memory of the tensor
    itself, which has to be read before the caller continues. `reserve` bytes of each device (below
    1: this fraction of it) stay free."""
    if not 0 <= reserve:
        raise InvalidError(
            f"gpu_reserve={reserve}: expected a fraction of the device's memory, or bytes"
        )
    torch = sys.modules["torch"]
    late: dict[int, bool] = {}
    by_device: dict[Any, list[int]] = {}
    with torch.no_grad():
        for i in places:
            value = values[i]
            flat = _flat(value)
            if flat is None:
                continue
            values[i], late[i] = flat, False
            if flat.untyped_storage().data_ptr() == value.untyped_storage().data_ptr():
                by_device.setdefault(value.device, []).append(i)
        devices = {values[i].device for i in late}
        for device, mine in by_device.items():
            late.update(dict.fromkeys(_snapshot_device(values, mine, device, reserve), True))
    for i in late:
        if not isinstance(values[i], tuple):
            values[i] = _item(values[i])
    _follow(devices)
    return late
