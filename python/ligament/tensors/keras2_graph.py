"""The graph of a Keras 2 model; `keras_graph` does the same for Keras 3."""

from __future__ import annotations

import sys
from typing import Any

from .keras_graph import Walk, config_of, weight_shape
from .layers import Layers, Signature, encoded, text_of
from .of_keras2 import _entries

_FLOW, _ORDER = "keras2/1", "keras2.layers/1"


def graph(model: Any, signature: Signature | None) -> Layers:
    """Builds the graph of functional and built sequential models from their data flow, of all
    others from the order of their layers."""
    is_flow = _functional(model) is not None
    walk = _Walk(model, signature, _FLOW if is_flow else _ORDER)
    if is_flow:
        walk.flow(model, None)
    else:
        walk.order(model, None)
    return walk.layers


def layer_names(model: Any, paths: list[str]) -> list[str]:
    """Keras's names of the layers at these positions."""
    found = {path: item.name for path, item, _ in _entries(model)}
    return [found[path] for path in paths if path in found]


def _functional(model: Any) -> Any:
    return model if getattr(model, "_nodes_by_depth", None) else None


class _Walk(Walk):
    """The attributes of nodes have other names in Keras 2."""

    entries = staticmethod(_entries)
    functional = staticmethod(_functional)

    @property
    def model_class(self) -> Any:
        return sys.modules["tf_keras"].Model

    def inputs_of(self, model: Any) -> list[Any]:
        return list(model.inputs)

    def outputs_of(self, model: Any) -> list[Any]:
        return list(model.outputs)

    def operation(self, node: Any) -> Any:
        return node.layer

    def taken(self, node: Any) -> list[Any]:
        return [] if node.is_input else list(node.keras_inputs)

    def given(self, node: Any) -> list[Any]:
        return list(sys.modules["tensorflow"].nest.flatten(node.outputs))

    def plain_arguments(self, node: Any) -> Any:
        """The arguments of a call that are not tensors; None if there are none."""
        tf = sys.modules["tensorflow"]
        taken = {id(tensor) for tensor in self.taken(node)}
        flat = tf.nest.flatten((node.call_args, node.call_kwargs))
        rest = [value for value in flat if id(value) not in taken and value is not None]
        return [repr(value) for value in rest] or None

    def mark(self, operation: Any, arguments: list[Any]) -> bytes:
        if self.signature is not None:
            return text_of(self.signature(operation))
        shapes = [weight_shape(weight) for weight in operation.weights]
        kind = type(operation)
        name = kind.__name__
        if not kind.__module__.startswith("tf_keras."):
            name = f"{kind.__module__}.{kind.__qualname__}"
        return encoded(name, config_of(operation), shapes, arguments)

    def own_weights(self, model: Any) -> list[Any]:
        return [*model._trainable_weights, *model._non_trainable_weights]

    def is_layer(self, operation: Any) -> bool:
        return True
