"""Layers and their inputs in the configuration of a Keras model, of version 2 or 3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ligament.errors import InvalidError


def layers_of(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries of the layers; a model's whole configuration is accepted too."""
    if not isinstance(config, Mapping):
        kind = type(config).__qualname__
        raise TypeError(
            f"a Keras configuration must be a dict, not {kind} (see model.get_config())"
        )
    inner = config.get("config")
    found = config.get("layers")
    if found is None and isinstance(inner, dict):
        found = inner.get("layers")
    if not found:
        raise InvalidError(
            "the configuration lists no layers: functional and sequential models of Keras have one"
        )
    return list(found)


def name_of(layer: dict[str, Any]) -> str:
    """In a sequential model, layers are named only in their own configurations."""
    name: str = layer.get("name") or layer["config"]["name"]
    return name


def inputs_of(config: dict[str, Any]) -> dict[str, list[str]]:
    """The layers that provide each layer's inputs, each once, in order."""
    layers = layers_of(config)
    if not any("inbound_nodes" in layer for layer in layers):  # sequential: one after the other
        names = [name_of(layer) for layer in layers]
        return {name: names[i - 1 : i] if i else [] for i, name in enumerate(names)}
    return {
        name_of(layer): list(dict.fromkeys(_sources(layer["inbound_nodes"]))) for layer in layers
    }


def _sources(value: Any) -> Iterator[str]:
    """References are ["dense", 0, 0, ...] in version 2 and {"keras_history": ["dense", 0, 0]} in
    version 3."""
    reference = _reference(value)
    if reference is not None:
        yield reference[0]
        value = reference[3:]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _sources(item)


def _reference(value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or len(value) < 3:
        return None
    name, *places = value[:3]
    is_one = isinstance(name, str) and all(type(place) is int for place in places)
    return value if is_one else None


def renamed(value: Any, names: dict[str, str]) -> Any:
    """The configuration with the references to layers renamed."""
    if _reference(value) is not None:
        return [names.get(value[0], value[0]), *(renamed(item, names) for item in value[1:])]
    if isinstance(value, dict):
        return {key: renamed(item, names) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [renamed(item, names) for item in value]
    return value
