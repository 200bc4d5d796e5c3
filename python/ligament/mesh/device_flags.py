"""Flags that synchronise a CUDA stream with a thread of this process: numbers in pinned host memory
that are compared with a sequence number in device memory. StepMesh's graphs use them."""

from __future__ import annotations

import sys
from typing import Any

from .. import tensors
from ..errors import InvalidError
from .member import Mesh

_WRITE, _WAIT, _ADD = range(3)  # LIG_MESH_FLAG_*


def map_pinned(mesh: Mesh, tensor: Any, device: Any) -> Any:
    """A tensor in pinned host memory as a tensor on the GPU, in the same memory. To be called
    before the first wait runs: later it may wait for the device."""
    number = tensors.device_number(device)
    if not getattr(tensor, "is_pinned", bool)() or not tensor.is_contiguous():
        raise InvalidError("map_pinned_tensor: expected a contiguous tensor in pinned host memory")
    size = tensor.numel() * tensor.element_size()
    memory = mesh._core.flag_map(number, tensor.data_ptr(), size, tensor)
    fresh = tensors.Fresh(tensors.code_of_any(tensor.dtype), tuple(tensor.shape), memory)
    return tensors.framework("torch").result(fresh, None)


def _number(tensor: Any, what: str) -> int:
    """The address of an int64 on a GPU."""
    torch = sys.modules["torch"]
    if not getattr(tensor, "is_cuda", False) or tensor.dtype != torch.int64 or not tensor.numel():
        raise InvalidError(f"{what}: expected an int64 tensor on a GPU (map_pinned_tensor)")
    address: int = tensor.data_ptr()
    return address


def _run(mesh: Mesh, action: int, flag: Any, sequence: Any) -> None:
    to = 0 if flag is None else _number(flag, "flag")
    of = _number(sequence, "sequence number")
    stream = sys.modules["torch"].cuda.current_stream(sequence.device)
    mesh._core.flag(action, sequence.get_device(), stream.cuda_stream, to, of)


def write(mesh: Mesh, flag: Any, sequence: Any) -> None:
    """The current stream writes the sequence number to the flag."""
    _run(mesh, _WRITE, flag, sequence)


def wait(mesh: Mesh, flag: Any, sequence: Any) -> None:
    """The current stream waits until the flag is at least the sequence number. It also continues
    when a server is lost (on a server: the last worker), and when the mesh is closed."""
    _run(mesh, _WAIT, flag, sequence)


def add(mesh: Mesh, sequence: Any) -> None:
    """The current stream adds 1 to the sequence number."""
    _run(mesh, _ADD, None, sequence)
