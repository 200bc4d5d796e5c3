"""TensorFlow: tensors are read in place, variables take over memory of the core."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from .. import _core
from ..errors import InvalidError, UnsupportedError
from .allocate import Fresh
from .dtypes import BYTES, FROM_NUMPY

# Tensors are never written in place.
PRIVATE_VIEWS = False
_LARGE = 16 << 10  # of less a copy is quicker than two operations


def need() -> Any:
    """TensorFlow, imported if necessary."""
    import tensorflow

    return tensorflow


def takes(kind: type) -> bool:
    """Whether this adapter reads tensors of this type."""
    tf = sys.modules["tensorflow"]
    names = ("Tensor", "Variable", "SparseTensor", "RaggedTensor")
    return issubclass(kind, tuple(getattr(tf, name) for name in names if hasattr(tf, name)))


def _is_variable(value: Any) -> bool:
    return isinstance(value, sys.modules["tensorflow"].Variable)


def _dtype(value: Any, name: str) -> int:
    """Checked first: TensorFlow aborts the process when asked for a pointer to strings."""
    tf = sys.modules["tensorflow"]
    if isinstance(value, (tf.SparseTensor, tf.RaggedTensor)):
        raise UnsupportedError(
            f"'{name}' has type {type(value).__qualname__} (store its components, or to_dense())"
        )
    dtype: Any = getattr(value, "dtype", None)
    try:
        code = FROM_NUMPY.get(np.dtype(dtype.as_numpy_dtype))
    except (TypeError, AttributeError):
        code = None
    if code is None:
        raise UnsupportedError(
            f"'{name}' has dtype {getattr(dtype, 'name', dtype)}, which is not numeric "
            "(store numbers)"
        )
    return code


def held(value: Any, name: str) -> Any:
    """An eager tensor that shares the value's memory and keeps it unchanged: TensorFlow copies
    before it writes."""
    _dtype(value, name)
    tensor = value.read_value() if _is_variable(value) else value
    if not hasattr(tensor, "_numpy"):
        raise InvalidError(f"'{name}' is a symbolic tensor and has no values")
    return tensor


def describe(value: Any, name: str, writable: bool) -> Any:
    """The tensor in a form that the core can read."""
    code = _dtype(value, name)
    if writable:
        raise InvalidError(
            f"'{name}' is a TensorFlow tensor and cannot be filled (pass a tf.Variable)"
        )
    tensor = held(value, name)
    array = tensor._numpy()
    address = array.__array_interface__["data"][0] if array.size else 0
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return ((tensor, array), address, code, tuple(array.shape), strides)


def hold(batch: _core.Batch, values: list[Any], places: list[int], flags: bytearray) -> None:
    """The batch holds reads, which TensorFlow does not change: it copies before it writes."""


def place(variable: Any, code: int) -> Any:
    """The memory of a variable in host memory, for a Batch. It is not shared: writing zero elements
    makes TensorFlow copy memory that other tensors share. None if this is impossible or not
    worthwhile."""
    tf = sys.modules["tensorflow"]
    shape = tuple(variable.shape)
    large = bool(shape) and math.prod(shape) * BYTES[code] >= _LARGE
    if not large or type(variable).__name__ != "ResourceVariable" or "CPU" not in variable.device:
        return None
    try:
        none = tf.zeros((0, *shape[1:]), variable.dtype)
        tf.raw_ops.ResourceStridedSliceAssign(
            ref=variable.handle, begin=[0], end=[0], strides=[1], value=none
        )
        # From here on a read would be a copy.
        tf.raw_ops.DisableCopyOnRead(resource=variable.handle)
    except (tf.errors.OpError, AttributeError, TypeError):  # no kernel for the dtype
        return None
    return memory(variable.read_value(), code)


def memory(tensor: Any, code: int | None = None) -> Any:
    """The memory of an eager tensor to be filled, for a Batch."""
    code = _dtype(tensor, "a tensor") if code is None else code
    array = tensor._numpy()
    address = array.__array_interface__["data"][0] if array.size else 0
    return ((tensor, array), address, code, tuple(array.shape), None)


class _Variable:
    """A variable takes over memory; memory that others may share is never written."""

    mapped = False

    def __init__(self, value: Any, name: str) -> None:
        self.value, self.code = value, _dtype(value, name)
        self.shape = tuple(value.shape)

    def take(self, fresh: Fresh) -> None:
        self.value.assign(result(fresh, None))

    def place(self) -> Any:
        return place(self.value, self.code)


def takers(names: list[str], values: list[Any], places: list[int]) -> dict[int, Any]:
    """Variables take over memory, tensors are refused."""
    for i in places:
        if not _is_variable(values[i]):
            raise InvalidError(
                f"'{names[i]}' is a TensorFlow tensor and cannot be filled (pass a tf.Variable)"
            )
    return {i: _Variable(values[i], names[i]) for i in places}


def cast(value: Any, fresh: Fresh) -> None:
    """Copies values of a different dtype."""
    tf = sys.modules["tensorflow"]
    value.assign(tf.cast(result(fresh, None), value.dtype))


def empty(code: int, shape: tuple[int, ...], _device: Any = None) -> Fresh:
    """Memory for a result."""
    return Fresh(code, shape)


def result(memory: Fresh, device: Any) -> Any:
    """An eager tensor over the memory."""
    tf = sys.modules["tensorflow"]
    if memory.bytes == 0 or memory.memory.address % 64:
        tensor = tf.convert_to_tensor(memory.array())
    else:
        try:
            tensor = tf.experimental.dlpack.from_dlpack(memory.dlpack())
        except (
            tf.errors.OpError,
            ValueError,
            NotImplementedError,
        ):  # fp8 and the like: DLPack is refused
            tensor = tf.convert_to_tensor(memory.array())
    if device is None:
        return tensor
    with tf.device(device):
        return tf.identity(tensor)


def rng_state() -> dict[str, Any]:
    """The global generator, if it exists. Creating one here would claim the GPUs in a process that
    only imported TensorFlow."""
    ops = sys.modules.get("tensorflow.python.ops.stateful_random_ops")
    generator = getattr(ops, "global_generator", None)
    return {} if generator is None else {"generator": generator.state.read_value().numpy()}


def set_rng_state(state: dict[str, Any]) -> None:
    """Restores a result of `rng_state`."""
    if "generator" not in state:
        return
    tf = sys.modules["tensorflow"]
    tf.random.get_global_generator().state.assign(np.asarray(state["generator"]))
