"""Keras 2 (tf_keras): its variables are TensorFlow's; models are named as Keras 3 names them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from .keras_walk import Entry, Parts, entries, load_own, named
from .of_keras import Done, check_variables, in_order


def takes(kind: type) -> bool:
    """False: its tensors are TensorFlow's variables."""
    return False


def is_model(model: Any) -> bool:
    """Whether it is a model or layer of Keras 2."""
    return isinstance(model, sys.modules["tf_keras"].layers.Layer)


@cache
def _attributes(kind: type) -> frozenset[str]:
    """The attributes that every layer or model has: those of Keras, not of the user."""
    return frozenset((*dir(kind()), "_functional", "_layers", "submodules", "layers"))


def _children(item: Any) -> Iterator[tuple[str, Any]]:
    """First the layers of models that list them, then attributes, private ones last."""
    keras = sys.modules["tf_keras"]
    is_model = isinstance(item, keras.Model)
    if is_model and (isinstance(item, keras.Sequential) or hasattr(item, "_nodes_by_depth")):
        yield "layers", item.layers
    passed = _attributes(keras.Model if is_model else keras.layers.Layer)
    for name in sorted(dir(item), key=lambda name: (name.startswith("_"), name)):
        if not name.startswith("__") and name not in passed:
            try:
                yield name, getattr(item, name)
            except Exception:  # a property that does not work yet
                continue


def _own(item: Any) -> dict[str, Any]:
    """The variables themselves if a layer saves them unchanged."""
    base = sys.modules["tf_keras"].layers.Layer
    if type(item).save_own_variables is not base.save_own_variables:
        own: dict[str, Any] = {}
        item.save_own_variables(own)
        return own
    variables = (*item._trainable_weights, *item._non_trainable_weights)
    return {str(i): variable for i, variable in enumerate(variables)}


def _entries(model: Any) -> Iterator[Entry]:
    from tf_keras.src.utils.generic_utils import to_snake_case

    keras = sys.modules["tf_keras"]
    parts = Parts(
        is_part=lambda item: isinstance(item, keras.layers.Layer),
        is_skipped=lambda item: isinstance(item, keras.metrics.Metric),
        own=_own,
        children=_children,
        snake_case=to_snake_case,
    )
    return entries(model, parts)


def _is_variable(value: Any) -> bool:
    return isinstance(value, sys.modules["tensorflow"].Variable)


def state(model: Any) -> dict[str, Any]:
    """The weights under their structural names."""
    return {
        name: value if _is_variable(value) else np.array(value)
        for name, (value, _, _) in named(model, _entries(model)).items()
    }


def finisher(
    model: Any, names: list[str], values: list[Any]
) -> tuple[Done, Callable[[Any], None] | None]:
    """The function to call after a load, when the variables already have their values."""
    computed = {i for i, value in enumerate(values) if not _is_variable(value)}

    def done(filled: list[int], takers: dict[int, Any]) -> None:
        if not computed.isdisjoint(filled):
            found = list(named(model, _entries(model)).values())
            load_own(found, values, computed.intersection(filled))

    return done, None


def is_optimizer(model: Any) -> bool:
    """Whether it is one of Keras 2's optimizers, of either kind."""
    keras = sys.modules["tf_keras"]
    return isinstance(model, (keras.optimizers.Optimizer, keras.optimizers.legacy.Optimizer))


def _variables(optimizer: Any) -> list[Any]:
    return list(optimizer.variables())


def _build(optimizer: Any, model: Any) -> None:
    if hasattr(optimizer, "build"):
        optimizer.build(model.trainable_variables)
    else:  # of the older kind
        optimizer._create_all_weights(model.trainable_variables)


def weights(
    model: Any,
    optimizer: Any,
    include_optimizer: bool,
    build: bool,
    stored: list[str] | None,
) -> tuple[list[str], list[Any], Done]:
    """Layers, their weights, then the optimizer."""
    states = state(model)
    names, values = list(states), list(states.values())
    optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
    if include_optimizer and optimizer is not None:
        if build or model.trainable_variables:
            _build(optimizer, model)
        for i, variable in enumerate(_variables(optimizer)):
            names.append(f"optimizer/vars/{i}")
            values.append(variable)
    done, _ = finisher(model, names, values)
    return names, values, done


def optimizer_state(optimizer: Any) -> dict[str, Any]:
    """The optimizer's variables in order."""
    return {f"vars/{i}": variable for i, variable in enumerate(_variables(optimizer))}


def check_optimizer(optimizer: Any, state: Any) -> None:
    """Raises if the optimizer cannot accept this state."""
    check_variables(getattr(optimizer, "name", "optimizer"), _variables(optimizer), state)


def set_optimizer(optimizer: Any, state: dict[str, Any]) -> None:
    """Sets every variable to its stored value."""
    check_optimizer(optimizer, state)
    for variable, value in zip(_variables(optimizer), in_order(state), strict=True):
        variable.assign(value)


class CallbackHooks:
    """The methods that `fit` of Keras 2 calls and Keras 3's Callback lacks."""

    _chief_worker_only = None
    _supports_tf_logs = False

    def _overrides(self, *hooks: str) -> bool:
        """Both versions of Keras mark the hooks of their own Callback."""
        return not all(getattr(getattr(self, hook), "_is_default", False) for hook in hooks)

    def _implements_train_batch_hooks(self) -> bool:
        return self._overrides(
            "on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end"
        )

    def _implements_test_batch_hooks(self) -> bool:
        return self._overrides("on_test_batch_begin", "on_test_batch_end")

    def _implements_predict_batch_hooks(self) -> bool:
        return self._overrides("on_predict_batch_begin", "on_predict_batch_end")


def callback_class() -> type:
    """Keras 2's Callback, for an installation without Keras 3."""
    import tf_keras

    kind: type = tf_keras.callbacks.Callback
    return kind


class _Start:
    """Replaces Keras's own BackupAndRestore, which `fit` asks for the epoch and the step
    reached."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def maybe_load_initial_counters_from_ckpt(
        self, steps_per_epoch: Any, initial_epoch: int, mode: Any
    ) -> tuple[int, int]:
        return self.epoch, 0


def start_at(model: Any, epoch: int | None) -> None:
    """Makes training start at this epoch."""
    model._training_state = None if epoch is None else _Start(epoch)
