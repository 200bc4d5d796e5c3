"""FTPipe's partitioning methods, implemented by Ligament's partitioner."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ligament.compat.autopipe.autopipe.model_partitioning.acyclic import (
    META_ALGORITH,
    Constraint,
    Objective,
)
from ligament.compat.autopipe.autopipe.model_profiling.control_flow_graph import Graph
from ligament.errors import InvalidError, UnsupportedError
from ligament.pipe import Plan, solver

METHODS = {
    "acyclic": "acyclic",
    "metis": "metis",
    "2dbin": "mixed",
    "mpipe": "mixed",
    "pipedream": "contiguous",
}
EPSILON = 0.1
# An edge function's result is a time, and the partitioner divides bytes by bytes per second: with
# this bandwidth a "byte" takes one millisecond.
ONE_PER_MS = 1e3
MOST_TURNS = 10  # of the asynchronous method


@dataclass(slots=True)
class Wanted:
    """Options of a partition, apart from weights."""

    nparts: int
    method: str = "acyclic"
    acyclic_opt: dict[str, Any] = field(default_factory=dict)
    METIS_opt: dict[str, Any] = field(default_factory=dict)
    recomputation: bool = False

    def options(self, **more: Any) -> solver.Options:
        """The options in the form that Ligament accepts."""
        name = self.method.lower()
        if name not in METHODS:
            known = ", ".join(METHODS)
            raise InvalidError(f"invalid partitioning_method {self.method!r} (one of {known})")
        found = dict(more)
        method = METHODS[name]
        opt = self.acyclic_opt if name == "acyclic" else {}
        if opt.get("meta_algorithm") is META_ALGORITH.MULTI_LEVEL or opt.get("use_multilevel"):
            method = "multilevel"
        if opt.get("objective") is Objective.EDGE_CUT:
            found["balance"] = 1 + opt.get("epsilon", EPSILON)
        if opt.get("constraint") is Constraint.MEMORY or opt.get("maximum_constraint_value"):
            raise UnsupportedError(
                "acyclic_opt: constraint=MEMORY and maximum_constraint_value are not supported "
                "(use ligament.pipe.pipe_model(memory_limit=...))"
            )
        seed = self.METIS_opt.get("seed") or 0
        return solver.options(stages=self.nparts, method=method, seed=seed, **found)


def partition(
    graph: Graph,
    wanted: Wanted,
    node_weight: Callable[[Any], float] | None,
    edge_weight: Callable[[Any, Any], float] | None,
) -> Graph:
    """Sets stage_id and gpu_id of every node, and the graph's plan. Without functions, nodes are
    weighted by their measured times and edges by their bytes."""
    for node in graph.nodes:
        node.gpu_id = None  # or edge functions would take its edges for those of one device
    weighed = _weighed(graph, node_weight, edge_weight)
    options = wanted.options(bandwidth=ONE_PER_MS if edge_weight and node_weight else None)
    answer = solver.solve(weighed, options)
    assign(graph, answer["stage"], answer["device"])
    graph.plan = judged(graph, wanted, answer["method"])
    return graph


def partition_async(
    graph: Graph,
    wanted: Wanted,
    node_weight: Callable[[Any], float] | None,
    edge_weight: Callable[[Any, Any], float] | None,
) -> Graph:
    """As `partition`, for asynchronous pipelines with recomputation: their last stage does not
    recompute, so its nodes weigh less. Repeats until the last stage stays the same."""
    with_recomputation = {node.id: node.weight for node in graph.nodes}
    seen: list[set[int]] = []
    for _ in range(MOST_TURNS):
        partition(graph, wanted, node_weight, edge_weight)
        last_stage = max(graph.unique_partitions_ids)
        last = {node.id for node in graph.nodes if node.stage_id == last_stage}
        if last in seen:
            break
        seen.append(last)
        for node in graph.nodes:
            node.weight = (
                _without_recomputation(graph, node.id)
                if node.id in last
                else (with_recomputation[node.id])
            )
    return graph


def _without_recomputation(graph: Graph, index: int) -> Any:
    weight = graph[index].weight
    assert graph.trace is not None
    sizes = {name: getattr(weight, name) for name in weight.SIZES}
    block = graph.trace.graph.nodes[index]
    return type(weight)(block.forward_ms, block.backward_ms, **sizes)


def _weighed(
    graph: Graph,
    node_weight: Callable[[Any], float] | None,
    edge_weight: Callable[[Any, Any], float] | None,
) -> Any:
    """A copy of the trace's graph with the functions' results in place of its figures."""
    if graph.trace is None:
        raise InvalidError("the graph has no trace: create it with build_profiled_graph")
    made = copy.deepcopy(graph.trace.graph)
    for node in graph.nodes:
        block, times = made.nodes[node.id], node.weight
        total = times.forward_time + times.backward_time
        wanted = float(node_weight(node)) if node_weight else total
        scale = wanted / total if total else 0.0
        block.forward_ms = times.forward_time * scale
        block.backward_ms = wanted - block.forward_ms
        block.weight_ms = min(block.weight_ms * scale, block.backward_ms)
    for edge in made.edges if edge_weight else ():
        if edge.value and edge.target in graph:
            edge.bytes = float(edge_weight(graph[edge.source], graph[edge.target]))  # type: ignore[misc]
    return made


def assign(graph: Graph, stages: Sequence[int], devices: Sequence[int]) -> None:
    """Sets stages and devices from the partitioner's result, which has one element for each
    block."""
    for node in graph.nodes:
        node.stage_id, node.gpu_id = stages[node.id], devices[node.id]


def judged(graph: Graph, wanted: Wanted, method: str) -> Plan:
    """The plan of the nodes' stages, with measured figures."""
    assert graph.trace is not None
    stages = [node.stage_id for node in graph.nodes]
    count = max(stages) + 1
    if sorted({*stages}) != list(range(count)):
        raise InvalidError(f"invalid stages {sorted({*stages})}: they must be 0 to {count - 1}")
    devices = _devices(graph, count)
    options = wanted.options(recompute=wanted.recomputation)
    blocks = graph.trace.graph
    answer = solver.judge(blocks, options, [*stages, count - 1], devices)
    answer["method"] = method
    return Plan(blocks, options, answer, graph.trace)


def _devices(graph: Graph, count: int) -> list[int]:
    """The device of each stage, from its nodes; a stage without a device gets a separate one, which
    is also set in its nodes."""
    found: dict[int, int] = {}
    for node in graph.nodes:
        if node.gpu_id is not None and found.setdefault(node.stage_id, node.gpu_id) != node.gpu_id:
            raise InvalidError(
                f"stage {node.stage_id} has nodes on devices {found[node.stage_id]} and "
                f"{node.gpu_id}: all nodes of a stage must have one gpu_id"
            )
    for node in graph.nodes:
        node.gpu_id = found.setdefault(node.stage_id, node.stage_id)
    return [found[stage] for stage in range(count)]
