"""JAX: arrays never change, so that reading them is a snapshot and filling them is refused."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .. import _core
from ..errors import InvalidError, UnsupportedError
from .fresh import Fresh

# Arrays are never written.
PRIVATE_VIEWS = False


def need() -> Any:
    """JAX itself, imported if it is not yet."""
    import jax

    return jax


def takes(kind: type) -> bool:
    """Whether tensors of this type are ours to read."""
    jax = sys.modules["jax"]
    return hasattr(jax, "Array") and issubclass(kind, (jax.Array, jax.core.Tracer))


def describe(value: Any, name: str, writable: bool) -> Any:
    """The array as NumPy sees it: the same memory on the host."""
    jax = sys.modules["jax"]
    if writable:
        raise InvalidError(f"'{name}' is a JAX array, which cannot be filled; load without `into`")
    if isinstance(value, jax.core.Tracer):
        raise InvalidError(f"'{name}' is traced and has no values")
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        raise UnsupportedError(f"'{name}' is a random key; store jax.random.key_data of it")
    if not value.is_fully_addressable:
        raise UnsupportedError(f"'{name}' lies partly in other processes")
    return np.asarray(value)


def hold(batch: _core.Batch, values: list[Any], places: list[int], flags: bytearray) -> None:
    """The batch holds NumPy views: a donated array moves away from their memory."""


def takers(names: list[str], values: list[Any], places: list[int]) -> dict[int, Any]:
    """Never."""
    raise InvalidError(
        f"'{names[places[0]]}' is a JAX array, which cannot be filled; load without `into`"
    )


def empty(code: int, shape: tuple[int, ...]) -> Fresh:
    """Memory for a result."""
    return Fresh(code, shape)


def result(memory: Fresh, device: Any) -> Any:
    """An array over the memory."""
    jax = sys.modules["jax"]
    wide = memory.array().dtype.itemsize == 8 and not jax.config.jax_enable_x64
    if memory.bytes == 0 or memory.memory.address % 64 or memory.memory.readonly or wide:
        array = jax.numpy.asarray(memory.array())
    else:
        try:
            array = jax.dlpack.from_dlpack(memory)
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            array = jax.numpy.asarray(memory.array())
    return array if device is None else jax.device_put(array, device)
