"""Graphs, which a search compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import _core, tensors
from .errors import InvalidError
from .plural import count
from .tensors import Layers, Signature

Edge = tuple[str, str] | tuple[str, int, str]


class Graph:
    """A model's layers and the calls of them.

    By hand: `layers` are (name, signature) pairs, equal signatures mean equal layers; `edges` are
    (from, to) or (from, output number, to), in the order of the receiver's inputs. A tensor
    belongs to the layer whose name is the longest that equals its own or begins it, followed by
    "." or "/". Layers without an incoming edge are roots."""

    def __init__(
        self, layers: Iterable[tuple[str, str | bytes]], edges: Iterable[Edge] = ()
    ) -> None:
        made = Layers("hand/1")
        for name, signature in layers:
            if not isinstance(signature, (str, bytes, bytearray, memoryview)):
                raise InvalidError(
                    f"the signature of layer '{name}' must be a str or bytes, not {signature!r}"
                )
            mark = signature.encode() if isinstance(signature, str) else bytes(signature)
            if made.names[made.layer(name, mark)] != name:
                raise InvalidError(f"two layers of a graph have the name '{name}'")
        number = {name: i for i, name in enumerate(made.names)}
        inputs: list[list[tuple[int, int]]] = [[] for _ in made.names]
        for edge in edges:
            if not isinstance(edge, (tuple, list)) or len(edge) not in (2, 3):
                raise InvalidError(
                    f"{edge!r} is not an edge: expected (from, to) or (from, output, to)"
                )
            start, output, end = edge if len(edge) == 3 else (edge[0], 0, edge[1])
            for name in (start, end):
                if name not in number:
                    raise InvalidError(
                        f"an edge refers to layer '{name}', which is not in the graph"
                    )
            inputs[number[end]].append((number[start], output))
        for i, taken in enumerate(inputs):
            made.call(i, taken)
        self._set(made)

    def _set(self, layers: Layers) -> None:
        self._layers = layers
        flat: list[int] = []
        for layer, inputs in layers.calls:
            flat += (layer, len(inputs))
            for value in inputs:
                flat += value
        self._core = _core.Graph(
            layers.kind,
            tuple(layers.names),
            tuple(layers.signatures),
            len(layers.calls),
            tuple(flat),
        )

    @classmethod
    def _made(cls, layers: Layers) -> Graph:
        graph = cls.__new__(cls)
        graph._set(layers)
        return graph

    @classmethod
    def of(
        cls,
        model: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        signature: Signature | None = None,
    ) -> Graph:
        """The graph of a Keras model or a torch module: by torch.export if `args` are given, else
        the sequence of its modules. `signature(layer)` replaces class, configuration and shapes."""
        return cls._made(tensors.graphs(model, args, kwargs, signature)[0])

    @classmethod
    def all_of(
        cls,
        model: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> list[Graph]:
        """All graphs to save with a model."""
        return [cls._made(one) for one in tensors.graphs(model, args, kwargs, None)]

    @property
    def kind(self) -> str:
        """The producer and the version of the signatures: only graphs of one kind are compared."""
        return self._layers.kind

    @property
    def layers(self) -> list[tuple[str, bytes]]:
        """(name, signature) of each layer."""
        return list(zip(self._layers.names, self._layers.signatures, strict=True))

    @property
    def names(self) -> list[str]:
        """The layers' names."""
        return list(self._layers.names)

    @property
    def calls(self) -> list[tuple[str, list[tuple[int, int]]]]:
        """(layer, [(call, output number)]) of each call of a layer."""
        return [(self._layers.names[layer], list(taken)) for layer, taken in self._layers.calls]

    @property
    def edges(self) -> list[tuple[str, int, str]]:
        """(from, output number, to) by the layers' names, in the order of the inputs."""
        names, calls = self._layers.names, self._layers.calls
        return [
            (names[calls[call][0]], output, names[layer])
            for layer, inputs in calls
            for call, output in inputs
        ]

    def __len__(self) -> int:
        return len(self._layers.names)

    def __repr__(self) -> str:
        counts = f"{count(len(self), 'layer')}, {count(len(self._layers.calls), 'call')}"
        return f"<ligament.Graph {self.kind} of {counts}>"


def graphs_for(
    model: Any,
    given: Graph | Sequence[Graph] | None,
    args: tuple[Any, ...] | None,
    kwargs: dict[str, Any] | None,
) -> tuple[_core.Graph, ...]:
    """The graphs to save with a model: the given ones, or its own. If the graph cannot be built,
    the model is saved without one and cannot be found by a search."""
    if given is not None:
        return tuple(one._core for one in ([given] if isinstance(given, Graph) else given))
    if not tensors.is_model(model):
        return ()
    for how in ((args, kwargs), (None, None)):
        try:
            return tuple(one._core for one in Graph.all_of(model, *how))
        except Exception:
            continue
    return ()


def graphs_of_parts(parts: Mapping[str, Any]) -> tuple[_core.Graph, ...]:
    """The graphs to save with a checkpoint: those of its models, each under the name of its part. A
    part named "model" comes first, so that a search prefers it to an average of the same
    architecture. Parts whose graph cannot be built, and pipeline stages, have none."""
    made: dict[str, Layers] = {}
    for name in sorted(parts, key=lambda name: name != "model"):
        part = parts[name]
        if not tensors.is_model(part) or getattr(part, "IS_PART_OF_A_MODEL", False):
            continue
        try:
            found = tensors.graphs(part, None, None, None)
        except Exception:  # saved without one: only a search would miss it
            continue
        for one in found:
            made.setdefault(one.kind, Layers(one.kind)).add(one, f"{name}.")
    return tuple(Graph._made(one)._core for one in made.values())
