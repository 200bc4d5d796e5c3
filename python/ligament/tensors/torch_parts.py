"""Pipeline stages: modules with a part of a torch model under the original's names (those of
`ligament.pipe`, in PipelineStages of torch, or marked with IS_PART_OF_A_MODEL), and the state of
their optimizers by parameter name."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from ..errors import InvalidError, MismatchError
from ..plural import listed
from . import of_torch

Names = dict[int, str]  # the id of a parameter: its name in the original model


def _module(part: Any) -> Any:
    """The module of a stage, with its wrapper (DistributedDataParallel); None for anything else."""
    pipelining: Any = sys.modules.get("torch.distributed.pipelining.stage")
    if pipelining is not None and isinstance(part, pipelining._PipelineStageBase):
        return part.submod
    for one in (part, getattr(part, "module", None)):
        if of_torch.is_model(one) and getattr(one, "IS_PART_OF_A_MODEL", False):
            return part
    return None


def _tied_names(module: Any) -> dict[str, list[str]]:
    """All names that the original has for tensors of a stage, by the name in the stage."""
    found: dict[str, list[str]] = getattr(
        module, "TIED_NAMES", getattr(getattr(module, "module", None), "TIED_NAMES", {})
    )
    return found


def stages(part: Any) -> list[Any]:
    """The modules of the stages that a part of a checkpoint is, or contains; empty for anything
    else."""
    found = [_module(one) for one in (part if isinstance(part, (list, tuple)) else [part])]
    return [] if any(one is None for one in found) else found


def state(modules: list[Any]) -> dict[str, Any]:
    """The tensors of stages under all names that the original has for them: a tied tensor, which
    has another name in another stage, is complete here."""
    found: dict[str, Any] = {}
    for module in modules:
        mine = of_torch.state(module)
        found.update(mine)
        for name, all_names in _tied_names(module).items():
            found.update({one: mine[name] for one in all_names if name in mine})
    return found


def parameter_names(modules: Iterable[Any]) -> Names:
    """The names of the parameters of modules; the canonical one if the original has several."""
    found: Names = {}
    for module in modules:
        tied = _tied_names(module)
        for name, value in of_torch.state(module).items():
            found.setdefault(id(value), tied.get(name, [name])[0])
    return found


def pieces(parts: dict[str, Any]) -> dict[str, Any]:
    """The states of those parts of a checkpoint that are stages or optimizers of stages; those of a
    list of optimizers together."""
    modules = {name: found for name, part in parts.items() if (found := stages(part))}
    names = parameter_names(module for found in modules.values() for module in found)
    states: dict[str, Any] = {name: state(found) for name, found in modules.items()}
    for name, part in parts.items():
        found = optimizers(part)
        if any(id(p) in names for one in found for p in parameters(one)):
            each = [_by_name(one, names) for one in found]
            states[name] = {
                "state": {key: value for one in each for key, value in one["state"].items()},
                "param_groups": [group for one in each for group in one["param_groups"]],
            }
    return states


def optimizers(part: Any) -> list[Any]:
    """The optimizers that a part of a checkpoint is, or contains; empty for anything else."""
    found = list(part) if isinstance(part, (list, tuple)) else [part]
    return found if all(map(of_torch.is_optimizer, found)) else []


def parameters(optimizer: Any) -> list[Any]:
    """The parameters that an optimizer trains."""
    return [param for group in optimizer.param_groups for param in group["params"]]


def _by_name(optimizer: Any, names: Names) -> dict[str, Any]:
    """The optimizer's state_dict, with the names of parameters in place of their numbers."""
    plain = optimizer.state_dict()
    known: dict[Any, str] = {}
    groups = []
    for group, other in zip(optimizer.param_groups, plain["param_groups"], strict=True):
        here = _names_of(group, names)
        known.update(zip(other["params"], here, strict=True))
        groups.append({**_without_names(other), "params": here})
    states = {known.get(number, number): values for number, values in plain["state"].items()}
    return {"state": states, "param_groups": groups}


def for_optimizer(optimizer: Any, saved: Any, models: list[Any], pieces: list[Any]) -> Any:
    """A state stored by name, in the form of the state_dict of this optimizer; any other state is
    returned unchanged. A group gets the hyperparameters of the stored group that its parameters
    were in. `models` are whole, `pieces` are stages."""
    if not is_by_name(saved):
        _refuse_numbers(optimizer, saved, pieces)
        return saved
    names = parameter_names([*models, *pieces])
    stored = {name: i for i, g in enumerate(saved["param_groups"]) for name in g["params"]}
    states: dict[int, Any] = {}
    groups = []
    count = 0
    for group in optimizer.param_groups:
        here = _names_of(group, names)
        lacking = [name for name in here if name not in stored]
        if lacking:
            raise MismatchError(f"the stored optimizer lacks parameter {listed(lacking)}")
        numbers = list(range(count, count + len(here)))
        count += len(here)
        for number, name in zip(numbers, here, strict=True):
            if name in saved["state"]:
                states[number] = saved["state"][name]
        values = _group(group, [saved["param_groups"][stored[name]] for name in here])
        groups.append({**values, "params": numbers})
    return {"state": states, "param_groups": groups}


def _refuse_numbers(optimizer: Any, saved: Any, pieces: list[Any]) -> None:
    """Stages may have the parameters of the model in a different order."""
    names = parameter_names(pieces)
    if is_state(saved) and any(id(param) in names for param in parameters(optimizer)):
        raise MismatchError(
            "the optimizer was saved with the whole model, by parameter number, and cannot be "
            "restored into stages (restore the model without its optimizer, or both whole)"
        )


def is_state(saved: Any) -> bool:
    """Whether it is the state of an optimizer."""
    return isinstance(saved, dict) and {"state", "param_groups"} <= set(saved)


def is_by_name(saved: Any) -> bool:
    """Whether it is the state of an optimizer by parameter name."""
    groups = saved.get("param_groups") if isinstance(saved, dict) else None
    named = [one for g in groups or () for one in g.get("params", ())]
    return bool(named) and all(isinstance(one, str) for one in named)


def _group(mine: dict[str, Any], stored: list[dict[str, Any]]) -> dict[str, Any]:
    """The hyperparameters of the stored groups that contained the parameters of one group."""
    found = _without_names(stored[0] if stored else mine)
    for other in stored[1:]:
        differing = [key for key, value in _without_names(other).items() if found[key] != value]
        if differing:
            raise MismatchError(
                f"parameters of one group were stored with {differing[0]}="
                f"{found[differing[0]]} and {other[differing[0]]} (use the parameter "
                "groups of the saved optimizer)"
            )
    return found


def _without_names(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in ("params", "param_names")}


def _names_of(group: dict[str, Any], names: Names) -> list[str]:
    own = group.get("param_names", [None] * len(group["params"]))
    found = [names.get(id(p), name) for p, name in zip(group["params"], own, strict=True)]
    unknown = [tuple(p.shape) for p, n in zip(group["params"], found, strict=True) if n is None]
    if unknown:
        raise InvalidError(
            "the optimizer's state is stored by parameter name, but its parameter of "
            f"shape {unknown[0]} is in no model of this call (pass model= too)"
        )
    return [name for name in found if name is not None]
