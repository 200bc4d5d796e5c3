"""From a model and a sample to the graph of its blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ligament.errors import InvalidError
from ligament.pipe.graph.alias_analysis import analyse
from ligament.pipe.graph.block_builder import BlockBuilder
from ligament.pipe.graph.blocks import Graph
from ligament.pipe.graph.capture import Captured, capture
from ligament.pipe.graph.from_export import convert
from ligament.pipe.graph.ir import Program, State
from ligament.plural import count


@dataclass(slots=True)
class Trace:
    """A traced model: its operations and the graph of its blocks."""

    program: Program
    graph: Graph
    sample: list[torch.Tensor]
    depth: int | None
    basic_blocks: tuple[str, ...]
    exported: torch.export.ExportedProgram | None = None

    def __repr__(self) -> str:
        name = type(self.program.model).__name__
        ops, blocks = len(self.program.ops), len(self.graph)
        return f"Trace({name}: {count(ops, 'operation')} in {count(blocks, 'block')})"


def _names(basic_blocks: Iterable[type | str] | type | str) -> tuple[str, ...]:
    """The names of classes; a single one is accepted like a list."""
    listed = (basic_blocks,) if isinstance(basic_blocks, (type, str)) else tuple(basic_blocks)
    for one in listed:
        if not isinstance(one, (type, str)):
            raise InvalidError(f"basic_blocks must be classes or their names, not {one!r:.80}")
    return tuple(one if isinstance(one, str) else one.__qualname__ for one in listed)


def trace(
    model: nn.Module,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    depth: int | None = None,
    basic_blocks: Iterable[type | str] = (),
    say: Callable[[str], None] | None = None,
) -> Trace:
    """Traces `model` on one micro-batch. `depth` is the maximum depth of a block in the module
    hierarchy (None: to the leaves); modules of the classes `basic_blocks` (classes or their names)
    are never split. `say` receives a line for each module that cannot be exported and stays whole;
    by default it is logged."""
    if depth is not None and depth < 1:
        raise InvalidError(f"invalid depth {depth}: expected at least 1 (the model's own children)")
    if isinstance(args, (torch.Tensor, dict)) or not isinstance(args, (tuple, list)):
        raise InvalidError("args must be a tuple of the positional arguments, such as (x,)")
    blocks = _names(basic_blocks)
    sample: list[torch.Tensor] = []

    def finish(captured: Captured) -> tuple[Program, list[set[str]], Any]:
        program = convert(model, captured)
        sample[:] = captured.inputs.tensors
        whole = None if captured.calls else captured.program  # an opaque call runs in a plan alone
        return program, analyse(program), whole

    program, together, exported = capture(model, tuple(args), dict(kwargs or {}), finish, say)
    _collect_unused(program)
    graph = BlockBuilder(program, depth, blocks, together).build()
    return Trace(program, graph, sample, depth, blocks, exported)


def _collect_unused(program: Program) -> None:
    """State that no operation uses: of opaque modules, or unused. Stages still carry it, under its
    names."""
    used = {n for op in program.ops for n in op.refs()}
    for name in [n for n in program.states if n not in used]:
        program.unused[name] = program.states.pop(name)
    known = {id(s.tensor) for s in (*program.states.values(), *program.unused.values())}
    kept = set(program.model.state_dict(keep_vars=True))
    model = program.model
    for kind, found in (
        ("parameter", model.named_parameters(remove_duplicate=False)),
        ("buffer", model.named_buffers(remove_duplicate=False)),
    ):
        for name, tensor in found:
            if id(tensor) not in known:
                program.unused["$" + name] = State(kind, [name], tensor, name in kept)
                known.add(id(tensor))
