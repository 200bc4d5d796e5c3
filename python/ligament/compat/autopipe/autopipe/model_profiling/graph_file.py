"""A graph's state as JSON. FTPipe pickles it; Ligament does not read pickles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from ligament.compat.autopipe.autopipe.model_profiling.profiler import Profile
from ligament.errors import InvalidError

FORMAT = "ligament autopipe graph 1"
TYPES = {t.__name__: t for t in (torch.Tensor, tuple, int, float, bool, str, type(None))}


def dumps(state: dict[str, Any]) -> str:
    """The state as text."""
    nodes = [
        {
            **node,
            "type": int(node["type"]),
            "weight": node["weight"].as_dict() if isinstance(node["weight"], Profile) else None,
            "value_type": getattr(node["value_type"], "__name__", None),
            "tensor_shape": _shapes(node["tensor_shape"]),
            "tensor_dtype": _dtypes(node["tensor_dtype"]),
            "kwargs": list(node["kwargs"].items()),
            "compound_edge_weights": list(node["compound_edge_weights"].items()),
        }
        for node in state["node_data"].values()
    ]
    blocks = [getattr(block, "__qualname__", block) for block in state["basic_blocks"] or ()]
    words = list(state["input_kw_ids"].items())
    found = {**state, "node_data": nodes, "basic_blocks": blocks, "input_kw_ids": words}
    return json.dumps({"format": FORMAT, **found}, indent=1) + "\n"


def read(path: Path, types: Any) -> dict[str, Any]:
    """The state in a file. The classes of basic blocks are restored as their names."""
    try:
        data = json.loads(path.read_text("utf-8"))
        if data.pop("format") != FORMAT:
            raise InvalidError(f"{path} is not a graph of this version")
        nodes = [_node(item, types) for item in data["node_data"]]
        return {
            **data,
            "node_data": {node["id"]: node for node in nodes},
            "basic_blocks": tuple(data["basic_blocks"]),
            "input_kw_ids": {int(key): str(word) for key, word in data["input_kw_ids"]},
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidError(f"{path} is not a graph: {error}") from None


def _node(item: dict[str, Any], types: Any) -> dict[str, Any]:
    return {
        **item,
        "type": types(item["type"]),
        "weight": Profile(**item["weight"]) if item["weight"] else None,
        "value_type": TYPES.get(item["value_type"]),
        "tensor_shape": _from_shapes(item["tensor_shape"]),
        "tensor_dtype": _from_dtypes(item["tensor_dtype"]),
        "kwargs": {int(key): words for key, words in item["kwargs"]},
        "compound_edge_weights": {int(key): w for key, w in item["compound_edge_weights"]},
    }


def _shapes(value: Any) -> Any:
    """A shape is stored as an object, to distinguish it from a tuple of shapes."""
    if isinstance(value, torch.Size):
        return {"shape": list(value)}
    return [_shapes(inner) for inner in value] if isinstance(value, tuple) else None


def _from_shapes(value: Any) -> Any:
    if isinstance(value, dict):
        return torch.Size(value["shape"])
    return tuple(_from_shapes(inner) for inner in value) if isinstance(value, list) else None


def _dtypes(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_dtypes(inner) for inner in value]
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else None


def _from_dtypes(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_from_dtypes(inner) for inner in value)
    found = getattr(torch, value) if isinstance(value, str) else None
    return found if isinstance(found, torch.dtype) else None
