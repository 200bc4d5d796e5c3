"""Layers and calls of them, which are collected from the models of each framework."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

Signature = Callable[[Any], "str | bytes"]
Value = tuple[int, int]  # output number `second` of call number `first`


@dataclass
class Layers:
    """A graph in the form that the library accepts. `kind` names its producer and the version of
    its signatures: graphs of different kinds are never compared."""

    kind: str
    names: list[str] = field(default_factory=list)
    signatures: list[bytes] = field(default_factory=list)
    calls: list[tuple[int, list[Value]]] = field(default_factory=list)
    _taken: dict[str, int] = field(default_factory=dict, repr=False)

    def layer(self, name: str, signature: bytes) -> int:
        """Adds a layer; a name that is already in use gets a number with which no tensor's name can
        begin."""
        number = self._taken.get(name, 0)
        self._taken[name] = number + 1
        self.names.append(f"{name}#{number}" if number else name)
        self.signatures.append(signature)
        return len(self.names) - 1

    def call(self, layer: int, inputs: Iterable[Value]) -> int:
        """Adds a call of a layer."""
        self.calls.append((layer, list(inputs)))
        return len(self.calls) - 1

    def add(self, other: Layers, prefix: str) -> None:
        """Adds the layers and calls of another graph, whose tensors have `prefix` before their
        names here."""
        layers, calls = len(self.names), len(self.calls)
        for name, signature in zip(other.names, other.signatures, strict=True):
            self.layer(prefix + name, signature)
        for layer, inputs in other.calls:
            self.call(layers + layer, [(calls + call, output) for call, output in inputs])


def text_of(value: str | bytes) -> bytes:
    """A user's signature; none of the library's signatures begins like this."""
    return b"own:" + (value if isinstance(value, bytes) else str(value).encode())


def encoded(*parts: Any) -> bytes:
    """A signature of plain values, the same in every process."""
    return json.dumps(parts, sort_keys=True, default=_word, separators=(",", ":")).encode()


def _word(value: Any) -> str:
    """Encodes a value that JSON cannot represent. An address in a repr would differ between
    processes."""
    text = repr(value)
    if " at 0x" in text:
        kind = type(value) if not isinstance(value, type) else value
        return str(getattr(value, "__qualname__", kind.__qualname__))
    return text
