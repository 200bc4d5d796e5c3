"""The graph of a Keras model: by data flow where Keras knows it, else by the order of its
layers."""

from __future__ import annotations

import sys
from typing import Any

from .layers import Layers, Signature, Value, encoded, text_of
from .of_keras import _entries

_FLOW, _ORDER = "keras/1", "keras.layers/1"
# What a layer is called, whether it is trained, and how Keras notes sharing change nothing of what
# it computes; a frozen layer is the same layer.
_PASSED_OVER = ("name", "trainable", "shared_object_id", "build_config")


def graph(model: Any, signature: Signature | None) -> Layers:
    """Functional and built sequential models by data flow, all others by order."""
    flow = _functional(model)
    walk = _Walk(model, signature, _FLOW if flow is not None else _ORDER)
    if flow is not None:
        walk.flow(flow, None)
    else:
        walk.order(model, None)
    return walk.layers


def layer_names(model: Any, paths: list[str]) -> list[str]:
    """What Keras calls the layers at these places."""
    found = {path: item.name for path, item, _ in _entries(model) if hasattr(item, "name")}
    return [found[path] for path in paths if path in found]


def _functional(model: Any) -> Any:
    """The functional model inside, or None."""
    keras = sys.modules["keras"]
    inner = getattr(model, "_functional", None) if isinstance(model, keras.Sequential) else model
    return inner if hasattr(inner, "_nodes_by_depth") else None


class _Walk:
    def __init__(self, model: Any, signature: Signature | None, kind: str) -> None:
        self.layers = Layers(kind)
        self.signature = signature
        self.paths = {id(item): path for path, item, _ in _entries(model)}
        self.made: dict[int, int] = {}  # of each operation: its layer

    def flow(self, model: Any, given: list[Value] | None) -> list[Value]:
        """Adds the calls of a functional model, fed by `given` where it stands in another one;
        gives its outputs."""
        values: dict[int, Value] = {}
        if given is not None:
            values.update(zip(map(id, model._inputs), given, strict=True))
        depths = model._nodes_by_depth
        nodes = [node for depth in sorted(depths, reverse=True) for node in depths[depth]]
        calls: dict[int, list[Any]] = {}
        for node in nodes:
            calls.setdefault(id(node.operation), []).append(_plain_arguments(node))
        for node in nodes:
            if given is not None and node.is_input:
                continue
            inputs = [values[id(tensor)] for tensor in node.input_tensors]
            outputs = self.call(node.operation, inputs, calls[id(node.operation)])
            for number, tensor in enumerate(node.output_tensors):
                values[id(tensor)] = (
                    outputs[number] if number < len(outputs) else (outputs[0][0], number)
                )
        return [values[id(tensor)] for tensor in model._outputs]

    def call(self, operation: Any, inputs: list[Value], arguments: list[Any]) -> list[Value]:
        """A call of an operation. A model in the model is no layer: its own layers are."""
        keras = sys.modules["keras"]
        inner = _functional(operation) if isinstance(operation, keras.Model) else None
        if inner is not None and len(inner._inputs) == len(inputs):
            return self.flow(inner, inputs)
        number = self.layers.call(self.layer(operation, arguments), inputs)
        return [(number, 0)]

    def order(self, model: Any, before: int | None) -> int | None:
        """Adds a model's layers as a chain; gives the last call."""
        keras = sys.modules["keras"]
        path = self.paths.get(id(model), "")
        own = [w for w in (*model._trainable_variables, *model._non_trainable_variables)]
        if own:
            name = f"{path}/vars" if path else "vars"
            before = self.chain(self.layers.layer(name, encoded("own", *map(_shape, own))), before)
        for layer in model.layers:
            inner = _functional(layer) if isinstance(layer, keras.Model) else None
            if inner is not None and before is not None and len(inner._inputs) == 1:
                before = self.flow(inner, [(before, 0)])[0][0]
            elif isinstance(layer, keras.Model) and inner is None and layer.layers:
                before = self.order(layer, before)
            else:
                before = self.chain(self.layer(layer, []), before)
        return before

    def chain(self, layer: int, before: int | None) -> int:
        return self.layers.call(layer, [] if before is None else [(before, 0)])

    def layer(self, operation: Any, arguments: list[Any]) -> int:
        if id(operation) not in self.made:
            is_layer = isinstance(operation, sys.modules["keras"].Layer)
            path = self.paths.get(id(operation)) if is_layer else None
            name = path or f"{type(operation).__name__.lower()}()"
            mark = self.mark(operation, [one for one in arguments if one is not None])
            self.made[id(operation)] = self.layers.layer(name, mark)
        return self.made[id(operation)]

    def mark(self, operation: Any, arguments: list[Any]) -> bytes:
        if self.signature is not None:
            return text_of(self.signature(operation))
        weights = [_shape(weight) for weight in getattr(operation, "weights", ())]
        return encoded(_class_name(type(operation)), _config(operation), weights, arguments)


def _shape(weight: Any) -> tuple[list[int], str]:
    return list(weight.shape), str(weight.dtype)


def _class_name(kind: type) -> str:
    keras = sys.modules["keras"]
    if kind.__module__.startswith("keras."):
        return kind.__name__ if issubclass(kind, keras.Layer) else f"ops.{kind.__name__}"
    registered = str(keras.saving.get_registered_name(kind))
    return registered if ">" in registered else f"{kind.__module__}.{kind.__qualname__}"


def _config(operation: Any) -> Any:
    try:
        config = dict(operation.get_config())
    except Exception:  # a layer of the user's that cannot tell: what it has in plain sight
        config = {key: value for key, value in vars(operation).items() if _is_plain(key, value)}
    return _stripped({**config, "trainable": True})


def _is_plain(key: str, value: Any) -> bool:
    return not key.startswith("_") and isinstance(value, (bool, int, float, str, tuple))


def _stripped(value: Any) -> Any:
    """Without the names of layers. The config of a dtype policy is its name: that stays."""
    if isinstance(value, dict):
        passed = _PASSED_OVER if "trainable" in value else _PASSED_OVER[2:]
        return {str(key): _stripped(item) for key, item in value.items() if key not in passed}
    if isinstance(value, (list, tuple)):
        return [_stripped(item) for item in value]
    return value


def _plain_arguments(node: Any) -> Any:
    """What a call was given besides tensors; None where that is nothing."""
    keras = sys.modules["keras"]
    found: list[Any] = []

    def note(value: Any) -> str | Any:
        if isinstance(value, keras.KerasTensor):
            return "$"
        if value is not None:
            found.append(value)
        return value

    args = keras.tree.map_structure(note, node.arguments.args, none_is_leaf=False)
    kwargs = keras.tree.map_structure(note, node.arguments.kwargs, none_is_leaf=False)
    return [args, kwargs] if found else None
