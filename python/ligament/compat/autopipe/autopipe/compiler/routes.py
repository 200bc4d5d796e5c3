"""The values that each partition receives and sends, with their sources and destinations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ligament.compat.autopipe.autopipe.model_profiling.control_flow_graph import Graph
from ligament.compat.autopipe.autopipe.model_profiling.from_trace import values_of

MODEL = -1  # in the place of a stage: the caller of the model


@dataclass(slots=True)
class Stop:
    """A value at the boundary of a stage: `name` is the configuration's, `value` the trace's,
    `ends` the stages at the other end (the one it comes from, or those that it goes to)."""

    name: str
    value: str
    ends: list[int]


@dataclass(slots=True)
class Routes:
    """The inputs and outputs of each stage and of the model."""

    takes: list[list[Stop]] = field(default_factory=list)
    gives: list[list[Stop]] = field(default_factory=list)
    inputs: list[Stop] = field(default_factory=list)
    outputs: list[Stop] = field(default_factory=list)

    def depths(self) -> list[int]:
        """For each stage, the length of the longest path to the end of the pipeline."""
        found = [0] * len(self.gives)
        for stage in reversed(range(len(found))):
            ends = {end for stop in self.gives[stage] for end in stop.ends if end != MODEL}
            found[stage] = max((found[end] + 1 for end in ends), default=0)
        return found


def find_routes(graph: Graph, propagate: bool) -> Routes:
    """Inputs of the model are sent to every stage that reads them; its outputs leave at the last
    stage. Other values are sent to their readers: from one to the next with `propagate`, else
    directly."""
    assert graph.plan is not None
    layout, program = graph.plan.layout, graph.plan.program
    count = len(layout.stages)
    names = _names(graph)
    found = Routes([[] for _ in range(count)], [[] for _ in range(count)])
    readers = _readers(layout.stages, program)
    for value in program.inputs:
        found.inputs.append(Stop(names[value], value, readers.get(value, [])))
        for reader in readers.get(value, []):
            found.takes[reader].append(Stop(names[value], value, [MODEL]))
    for stage in layout.stages:
        for value in stage.outputs:
            made_here = value not in stage.inputs and value not in program.inputs
            if made_here and stage.index < count - 1:
                ends = [s for s in readers.get(value, []) if s > stage.index]
                send = _relay if propagate else _direct
                send(found, names.get(value, value), value, stage.index, ends)
    for value in dict.fromkeys(layout.stages[-1].outputs):
        name = names.get(value, value.removeprefix("$"))
        found.gives[-1].append(Stop(name, value.removeprefix("$"), [MODEL]))
        found.outputs.append(Stop(name, value, [count - 1]))
    return found


def _readers(stages: Any, program: Any) -> dict[str, list[int]]:
    """value -> the stages that read it, in order; the last one reads what the model returns."""
    found: dict[str, list[int]] = {}
    for stage in stages:
        read = {name for op in stage.ops for name in op.refs()}
        if stage.index == len(stages) - 1:
            read |= {*program.outputs}
        for value in stage.inputs:
            if value in read:
                found.setdefault(value, []).append(stage.index)
    return found


def _direct(found: Routes, name: str, value: str, born: int, ends: list[int]) -> None:
    found.gives[born].append(Stop(name, value, ends))
    for end in ends:
        found.takes[end].append(Stop(name, value, [born]))


def _relay(found: Routes, name: str, value: str, born: int, ends: list[int]) -> None:
    """A separate name for each hop if there are several."""
    for source, end in zip([born, *ends], ends, strict=False):
        hop = f"{name}_{end}" if len(ends) > 1 else name
        found.gives[source].append(Stop(hop, value, [end]))
        found.takes[end].append(Stop(hop, value, [source]))


def _names(graph: Graph) -> dict[str, str]:
    """value -> the scope of the node that makes it; with a number if that is not unique."""
    assert graph.trace is not None
    values = values_of(graph.trace)
    values |= {i: [name] for i, name in enumerate(graph.trace.program.inputs)}
    scopes = [node.scope for node in graph.nodes]
    found: dict[str, str] = {}
    for node in graph.nodes:
        scope = graph.input_kw_ids.get(node.id, node.scope)
        if scopes.count(node.scope) > 1:
            scope = f"{scope}_{node.id}"
        mine = values[node.id]
        for position, value in enumerate(mine):
            found[value] = scope if len(mine) == 1 else f"{scope}_{position}"
    return found
