"""A few values of the parameters of a process, which show whether tensors of one name on several
ranks are replicas."""

from __future__ import annotations

import sys
from typing import Any

from . import of_torch, torch_parts
from .of_dtensor import is_distributed

_PARAMETERS = 8  # the largest of each part
_VALUES = 8  # of each

Samples = dict[str, list[float]]  # by a description of the parameter


def samples(parts: dict[str, Any], states: dict[str, Any]) -> Samples:
    """Values of the largest parameters of the parts of a checkpoint: of models and stages, by name,
    and of optimizers with a state that train others. `states` has the tree of each part."""
    chosen: dict[str, Any] = {}
    seen: set[int] = set()
    for name, part in parts.items():
        if of_torch.is_model(part) or torch_parts.stages(part):
            seen.update(map(id, states[name].values()))
            chosen |= _largest({f"'{name}.{key}'": one for key, one in states[name].items()})
    for name, part in parts.items():
        found = [one for one in torch_parts.optimizers(part) if one.state]
        params = [param for one in found for param in torch_parts.parameters(one)]
        mine = {f"parameter {i} of '{name}'": p for i, p in enumerate(params) if id(p) not in seen}
        chosen |= _largest(mine)
    return dict(zip(chosen, _values(list(chosen.values())), strict=True))


def _largest(named: dict[str, Any]) -> dict[str, Any]:
    whole = {
        name: value
        for name, value in named.items()
        if of_torch.is_parameter(value)
        and not (is_distributed(value) or value.is_meta)
        and value.is_floating_point()
        and value.numel() > 0
    }
    first = sorted(whole, key=lambda name: -whole[name].numel())[:_PARAMETERS]
    return {name: whole[name] for name in first}


def _values(params: list[Any]) -> list[list[float]]:
    """Reads the values with one copy from each device."""
    torch = sys.modules["torch"]
    few = []
    for param in params:
        flat = param.detach().reshape(-1) if param.is_contiguous() else param.detach().flatten()
        few.append(flat[:: -(-flat.numel() // _VALUES)].float())
    places: dict[Any, list[int]] = {}
    for i, one in enumerate(few):
        places.setdefault(one.device, []).append(i)
    found: list[list[float]] = [[] for _ in few]
    for mine in places.values():
        values = torch.cat([few[i] for i in mine]).tolist()
        for i in mine:
            found[i], values = values[: few[i].numel()], values[few[i].numel() :]
    return found
