"""The graph of a Keras model: from the data flow if Keras knows it, else from the order of its
layers."""

from __future__ import annotations

import sys
from typing import Any

from .layers import Layers, Signature, Value, encoded, text_of
from .of_keras import _entries

_FLOW, _ORDER = "keras/1", "keras.layers/1"
# The name of a layer, whether it is trained, and Keras's record of sharing do not affect what it
# computes; a frozen layer is the same layer.
_PASSED_OVER = ("name", "trainable", "shared_object_id", "build_config")


def graph(model: Any, signature: Signature | None) -> Layers:
    """Builds the graph of functional and built sequential models from their data flow, of all
    others from the order of their layers."""
    flow = _functional(model)
    walk = Walk(model, signature, _FLOW if flow is not None else _ORDER)
    if flow is not None:
        walk.flow(flow, None)
    else:
        walk.order(model, None)
    return walk.layers


def layer_names(model: Any, paths: list[str]) -> list[str]:
    """Keras's names of the layers at these positions."""
    found = {path: item.name for path, item, _ in _entries(model) if hasattr(item, "name")}
    return [found[path] for path in paths if path in found]


def _functional(model: Any) -> Any:
    """The functional model that this model contains, or None."""
    keras = sys.modules["keras"]
    inner = getattr(model, "_functional", None) if isinstance(model, keras.Sequential) else model
    return inner if hasattr(inner, "_nodes_by_depth") else None


class Walk:
    """Collects the layers and calls of a model."""

    entries = staticmethod(_entries)
    functional = staticmethod(_functional)

    def __init__(self, model: Any, signature: Signature | None, kind: str) -> None:
        self.layers = Layers(kind)
        self.signature = signature
        self.paths = {id(item): path for path, item, _ in self.entries(model)}
        self.made: dict[int, int] = {}  # of each operation: its layer

    @property
    def model_class(self) -> Any:
        """The base class of all models."""
        return sys.modules["keras"].Model

    def inputs_of(self, model: Any) -> list[Any]:
        """The input tensors of a functional model."""
        return list(model._inputs)

    def outputs_of(self, model: Any) -> list[Any]:
        """The output tensors of a functional model."""
        return list(model._outputs)

    def operation(self, node: Any) -> Any:
        """The operation that a node calls."""
        return node.operation

    def taken(self, node: Any) -> list[Any]:
        """The input tensors of a node."""
        return list(node.input_tensors)

    def given(self, node: Any) -> list[Any]:
        """The output tensors of a node."""
        return list(node.output_tensors)

    def plain_arguments(self, node: Any) -> Any:
        """The arguments of a call other than tensors; None if there are none."""
        return _plain_arguments(node)

    def is_layer(self, operation: Any) -> bool:
        """Whether it can be a layer of a model."""
        return isinstance(operation, sys.modules["keras"].Layer)

    def flow(self, model: Any, given: list[Value] | None) -> list[Value]:
        """Adds the calls of a functional model and returns its outputs; `given` are its inputs if
        it is nested in another model."""
        values: dict[int, Value] = {}
        if given is not None:
            values.update(zip(map(id, self.inputs_of(model)), given, strict=True))
        depths = model._nodes_by_depth
        nodes = [node for depth in sorted(depths, reverse=True) for node in depths[depth]]
        calls: dict[int, list[Any]] = {}
        for node in nodes:
            calls.setdefault(id(self.operation(node)), []).append(self.plain_arguments(node))
        for node in nodes:
            if given is not None and node.is_input:
                continue
            operation = self.operation(node)
            inputs = [values[id(tensor)] for tensor in self.taken(node)]
            outputs = self.call(operation, inputs, calls[id(operation)])
            for number, tensor in enumerate(self.given(node)):
                values[id(tensor)] = (
                    outputs[number] if number < len(outputs) else (outputs[0][0], number)
                )
        return [values[id(tensor)] for tensor in self.outputs_of(model)]

    def call(self, operation: Any, inputs: list[Value], arguments: list[Any]) -> list[Value]:
        """Adds a call of an operation. A nested model is not a layer; its layers are added
        instead."""
        is_model = isinstance(operation, self.model_class)
        inner = self.functional(operation) if is_model else None
        if inner is not None and len(self.inputs_of(inner)) == len(inputs):
            return self.flow(inner, inputs)
        number = self.layers.call(self.layer(operation, arguments), inputs)
        return [(number, 0)]

    def order(self, model: Any, before: int | None) -> int | None:
        """Adds a model's layers as a chain; returns the last call."""
        path = self.paths.get(id(model), "")
        own = self.own_weights(model)
        if own:
            name = f"{path}/vars" if path else "vars"
            before = self.chain(
                self.layers.layer(name, encoded("own", *map(weight_shape, own))), before
            )
        for layer in model.layers:
            is_model = isinstance(layer, self.model_class)
            inner = self.functional(layer) if is_model else None
            if inner is not None and before is not None and len(self.inputs_of(inner)) == 1:
                before = self.flow(inner, [(before, 0)])[0][0]
            elif is_model and inner is None and layer.layers:
                before = self.order(layer, before)
            else:
                before = self.chain(self.layer(layer, []), before)
        return before

    def own_weights(self, model: Any) -> list[Any]:
        """The weights of a model that belong to none of its layers."""
        return [*model._trainable_variables, *model._non_trainable_variables]

    def chain(self, layer: int, before: int | None) -> int:
        """Adds a call that follows another."""
        return self.layers.call(layer, [] if before is None else [(before, 0)])

    def layer(self, operation: Any, arguments: list[Any]) -> int:
        """The layer of an operation, created at its first call."""
        if id(operation) not in self.made:
            path = self.paths.get(id(operation)) if self.is_layer(operation) else None
            name = path or f"{type(operation).__name__.lower()}()"
            mark = self.mark(operation, [one for one in arguments if one is not None])
            self.made[id(operation)] = self.layers.layer(name, mark)
        return self.made[id(operation)]

    def mark(self, operation: Any, arguments: list[Any]) -> bytes:
        """The signature of an operation."""
        if self.signature is not None:
            return text_of(self.signature(operation))
        weights = [weight_shape(weight) for weight in getattr(operation, "weights", ())]
        return encoded(_class_name(type(operation)), config_of(operation), weights, arguments)


def weight_shape(weight: Any) -> tuple[list[int], str]:
    """Shape and dtype of a weight."""
    return list(weight.shape), str(weight.dtype)


def _class_name(kind: type) -> str:
    keras = sys.modules["keras"]
    if kind.__module__.startswith("keras."):
        return kind.__name__ if issubclass(kind, keras.Layer) else f"ops.{kind.__name__}"
    registered = str(keras.saving.get_registered_name(kind))
    return registered if ">" in registered else f"{kind.__module__}.{kind.__qualname__}"


def config_of(operation: Any) -> Any:
    """Its configuration, without the entries that do not affect what it computes."""
    try:
        config = dict(operation.get_config())
    except Exception:  # a user's layer without get_config: use its plain attributes
        config = {key: value for key, value in vars(operation).items() if _is_plain(key, value)}
    return _stripped({**config, "trainable": True})


def _is_plain(key: str, value: Any) -> bool:
    return not key.startswith("_") and isinstance(value, (bool, int, float, str, tuple))


def _stripped(value: Any) -> Any:
    """Removes the names of layers. The config of a dtype policy is its name, which is kept."""
    if isinstance(value, dict):
        passed = _PASSED_OVER if "trainable" in value else _PASSED_OVER[2:]
        return {str(key): _stripped(item) for key, item in value.items() if key not in passed}
    if isinstance(value, (list, tuple)):
        return [_stripped(item) for item in value]
    return value


def _plain_arguments(node: Any) -> Any:
    """The arguments of a call other than tensors; None if there are none."""
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
