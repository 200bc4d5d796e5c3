"""Converts source text into modules: the stages of a plan, single blocks for the profiler."""

from __future__ import annotations

import hashlib
import linecache
import types
from typing import Any

import torch
from torch import nn

from ligament.pipe.generate.stage_base import Stage
from ligament.pipe.graph.ir import Program


def load(source: str) -> list[type[Stage]]:
    """Executes generated source (ours, never a file's) and returns its stage classes. The text is
    available to tracebacks and to `inspect`."""
    name = f"<ligament stages {hashlib.sha256(source.encode()).hexdigest()[:12]}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    module = types.ModuleType("ligament_stages")
    exec(compile(source, name, "exec"), module.__dict__)
    found: list[type[Stage]] = module.STAGES
    return found


def tensors_of(program: Program) -> dict[str, torch.Tensor]:
    """Every tensor of the model by each of its names, including constants of the trace."""
    model = program.model
    found: dict[str, torch.Tensor] = dict(model.named_parameters(remove_duplicate=False))
    found.update(model.named_buffers(remove_duplicate=False))
    for state in program.states.values():
        for name in state.names:
            found.setdefault(name, state.tensor)
    return found


def build(program: Program, classes: list[type[Stage]]) -> list[Stage]:
    """Stages on the model's own parameters and buffers."""
    state = tensors_of(program)
    return [cls(state, modules_of(program.model, cls), program.device) for cls in classes]


def modules_of(model: nn.Module, cls: Any) -> dict[str, nn.Module]:
    """The opaque modules that a stage class needs."""
    return {path: model.get_submodule(path) for path in cls.MODULES}


def run(stages: list[Stage], inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Runs all stages one after the other, in one autograd graph."""
    values = dict(inputs)
    result: tuple[torch.Tensor, ...] = ()
    for stage in stages:
        result = stage(*(values[name] for name in stage.INPUTS))
        values = dict(zip(stage.OUTPUTS, result, strict=True))
    return result
