"""Nested arguments and results as a flat list of tensors and a shape that puts them back.

torch's own pytree knows neither unregistered dataclasses nor result objects, and registering a
user's class with it would be a side effect on the whole process; so the few containers that models
use are handled here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

from ligament.errors import InvalidError, MismatchError

PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout)


class Leaf(NamedTuple):
    """The tensor at this place of the flat list."""

    place: int


class Constant(NamedTuple):
    """A plain value: part of the trace, not an input of it."""

    value: Any


@dataclasses.dataclass(frozen=True)
class Branch:
    """A container: how it is rebuilt (`kind`), its class, its children and their names."""

    kind: str
    type: type
    keys: tuple[Any, ...]
    children: tuple[Shape, ...]


Shape = Leaf | Constant | Branch


class Flat(NamedTuple):
    """What `flatten` returns: the tensors, where each one was, and how they were nested."""

    tensors: list[torch.Tensor]
    paths: list[str]
    shape: Shape


def flatten(value: Any, where: str = "", *, objects: bool = False) -> Flat:
    """Walks `value`. With `objects`, instances of any class are flattened by their attributes
    (results of a model, such as caches); without it, they are rejected, with their path."""
    tensors: list[torch.Tensor] = []
    paths: list[str] = []

    def walk(item: Any, path: str) -> Shape:
        if isinstance(item, torch.Tensor):
            tensors.append(item)
            paths.append(path)
            return Leaf(len(tensors) - 1)
        if isinstance(item, PLAIN):
            return Constant(item)
        parts = _parts(item, objects)
        if parts is None and objects:
            return Constant(item)
        if parts is None:
            raise InvalidError(
                f"{path or 'value'} has type {type(item).__qualname__}: only tensors, plain "
                "values, tuples, lists, dicts and dataclasses can be passed"
            )
        kind, keys, values = parts
        children = tuple(walk(v, _join(path, kind, k)) for k, v in zip(keys, values, strict=True))
        return Branch(kind, type(item), tuple(keys), children)

    shape = walk(value, where)
    return Flat(tensors, paths, shape)


def unflatten(shape: Shape, tensors: list[Any] | tuple[Any, ...]) -> Any:
    """Rebuilds the structure `shape` from `tensors`."""
    if isinstance(shape, Leaf):
        return tensors[shape.place]
    if isinstance(shape, Constant):
        return shape.value
    values = [unflatten(child, tensors) for child in shape.children]
    if shape.kind == "sequence":
        return shape.type(values)
    if shape.kind == "named":
        return shape.type(*values)
    if shape.kind == "mapping":
        return _mapping(shape.type, shape.keys, values)
    if shape.kind == "dataclass":
        return _dataclass(shape.type, shape.keys, values)
    made: Any = object.__new__(shape.type)
    made.__dict__.update(zip(shape.keys, values, strict=True))
    return made


def difference(expected: Shape, given: Shape, path: str) -> str | None:
    """An error text that says where two shapes differ; None if they are equal."""
    if isinstance(expected, Leaf) and isinstance(given, Leaf):
        return None
    if isinstance(expected, Constant) and isinstance(given, Constant):
        same = type(expected.value) is type(given.value) and expected.value == given.value
        return (
            None if same else f"{path} is {given.value!r}, but was traced with {expected.value!r}"
        )
    if isinstance(expected, Branch) and isinstance(given, Branch):
        if expected.type is not given.type or expected.keys != given.keys:
            return f"{path} is {_describe(given)}, but was traced with {_describe(expected)}"
        for key, a, b in zip(expected.keys, expected.children, given.children, strict=True):
            found = difference(a, b, _join(path, expected.kind, key))
            if found:
                return found
        return None
    return f"{path} is {_describe(given)}, but was traced with {_describe(expected)}"


def require_same(expected: Shape, given: Shape) -> None:
    """Raises MismatchError with the first difference of two pairs (args, kwargs)."""
    assert isinstance(expected, Branch) and isinstance(given, Branch)
    for part, one, other in zip(("args", "kwargs"), expected.children, given.children, strict=True):
        found = difference(one, other, part)
        if found:
            raise MismatchError(f"{found}: trace the model with these arguments to plan for them")


def leaves(shape: Shape) -> Iterator[int]:
    """The indexes of the tensors in `shape`, in order."""
    if isinstance(shape, Leaf):
        yield shape.place
    elif isinstance(shape, Branch):
        for child in shape.children:
            yield from leaves(child)


def describe(shape: Shape, names: list[str]) -> str:
    """`shape` as a readable line of Python, with `names` in place of the tensors."""
    if isinstance(shape, Leaf):
        return names[shape.place]
    if isinstance(shape, Constant):
        return repr(shape.value)
    inner = [describe(child, names) for child in shape.children]
    if shape.kind == "sequence":
        return f"[{', '.join(inner)}]" if shape.type is list else f"({', '.join(inner)},)"
    if shape.type is dict:
        return "{" + ", ".join(f"{k!r}: {v}" for k, v in zip(shape.keys, inner, strict=True)) + "}"
    fields = ", ".join(f"{k}={v}" for k, v in zip(shape.keys, inner, strict=True) if v != "None")
    return f"{shape.type.__name__}({fields})"


def _parts(item: Any, objects: bool) -> tuple[str, list[Any], list[Any]] | None:
    """(kind, keys, values) of a container; None for other values."""
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        names = [f.name for f in dataclasses.fields(item)]
        return "dataclass", names, [getattr(item, n) for n in names]
    if isinstance(item, Mapping):
        return "mapping", list(item.keys()), list(item.values())
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return "named", list(item._fields), list(item)
    if type(item) in (tuple, list, torch.Size, set):
        return "sequence", list(range(len(item))), list(item)
    if objects and hasattr(item, "__dict__") and not callable(item):
        return "object", list(vars(item)), list(vars(item).values())
    return None


def _join(path: str, kind: str, key: Any) -> str:
    if kind in ("sequence", "mapping"):
        return f"{path}[{key!r}]" if path else str(key)
    return f"{path}.{key}" if path else str(key)


def _mapping(cls: type, keys: tuple[Any, ...], values: list[Any]) -> Any:
    made = cls()
    for key, value in zip(keys, values, strict=True):
        made[key] = value
    return made


def _dataclass(cls: type, keys: tuple[Any, ...], values: list[Any]) -> Any:
    given = dict(zip(keys, values, strict=True))
    settable = {f.name for f in dataclasses.fields(cls) if f.init}
    made = cls(**{k: v for k, v in given.items() if k in settable})
    for key in given.keys() - settable:
        object.__setattr__(made, key, given[key])
    return made


def _describe(shape: Shape) -> str:
    if isinstance(shape, Leaf):
        return "a tensor"
    if isinstance(shape, Constant):
        return repr(shape.value)
    keys = ", ".join(str(k) for k in shape.keys)
    return f"a {shape.type.__name__} of ({keys})"
