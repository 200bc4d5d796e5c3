"""tmci.ops: the operations below `tmci.checkpoint`, for eager execution and for `tf.function`.

A tensor is identified by its position in the list. Inside a function they are `EagerPyFunc`
operations. `restore` passes the handles of variables to its operation, so that TensorFlow orders it
with the other reads and writes of these variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ligament import _core, plugins
from ligament import tensors as _tensors
from ligament.checkpoint.weights import fill
from ligament.tensors import of_tensorflow

from .failures import operation
from .plugins import refuse_unknown

_SET = "weights"  # as save_weights calls it


def checkpoint(tensors: Any, backend: str, config: str, name: str | None = None) -> Any:
    """Saves tensors through a backend. Returns None, or the operation while a graph is built."""
    _check(tensors, backend, config)
    save = operation(_save)
    if tf.executing_eagerly():
        return save(tensors, backend, config)
    return _in_graph(lambda *read: _save(list(read), backend, config), list(tensors), name)


def restore(tensors: Any, backend: str, config: str, name: str | None = None) -> Any:
    """Fills variables, or the memory of tensors, through a backend. Returns the same as
    `checkpoint`."""
    _check(tensors, backend, config)
    if tf.executing_eagerly():
        return operation(_load)(tensors, backend, config)
    variables = {i: one for i, one in enumerate(tensors) if _is_variable(one)}

    def load(*inputs: Any) -> None:
        _load([variables.get(i, one) for i, one in enumerate(inputs)], backend, config)

    return _in_graph(load, [getattr(one, "handle", one) for one in map(_variable, tensors)], name)


def _check(tensors: Any, backend: Any, config: Any) -> None:
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"tensors should be a list, not {type(tensors).__qualname__}")
    if not isinstance(backend, str):
        raise TypeError("backend should be a string")
    if not isinstance(config, str):
        raise TypeError("config should be a string")


def _variable(value: Any) -> Any:
    """The variable of TensorFlow in a variable of Keras; other values unchanged."""
    inner = getattr(value, "value", None)
    return inner if isinstance(inner, tf.Variable) else value


def _is_variable(value: Any) -> bool:
    return isinstance(_variable(value), tf.Variable)


def _in_graph(call: Callable[..., None], inputs: list[Any], name: str | None) -> Any:
    """Operations of one graph run in the order in which they were made: TensorFlow orders them by
    their variables, and a save of plain tensors has none."""
    graph = tf.compat.v1.get_default_graph()
    last = getattr(graph, "_ligament_last", None)
    with tf.control_dependencies([] if last is None else [last]):
        made = tf.py_function(call, [_variable(one) for one in inputs], [], name=name)
    graph._ligament_last = made
    return made


def _save(values: list[Any], backend: str, config: str) -> None:
    refuse_unknown(backend)
    held = [_tensor(one) for one in values]
    batch = _core.Batch([str(i) for i in range(len(held))], held)
    plugins.instance(backend, config).save(_SET, batch)


def _tensor(value: Any) -> Any:
    return value if _tensors.is_tensor(value) else tf.convert_to_tensor(value)


def _load(values: list[Any], backend: str, config: str) -> None:
    """A store has named tensors, which are used in their order."""
    refuse_unknown(backend)
    instance = plugins.instance(backend, config)
    names = instance.names(_SET) if plugins.has_volume(backend) else []
    if len(names) != len(values):
        names = [str(i) for i in range(len(values))]
    fill(backend, config, _SET, _tensors.Collected(names, [_target(one) for one in values]), False)


def _target(value: Any) -> Any:
    """A variable, or the memory of a tensor, which the original fills too."""
    if _is_variable(value):
        return _variable(value)
    return of_tensorflow.memory(value) if tf.is_tensor(value) else value
