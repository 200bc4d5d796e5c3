"""JAX: arrays are immutable, so reading them is a snapshot and they cannot be filled; a tree is
restored as a new tree like another."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import _core
from ..errors import InvalidError, MismatchError, UnsupportedError
from .allocate import Fresh

# Arrays are never written.
PRIVATE_VIEWS = False


def need() -> Any:
    """JAX, imported if necessary."""
    import jax

    return jax


def takes(kind: type) -> bool:
    """Whether this adapter reads tensors of this type."""
    jax = sys.modules["jax"]
    return hasattr(jax, "Array") and issubclass(kind, (jax.Array, jax.core.Tracer))


def describe(value: Any, name: str, writable: bool) -> Any:
    """The array as a NumPy view: the same memory on the host."""
    jax = sys.modules["jax"]
    if writable:
        raise InvalidError(f"'{name}' is a JAX array and cannot be filled (load without `into`)")
    if isinstance(value, jax.core.Tracer):
        raise InvalidError(f"'{name}' is a traced array and has no values")
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        raise UnsupportedError(f"'{name}' is a random key (store jax.random.key_data of it)")
    if not value.is_fully_addressable:
        raise UnsupportedError(f"'{name}' is partly in other processes")
    return np.asarray(value)


def hold(batch: _core.Batch, values: list[Any], places: list[int], flags: bytearray) -> None:
    """The batch holds NumPy views: a donated array moves to other memory."""


def takers(names: list[str], values: list[Any], places: list[int]) -> dict[int, Any]:
    """Never."""
    raise InvalidError(
        f"'{names[places[0]]}' is a JAX array and cannot be filled (load without `into`)"
    )


def empty(code: int, shape: tuple[int, ...], _device: Any = None) -> Fresh:
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


# --- trees --------------------------------------------------------------------------------------


def _key(key: Any) -> Any:
    """The name of a step of a path: a dict's key, a position, a field."""
    for word in ("key", "idx", "name"):
        if hasattr(key, word):
            return getattr(key, word)
    return str(key)


def parts(value: Any) -> dict[Any, Any] | None:
    """Splits anything that JAX can flatten: dataclasses of flax, states of nnx, registered
    classes."""
    tree_util = sys.modules["jax"].tree_util
    found, _ = tree_util.tree_flatten_with_path(value, is_leaf=lambda part: part is not value)
    if any(len(path) != 1 for path, _ in found):  # a leaf, which is not ours
        return None
    return {_key(path[0]): part for path, part in found}


def like(template: Any, saved: Any, keep: bool, ignore: bool) -> Any:
    """A tree with the structure of `template` and the values of `saved`, which has the same
    structure in dicts, lists and tuples. `keep`: missing values are unchanged; `ignore`: extra
    values are skipped."""
    tree_util = sys.modules["jax"].tree_util
    leaves, structure = tree_util.tree_flatten_with_path(template)
    there = dict(_leaves(saved, ()))
    paths = [tuple(_key(key) for key in path) for path, _ in leaves]
    missing = [path for path in paths if path not in there]
    besides = [path for path in there if path not in set(paths)]
    for wrong, allowed, verb in ((missing, keep, "lacks"), (besides, ignore, "also has")):
        if wrong and not allowed:
            shown = ", ".join(_shown(path) for path in wrong[:5])
            raise MismatchError(
                f"the stored value {verb} {shown}" + (" and more" if len(wrong) > 5 else "")
            )
    for path, (_, leaf) in zip(paths, leaves, strict=True):
        if path in there:
            _check(path, leaf, there[path])
    made = [
        _placed(leaf, there.pop(path)) if path in there else leaf
        for path, (_, leaf) in zip(paths, leaves, strict=True)
    ]
    return structure.unflatten(made)


def _shown(path: tuple[Any, ...]) -> str:
    return "'" + (".".join(map(str, path)) or "value") + "'"


def _leaves(tree: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(tree, dict):
        pairs: Any = tree.items()
    elif isinstance(tree, (list, tuple)):
        pairs = zip(getattr(tree, "_fields", range(len(tree))), tree, strict=True)
    elif tree is None:  # no leaf to JAX either
        return
    else:
        yield path, tree
        return
    for key, item in pairs:
        yield from _leaves(item, (*path, key))


def _check(path: tuple[Any, ...], leaf: Any, value: Any) -> None:
    if not hasattr(leaf, "shape") or not isinstance(value, np.ndarray):
        return
    ours, stored = (tuple(leaf.shape), leaf.dtype), (value.shape, value.dtype)
    if ours != stored:
        raise MismatchError(
            f"{_shown(path)} has dtype {ours[1]} and shape {ours[0]}, but the stored "
            f"tensor has dtype {stored[1]} and shape {stored[0]}"
        )


def _placed(leaf: Any, value: Any) -> Any:
    """The value in the form of the leaf: a NumPy array, or a JAX array on the same devices. A
    number, such as a step count, may have become an array since."""
    jax = sys.modules["jax"]
    if isinstance(leaf, (np.ndarray, np.generic)):
        return value
    if not hasattr(leaf, "shape"):
        return jax.numpy.asarray(value) if isinstance(value, np.ndarray) else value
    return jax.device_put(
        np.asarray(value, leaf.dtype) if np.isscalar(value) else value,
        getattr(leaf, "sharding", None),
    )
