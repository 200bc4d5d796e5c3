"""Keras 3, with any of its backends: structural names, as in its own `.weights.h5`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import _core
from ..errors import InvalidError, MismatchError, UnsupportedError
from . import arrays, of_jax, of_tensorflow, of_torch
from .allocate import Fresh
from .dtypes import FROM_NUMPY, NAMES
from .keras_walk import Entry, Parts, entries, load_own, named

Done = Callable[[list[int], dict[int, Any]], None]


def takes(kind: type) -> bool:
    """Whether this adapter reads tensors of this type."""
    keras = sys.modules["keras"]
    return hasattr(keras, "Variable") and issubclass(kind, keras.Variable)


def _adapter() -> Any:
    name = sys.modules["keras"].backend.backend()
    table = {"tensorflow": of_tensorflow, "torch": of_torch, "jax": of_jax, "numpy": arrays}
    if name not in table:
        raise UnsupportedError(f"Keras with the backend {name!r} is not supported")
    return table[name]


def describe(value: Any, name: str, writable: bool) -> Any:
    """The variable's value in a form that the core can read."""
    if writable and _adapter() is of_torch:
        of_torch.registered()  # from here on the core reads what is returned
        return value.value.detach()
    return _adapter().describe(value.value, name, writable)


def hold(batch: _core.Batch, values: list[Any], places: list[int], flags: bytearray) -> None:
    """Holds the values in the same way as the backend does."""
    inner: list[Any] = [None] * len(values)
    for i in places:
        inner[i] = values[i].value
    _adapter().hold(batch, inner, places, flags)


class _Variable:
    """A variable that takes over a tensor of its backend."""

    mapped = False

    def __init__(self, value: Any, name: str) -> None:
        self.value, self.shape = value, tuple(value.shape)
        self.code = NAMES.get(str(value.dtype)) or FROM_NUMPY.get(np.dtype(str(value.dtype)), 0)
        if not self.code:
            raise UnsupportedError(
                f"'{name}' has dtype {value.dtype}, which is not numeric (store numbers)"
            )

    def take(self, fresh: Fresh) -> None:
        self.value._direct_assign(_adapter().result(fresh, None))

    def place(self) -> Any:
        is_tf = _adapter() is of_tensorflow
        return of_tensorflow.place(self.value.value, self.code) if is_tf else None


def takers(names: list[str], values: list[Any], places: list[int]) -> dict[int, Any]:
    """torch variables are filled in place, others take over memory."""
    in_place = _adapter() is of_torch
    return {
        i: _Variable(values[i], names[i])
        for i in places
        if not (in_place and values[i].value.is_cpu)
    }


def cast(value: Any, fresh: Fresh) -> None:
    """Copies values of a different dtype."""
    value.assign(_adapter().result(fresh, None))


# --- models -------------------------------------------------------------------------------------


def is_model(model: Any) -> bool:
    """Whether it is a Keras model or layer."""
    keras = sys.modules["keras"]
    return hasattr(keras, "Layer") and isinstance(model, keras.Layer)


class _Own(dict[str, Any]):
    """A substitute for the store that Keras expects."""


def _own(item: Any) -> dict[str, Any]:
    own = _Own()
    if hasattr(item, "save_own_variables"):
        item.save_own_variables(own)
    return own


def _entries(model: Any) -> Iterator[Entry]:
    from keras.src.saving.keras_saveable import KerasSaveable
    from keras.src.saving.saving_lib import _walk_saveable
    from keras.src.utils.naming import to_snake_case

    keras = sys.modules["keras"]
    skipped = (keras.optimizers.Optimizer, keras.metrics.Metric, keras.losses.Loss)
    parts = Parts(
        is_part=lambda item: isinstance(item, KerasSaveable),
        is_skipped=lambda item: isinstance(item, skipped),
        own=_own,
        children=_walk_saveable,
        snake_case=to_snake_case,
    )
    return entries(model, parts)


def _named(model: Any) -> dict[str, tuple[Any, Any, str]]:
    return named(model, _entries(model))


def state(model: Any) -> dict[str, Any]:
    """The weights by their structural names. Values that a layer saves and that are not variables
    are computed copies."""
    keras = sys.modules["keras"]
    return {
        name: value if isinstance(value, keras.Variable) else np.array(value)
        for name, (value, _, _) in _named(model).items()
    }


def finisher(
    model: Any, names: list[str], values: list[Any]
) -> tuple[Done, Callable[[Any], None] | None]:
    """The function to call after a load: the variables already have their values, and layers that
    compute what they save receive theirs."""
    keras = sys.modules["keras"]
    computed = {i for i, value in enumerate(values) if not isinstance(value, keras.Variable)}

    def done(filled: list[int], takers: dict[int, Any]) -> None:
        if _adapter() is of_torch:
            of_torch.written(
                [values[i].value for i in filled if i not in takers and i not in computed]
            )
        if not computed.isdisjoint(filled):
            load_own(list(_named(model).values()), values, computed.intersection(filled))

    return done, None


def weights(
    model: Any,
    optimizer: Any,
    include_optimizer: bool,
    build: bool,
    stored: list[str] | None,  # Keras's optimizers have all their variables or none
) -> tuple[list[str], list[Any], Done]:
    """Layers, their weights, then the optimizer."""
    states = state(model)
    names, values = list(states), list(states.values())
    optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
    if include_optimizer and optimizer is not None:
        if not optimizer.built and (build or model.trainable_variables):
            optimizer.build(model.trainable_variables)
        for i, variable in enumerate(optimizer.variables):
            names.append(f"optimizer/vars/{i}")
            values.append(variable)
    done, _ = finisher(model, names, values)
    return names, values, done


def is_optimizer(model: Any) -> bool:
    """Whether it is a Keras optimizer."""
    keras = sys.modules["keras"]
    return hasattr(keras, "optimizers") and isinstance(model, keras.optimizers.Optimizer)


def optimizer_state(optimizer: Any) -> dict[str, Any]:
    """The optimizer's variables in order."""
    if not optimizer.built:
        raise InvalidError(f"the optimizer '{optimizer.name}' is not built: it has no state yet")
    return {f"vars/{i}": variable for i, variable in enumerate(optimizer.variables)}


def check_optimizer(optimizer: Any, state: Any) -> None:
    """Raises if the optimizer cannot accept this state."""
    check_variables(optimizer.name, optimizer.variables if optimizer.built else [], state)


def check_variables(name: str, variables: list[Any], state: Any) -> None:
    """Raises if the variables of an optimizer cannot accept this state; one without variables has
    not been built."""
    if not isinstance(state, dict) or set(state) != {f"vars/{i}" for i in range(len(state))}:
        raise MismatchError("the stored value is not the state of a Keras optimizer")
    if not variables or len(variables) != len(state):
        raise MismatchError(
            f"the optimizer '{name}' has {len(variables)} variables, but the stored one has "
            f"{len(state)}"
            + ("" if variables else "; build it first: optimizer.build(model.trainable_variables)")
        )
    for variable, value in zip(variables, in_order(state), strict=True):
        if tuple(variable.shape) != tuple(value.shape):
            raise MismatchError(
                f"{getattr(variable, 'path', variable.name)} has shape {tuple(variable.shape)}, "
                f"but the stored shape is {tuple(value.shape)}"
            )


def in_order(state: dict[str, Any]) -> list[Any]:
    """The values by their numbers."""
    return [state[f"vars/{i}"] for i in range(len(state))]


def set_optimizer(optimizer: Any, state: dict[str, Any]) -> None:
    """Sets every variable to its stored value."""
    check_optimizer(optimizer, state)
    for variable, value in zip(optimizer.variables, in_order(state), strict=True):
        variable.assign(value)


def callback_class() -> type:
    """Keras's Callback, the base class of the checkpoint callback."""
    import keras

    kind: type = keras.callbacks.Callback
    return kind


def start_at(model: Any, epoch: int | None) -> None:
    """Makes training start at this epoch, like Keras's own BackupAndRestore."""
    model._initial_epoch = epoch


def rng_state() -> dict[str, Any]:
    """The seed generator of layers without their own, if it exists. Creating one here would reserve
    the GPUs for Keras's backend in a process that only imported Keras."""
    from keras.src.backend.common.global_state import get_global_attribute

    generator = get_global_attribute("global_seed_generator")
    return {} if generator is None else {"seed": np.asarray(generator.state)}


def set_rng_state(state: dict[str, Any]) -> None:
    """Restores a result of `rng_state`."""
    if "seed" not in state:
        return
    from keras.src.random.seed_generator import global_seed_generator

    global_seed_generator().state.assign(np.asarray(state["seed"]))
