"""Equal names for equal layers of different models."""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any

from ._config import inputs_of, layers_of, name_of, renamed


def standardize_names(model: Any) -> Any:
    """A copy of the model whose layers are named after their class, configuration and, recursively,
    their inputs. Equal layers with equal inputs are numbered. Weights are copied."""
    config = copy.deepcopy(model.get_config())
    names = _names(config)
    for layer in layers_of(config):
        layer["config"]["name"] = names[name_of(layer)]
        if "name" in layer:
            layer["name"] = names[layer["name"]]
        if "inbound_nodes" in layer:
            layer["inbound_nodes"] = renamed(layer["inbound_nodes"], names)
    for key in ("input_layers", "output_layers"):
        if key in config:
            config[key] = renamed(config[key], names)
    classes = {type(layer).__name__: type(layer) for layer in model.layers}
    made = type(model).from_config(config, custom_objects=classes)
    if model.built:
        made.set_weights(model.get_weights())
    return made


def _names(config: dict[str, Any]) -> dict[str, str]:
    inputs = inputs_of(config)
    entries = {name_of(layer): layer for layer in layers_of(config)}
    made: dict[str, str] = {}
    counts: dict[str, int] = {}

    def standardize(name: str) -> str:
        if name not in made:
            made[name] = name  # a layer that depends on itself
            before = [standardize(one) for one in inputs[name]]
            base = _base(entries[name], before)
            made[name] = f"{base}_{counts.get(base, 0)}"
            counts[base] = counts.get(base, 0) + 1
        return made[name]

    for name in entries:
        standardize(name)
    return made


def _base(layer: dict[str, Any], before: list[str]) -> str:
    """The name of a layer: its class, and a hash of its configuration (regardless of whether it is
    trainable) and inputs."""
    config = {key: value for key, value in layer["config"].items() if key != "name"}
    if "trainable" in config:
        config["trainable"] = True
    text = json.dumps([config, before], sort_keys=True, default=repr)
    return f"{layer['class_name']}{hashlib.sha3_256(text.encode()).hexdigest()}"
