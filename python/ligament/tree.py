"""Trees: nested dicts, lists and tuples of tensors and plain values, stored as named tensors and a
text.

The text is JSON. A tensor is written as `{"$tensor": name}`, or `{"$tensor": [name, framework]}`;
values that JSON cannot represent are objects with one key that starts with `$`. A flat dict of
tensors needs no text. A NamedTuple is restored as one of the same name and fields.
"""

from __future__ import annotations

import base64
import collections
import functools
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from .errors import CorruptError, InvalidError, MismatchError

_DEPTH = 200
_SHOWN = 80  # characters of a value in a sentence
_EXACT_INT = 1 << 53  # what every JSON reader keeps
_PLAIN = (str, int, float, bool, type(None), complex, bytes)


Parts = Callable[[Any], dict[Any, Any] | None]


def encode(
    tree: Any,
    is_tensor: Callable[[Any], bool],
    framework: Callable[[Any], str] | None = None,
    parts: Parts = lambda value: None,
) -> tuple[list[str], list[Any], str]:
    """The names and tensors of a tree in order, and the text from which the tree is rebuilt ("" for
    a flat dict). With `framework` the text also contains the framework of each tensor. `parts`
    splits objects that are not built-in containers; None: it cannot."""
    if type(tree) is dict and set(map(type, tree)) <= {str}:
        one_a_type = {type(value): value for value in tree.values()}
        if all(map(is_tensor, one_a_type.values())):
            return list(tree), list(tree.values()), ""
    encoder = _Encoder(is_tensor, framework, parts)
    node = encoder.node(tree, (), 0)
    text = json.dumps({"tree": node}, separators=(",", ":"), allow_nan=False)
    return list(encoder.tensors), list(encoder.tensors.values()), text


def decode(text: str, tensors: Mapping[str, Any]) -> Any:
    """The tree that `text` describes; a tensor that is not among `tensors` is omitted from its
    dict, and None in a list."""
    if not text:
        return dict(tensors)
    try:
        node = json.loads(text)["tree"]
        return _decode(node, tensors)
    except _Absent:
        return None
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        raise CorruptError(f"cannot read the structure of the model: {error}") from None


def frameworks(text: str) -> dict[str, str]:
    """The framework of each tensor, if the text contains it."""
    found: dict[str, str] = {}

    def visit(node: Any) -> None:
        if isinstance(node, dict):
            if len(node) == 1 and isinstance(node.get("$tensor"), list):
                name, framework = node["$tensor"]
                found[name] = framework
                return
            for item in node.values():
                visit(item)
        elif isinstance(node, list):
            for item in node:
                visit(item)

    try:
        visit(json.loads(text)["tree"] if text else None)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptError(f"cannot read the structure of the model: {error}") from None
    return found


def path_text(path: tuple[Any, ...]) -> str:
    """A path for messages: tree['a'][0]."""
    return "tree" + "".join(f"[{key!r}]" for key in path)


class _Encoder:
    def __init__(
        self,
        is_tensor: Callable[[Any], bool],
        framework: Callable[[Any], str] | None,
        parts: Parts,
    ) -> None:
        self.is_tensor, self.framework, self.parts = is_tensor, framework, parts
        self.tensors: dict[str, Any] = {}

    def node(self, value: Any, path: tuple[Any, ...], depth: int) -> Any:
        if depth > _DEPTH:
            where = path_text(path[:3])
            raise InvalidError(
                f"the tree is nested deeper than {_DEPTH} below {where}, or contains itself"
            )
        if type(value) in _PLAIN:
            return _plain(value)
        if isinstance(value, dict):
            return self._dict(value, path, depth)
        if type(value) is list:
            return [self.node(item, (*path, i), depth + 1) for i, item in enumerate(value)]
        if isinstance(value, tuple):
            return self._tuple(value, path, depth)
        if self.is_tensor(value):
            name = self._add(value, path)
            return {"$tensor": [name, self.framework(value)] if self.framework else name}
        parts = self.parts(value)
        if parts is not None:
            return self._dict(parts, path, depth)
        kind = type(value)
        raise InvalidError(
            f"{path_text(path)} is of type {kind.__module__}.{kind.__qualname__}, which is neither "
            "a tensor nor a plain value (None, bool, int, float, complex, str, bytes) "
            "nor a dict, list or tuple of those"
        )

    def _tuple(self, value: tuple[Any, ...], path: tuple[Any, ...], depth: int) -> Any:
        fields = getattr(value, "_fields", None)
        if fields is None:
            items = [self.node(item, (*path, i), depth + 1) for i, item in enumerate(value)]
            return {"$tuple": items}
        named = [
            [field, self.node(item, (*path, field), depth + 1)]
            for field, item in zip(fields, value, strict=True)
        ]
        return {"$named": [type(value).__name__, named]}

    def _dict(self, value: dict[Any, Any], path: tuple[Any, ...], depth: int) -> Any:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: self.node(item, (*path, key), depth + 1) for key, item in value.items()}
        pairs = []
        for key, item in value.items():
            pairs.append([_key(key, path), self.node(item, (*path, key), depth + 1)])
        return {"$dict": pairs}

    def _add(self, value: Any, path: tuple[Any, ...]) -> str:
        name = ".".join(map(str, path)) or "value"
        unique, number = name, 1
        while unique in self.tensors:
            number += 1
            unique = f"{name}~{number}"
        self.tensors[unique] = value
        return unique


def _key(key: Any, path: tuple[Any, ...]) -> Any:
    if type(key) in _PLAIN:
        return _plain(key)
    if type(key) is tuple:
        return {"$tuple": [_key(item, path) for item in key]}
    raise InvalidError(
        f"{path_text(path)} has a key of type {type(key).__qualname__}, but keys "
        "must be plain values"
    )


def _plain(value: Any) -> Any:
    if type(value) is int and abs(value) > _EXACT_INT:
        return {"$int": hex(value)}
    if type(value) is float and not math.isfinite(value):
        return {"$float": repr(value)}
    if type(value) is complex:
        return {"$complex": [_plain(value.real), _plain(value.imag)]}
    if type(value) is bytes:
        return {"$bytes": base64.b64encode(value).decode("ascii")}
    return value


class _Absent(Exception):
    """A tensor that was not requested."""


def _decode(node: Any, tensors: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_decode_or_none(item, tensors) for item in node]
    if not isinstance(node, dict):
        return node
    if len(node) == 1:
        ((tag, value),) = node.items()
        if tag.startswith("$"):
            return _tagged(tag, value, tensors)
    return _items(node.items(), tensors)


def _items(pairs: Any, tensors: Mapping[str, Any]) -> dict[Any, Any]:
    result = {}
    for key, item in pairs:
        try:
            result[key] = _decode(item, tensors)
        except _Absent:
            continue
    return result


def _decode_or_none(node: Any, tensors: Mapping[str, Any]) -> Any:
    try:
        return _decode(node, tensors)
    except _Absent:
        return None


def _tagged(tag: str, value: Any, tensors: Mapping[str, Any]) -> Any:
    if tag == "$tensor":
        name = value[0] if isinstance(value, list) else value
        if name not in tensors:
            raise _Absent
        return tensors[name]
    if tag == "$tuple":
        return tuple(_decode_or_none(item, tensors) for item in value)
    if tag == "$named":
        name, pairs = value
        kind = _named(name, tuple(field for field, _ in pairs))
        return kind(*(_decode_or_none(item, tensors) for _, item in pairs))
    if tag == "$dict":
        return _items(((_decode(key, {}), item) for key, item in value), tensors)
    if tag == "$int":
        return int(value, 16)
    if tag == "$float":
        return float(value)
    if tag == "$complex":
        real, imaginary = (_decode(part, {}) for part in value)
        return complex(real, imaginary)
    if tag == "$bytes":
        return base64.b64decode(value, validate=True)
    raise ValueError(f"unknown tag {tag!r}")


@functools.lru_cache(maxsize=256)
def _named(name: str, fields: tuple[str, ...]) -> type[tuple[Any, ...]]:
    return collections.namedtuple(name, fields)


def check_plain(tree: Any, saved: Any, name: str) -> None:
    """Raises if `set_plain` would not set a plain value of `saved`, in which tensors are omitted or
    None. Additional values of the tree are unchanged."""
    if isinstance(tree, dict):
        fits = isinstance(saved, dict) and all(key in tree for key in saved)
        pairs: Any = [(key, tree[key], saved[key]) for key in saved] if fits else []
    elif isinstance(tree, (list, tuple)):
        fits = isinstance(saved, (list, tuple)) and len(saved) == len(tree)
        pairs = list(zip(range(len(tree)), tree, saved, strict=True)) if fits else []
    else:
        fits, pairs = not isinstance(tree, _PLAIN) or repr(tree) == repr(saved), []
    if not fits:
        here, stored = (_shown(value) for value in (tree, saved))
        raise MismatchError(f"'{name}' is {here}, but the stored value is {stored}")
    for key, value, other in pairs:
        if isinstance(tree, tuple) or isinstance(value, (dict, list, tuple)):
            check_plain(value, other, f"{name}.{key}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def set_plain(tree: Any, saved: Any) -> None:
    """Sets the plain values of `saved` in the dicts and lists of `tree`, which has the same
    shape."""
    if isinstance(tree, dict) and isinstance(saved, dict):
        pairs: Any = [(key, saved[key]) for key in tree if key in saved]
    elif isinstance(tree, (list, tuple)) and isinstance(saved, (list, tuple)):
        pairs = list(zip(range(len(tree)), saved, strict=False))
    else:
        return
    for key, value in pairs:
        if isinstance(tree[key], (dict, list, tuple)):
            set_plain(tree[key], value)
        elif isinstance(tree[key], _PLAIN) and not isinstance(tree, tuple):
            tree[key] = value
