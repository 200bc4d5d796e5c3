"""Keras 3, on any of its backends: structural names, as in its own `.weights.h5`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import _core
from ..errors import InvalidError, MismatchError, UnsupportedError
from . import arrays, of_jax, of_tensorflow, of_torch
from .dtypes import FROM_NUMPY, NAMES
from .fresh import Fresh

Done = Callable[[list[int], dict[int, Any]], None]


def takes(kind: type) -> bool:
    """Whether tensors of this type are ours to read."""
    keras = sys.modules["keras"]
    return hasattr(keras, "Variable") and issubclass(kind, keras.Variable)


def _adapter() -> Any:
    name = sys.modules["keras"].backend.backend()
    table = {"tensorflow": of_tensorflow, "torch": of_torch, "jax": of_jax, "numpy": arrays}
    if name not in table:
        raise UnsupportedError(f"Keras with the backend {name!r} is not supported")
    return table[name]


def describe(value: Any, name: str, writable: bool) -> Any:
    """The variable's value as the core can read it."""
    if writable and _adapter() is of_torch:
        of_torch.registered()  # from here on the core reads what is returned
        return value.value.detach()
    return _adapter().describe(value.value, name, writable)


def hold(batch: _core.Batch, values: list[Any], places: list[int], flags: bytearray) -> None:
    """As the backend holds its values."""
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
                f"'{name}' has dtype {value.dtype}, which is not numeric; store numbers"
            )

    def take(self, fresh: Fresh) -> None:
        self.value._direct_assign(_adapter().result(fresh, None))


def takers(names: list[str], values: list[Any], places: list[int]) -> dict[int, Any]:
    """torch fills in place, the others take over."""
    in_place = _adapter() is of_torch
    return {
        i: _Variable(values[i], names[i])
        for i in places
        if not (in_place and values[i].value.is_cpu)
    }


def cast(value: Any, fresh: Fresh) -> None:
    """Values of another dtype."""
    value.assign(_adapter().result(fresh, None))


# --- models -------------------------------------------------------------------------------------


def is_model(model: Any) -> bool:
    """Whether it is a Keras model or layer."""
    keras = sys.modules["keras"]
    return hasattr(keras, "Layer") and isinstance(model, keras.Layer)


class _Own(dict[str, Any]):
    """Stands where Keras expects a store."""


def _entries(model: Any) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """(path, saveable, what it saves of its own) in the order of Keras's own files, without
    optimizer and metrics."""
    from keras.src.saving.keras_saveable import KerasSaveable
    from keras.src.saving.saving_lib import _walk_saveable
    from keras.src.utils.naming import to_snake_case

    keras = sys.modules["keras"]
    skipped = (keras.optimizers.Optimizer, keras.metrics.Metric, keras.losses.Loss)
    seen: dict[
        int, Any
    ] = {}  # kept alive: a list made for the walk must not lend its id to another

    def visit(item: Any, path: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
        if isinstance(item, KerasSaveable):
            yield from saveable(item, path)
        elif isinstance(item, (list, dict, tuple)) and id(item) not in seen:
            seen[id(item)] = item
            yield from container(
                list(item.values()) if isinstance(item, dict) else list(item), path
            )

    def saveable(item: Any, path: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
        if id(item) in seen or isinstance(item, skipped):
            return
        seen[id(item)] = item
        own = _Own()
        if hasattr(item, "save_own_variables"):
            item.save_own_variables(own)
        yield path, item, own
        for name, child in _walk_saveable(item):
            yield from visit(child, f"{path}/{name}" if path else name)

    def container(items: list[Any], path: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
        used: dict[str, int] = {}
        for item in items:
            is_saveable = isinstance(item, KerasSaveable)
            if not is_saveable and not isinstance(item, (list, dict, tuple)):
                continue
            name = to_snake_case(item.__class__.__name__) if is_saveable else "container"
            number = used.get(name, 0)
            used[name] = number + 1
            yield from visit(item, f"{path}/{name}_{number}" if number else f"{path}/{name}")

    yield from saveable(model, "")


def _named(model: Any) -> dict[str, tuple[Any, Any, str]]:
    """name -> (value, saveable, key), the model's weights in its own order first."""
    if not model.built:
        raise InvalidError(f"the Keras model '{model.name}' is not built: it has no weights yet")
    found: dict[str, tuple[Any, Any, str]] = {}
    for path, item, own in _entries(model):
        for key, value in own.items():
            found[f"{path}/vars/{key}" if path else f"vars/{key}"] = (value, item, key)
    order = {id(weight): i for i, weight in enumerate(model.weights)}
    return dict(sorted(found.items(), key=lambda item: order.get(id(item[1][0]), len(order))))


def state(model: Any) -> dict[str, Any]:
    """The weights under their structural names. What a layer saves that is no variable is computed:
    a copy of it."""
    keras = sys.modules["keras"]
    return {
        name: value if isinstance(value, keras.Variable) else np.array(value)
        for name, (value, _, _) in _named(model).items()
    }


def finisher(
    model: Any, names: list[str], values: list[Any]
) -> tuple[Done, Callable[[Any], None] | None]:
    """Variables have taken their values by then; layers that compute what they save are handed
    theirs."""
    keras = sys.modules["keras"]
    computed = {i for i, value in enumerate(values) if not isinstance(value, keras.Variable)}

    def done(filled: list[int], takers: dict[int, Any]) -> None:
        if _adapter() is of_torch:
            of_torch.written(
                [values[i].value for i in filled if i not in takers and i not in computed]
            )
        if not computed.isdisjoint(filled):
            _load_own(model, values, computed.intersection(filled))

    return done, None


def _load_own(model: Any, values: list[Any], which: set[int]) -> None:
    entries = list(_named(model).values())
    for item in {id(entries[i][1]): entries[i][1] for i in which}.values():
        item.load_own_variables(
            {key: values[i] for i, (_, other, key) in enumerate(entries) if other is item}
        )


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
    """Whether it is one of Keras's optimizers."""
    keras = sys.modules["keras"]
    return hasattr(keras, "optimizers") and isinstance(model, keras.optimizers.Optimizer)


def optimizer_state(optimizer: Any) -> dict[str, Any]:
    """The optimizer's variables in order."""
    if not optimizer.built:
        raise InvalidError(f"the optimizer '{optimizer.name}' is not built: it has no state yet")
    return {f"vars/{i}": variable for i, variable in enumerate(optimizer.variables)}


def check_optimizer(optimizer: Any, state: Any) -> None:
    """Raises when the optimizer cannot take this state."""
    if not isinstance(state, dict) or set(state) != {f"vars/{i}" for i in range(len(state))}:
        raise MismatchError("what is stored is not the state of an optimizer of Keras's")
    if not optimizer.built or len(optimizer.variables) != len(state):
        raise MismatchError(
            f"the optimizer '{optimizer.name}' has {len(optimizer.variables)} variables, "
            f"the stored one {len(state)}"
            + (
                ""
                if optimizer.built
                else "; build it first: optimizer.build(model.trainable_variables)"
            )
        )
    for variable, value in zip(optimizer.variables, _in_order(state), strict=True):
        if tuple(variable.shape) != tuple(value.shape):
            raise MismatchError(
                f"{variable.path} has shape {tuple(variable.shape)}, stored is {tuple(value.shape)}"
            )


def _in_order(state: dict[str, Any]) -> list[Any]:
    return [state[f"vars/{i}"] for i in range(len(state))]


def set_optimizer(optimizer: Any, state: dict[str, Any]) -> None:
    """Every variable takes its value as it was stored."""
    check_optimizer(optimizer, state)
    for variable, value in zip(optimizer.variables, _in_order(state), strict=True):
        variable.assign(value)


def callback_class() -> type:
    """Keras's Callback, for the checkpoint callback to stand on."""
    import keras

    kind: type = keras.callbacks.Callback
    return kind


def rng_state() -> dict[str, Any]:
    """The seed generator that layers without one of their own use."""
    from keras.src.random.seed_generator import global_seed_generator

    return {"seed": np.asarray(global_seed_generator().state)}


def set_rng_state(state: dict[str, Any]) -> None:
    """Puts back what `rng_state` gave."""
    from keras.src.random.seed_generator import global_seed_generator

    global_seed_generator().state.assign(np.asarray(state["seed"]))
