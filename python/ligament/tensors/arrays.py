"""NumPy arrays, and anything with the buffer protocol or DLPack."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from .. import _core
from ..errors import InvalidError, UnsupportedError
from .allocate import Fresh
from .dtypes import BYTES, FROM_NUMPY, NUMPY

_SMALL = 1 << 20

_core.set_reader(np.ndarray, _core.Reader(FROM_NUMPY))

# Arrays over a mapping can be read-only.
PRIVATE_VIEWS = False


def need() -> None:
    """NumPy is always available."""


def code_of(dtype: Any) -> int:
    """The number of anything that NumPy accepts as a dtype."""
    try:
        code = FROM_NUMPY.get(np.dtype(dtype).newbyteorder("="))
    except TypeError:
        code = None
    if code is None:
        raise UnsupportedError(f"unknown dtype {dtype!r}")
    return code


def takes(kind: type) -> bool:
    """Whether this adapter reads tensors of this type."""
    if issubclass(kind, (np.ndarray, np.generic, Fresh)):
        return True
    if issubclass(kind, (str, bytes)):
        return False
    return hasattr(kind, "__dlpack__") or _has_buffer(kind)


def _has_buffer(kind: type) -> bool:
    known = ("bytearray", "memoryview", "array", "mmap", "Memory")
    return (
        kind.__name__ in known
        or hasattr(kind, "__array_interface__")
        or hasattr(kind, "__buffer__")
    )


def describe(value: Any, name: str, writable: bool) -> Any:
    """The tensor in a form that the core can read."""
    if isinstance(value, Fresh):
        return value.item()
    if isinstance(value, np.ndarray):
        return _describe_array(value, name, writable)
    if isinstance(value, np.generic):
        if writable:
            raise InvalidError(
                f"'{name}' is a NumPy scalar and cannot be filled (use a 0-dim array)"
            )
        return _describe_array(np.asarray(value), name, writable)
    if hasattr(value, "__dlpack__"):
        return _describe_dlpack(value, name, writable)
    try:
        return _describe_array(np.asarray(value), name, writable)
    except (ValueError, TypeError) as error:
        raise InvalidError(f"cannot read '{name}' ({type(value).__qualname__}): {error}") from None


def _describe_array(value: np.ndarray[Any, Any], name: str, writable: bool) -> Any:
    if isinstance(value, np.ma.MaskedArray):
        raise UnsupportedError(f"'{name}' is a masked array (store its data and its mask)")
    native = value.dtype.newbyteorder("=")
    if native not in FROM_NUMPY:
        raise UnsupportedError(
            f"'{name}' has dtype {value.dtype}, which is not numeric (store numbers, "
            "or plain values in a tree)"
        )
    if writable and not value.flags.writeable:
        raise InvalidError(f"'{name}' is a read-only NumPy array and cannot be filled")
    if writable and native != value.dtype:
        raise UnsupportedError(
            f"'{name}' has non-native byte order ({value.dtype}) and cannot be filled"
        )
    plain = value if type(value) is np.ndarray else np.asarray(value)
    if native != value.dtype:
        return plain.astype(native)
    if any(stride % value.itemsize for stride in value.strides):
        if writable:
            raise UnsupportedError(
                f"'{name}' is a view with misaligned strides and cannot be filled"
            )
        return np.ascontiguousarray(plain)
    return plain


def _describe_dlpack(value: Any, name: str, writable: bool) -> Any:
    try:
        try:
            capsule = value.__dlpack__(max_version=(1, 0))
        except TypeError:
            capsule = value.__dlpack__()
    except BufferError as error:
        raise InvalidError(f"cannot read '{name}': {error}") from None
    *described, readonly = _core.from_dlpack(capsule)
    if writable and readonly:
        raise InvalidError(f"'{name}' is read-only and cannot be filled")
    return tuple(described)


def hold(batch: _core.Batch, values: list[Any], places: list[int], flags: bytearray) -> None:
    """The owner of the array may write to it: it must be copied."""
    for i in places:
        flags[i] = 1


def takers(names: list[str], values: list[Any], places: list[int]) -> dict[int, Any]:
    """None: all are filled in place."""
    return {}


def cast(value: Any, fresh: Fresh) -> None:
    """Copies values of a different dtype."""
    np.copyto(value, fresh.array(), casting="unsafe")


def empty(code: int, shape: tuple[int, ...], _device: Any = None) -> Any:
    """Memory for a result: the core fills it, and `result` then makes it a tensor."""
    bytes_ = BYTES[code]
    for size in shape:
        bytes_ *= size
    if bytes_ < _SMALL and code in NUMPY:
        return np.empty(shape, NUMPY[code])
    return Fresh(code, shape)


def result(memory: Any, device: Any) -> Any:
    """The result of `empty`, or a Fresh over a mapping, as a tensor for the user."""
    if device not in (None, "cpu"):
        raise InvalidError(f"NumPy has no device {device!r} (pass framework=)")
    return memory.array() if isinstance(memory, Fresh) else memory


def rng_state() -> dict[str, Any]:
    """Python's and NumPy's global generators."""
    version, numbers, gauss = random.getstate()
    state = np.random.get_state(legacy=False)
    return {
        "python": (version, np.asarray(numbers, np.uint32), gauss),
        "numpy": {**state, "state": dict(state["state"])},
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Restores a result of `rng_state`."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(int(n) for n in numbers), gauss))
    np.random.set_state(state["numpy"])
