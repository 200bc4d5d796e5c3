"""Operations on a whole graph: merging nodes, splitting it into stages, sorting it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ligament.compat.autopipe.autopipe.utils import ExecTimes
from ligament.errors import InvalidError

if TYPE_CHECKING:
    from ligament.compat.autopipe.autopipe.model_profiling.control_flow_graph import Graph, Node


def merge(graph: Graph, into: Node, gone: Node, weigh: Callable[[Node, Node], float]) -> None:
    """Merges `gone`, which reads `into`, into it: times, parameters, edges and their weights are
    added."""
    if gone is into or gone not in into.out_edges:
        raise InvalidError(
            f"cannot merge node {gone.id} into node {into.id}, which it does not read"
        )
    for node in (into, gone, *gone.in_edges):
        node.maybe_create_compound_edge_weights(weigh)
    weights = into.compound_edge_weights
    weights.pop(gone.id, None)
    for index, weight in gone.compound_edge_weights.items():
        weights[index] += weight
    for source in {*gone.in_edges} - {into}:
        moved = source.compound_edge_weights.pop(gone.id, 0.0)
        source.compound_edge_weights[into.id] += moved
    first, second = into.weight or ExecTimes(0, 0), gone.weight or ExecTimes(0, 0)
    into.weight = ExecTimes(
        first.forward_time + second.forward_time, first.backward_time + second.backward_time
    )
    into.num_parameters += gone.num_parameters
    into.max_memory_bytes += gone.max_memory_bytes
    into.scope_to_hold_to = gone.scope_to_hold_to or into.scope_to_hold_to
    _rewire(into, gone)
    graph.output_ids = [into.id if index == gone.id else index for index in graph.output_ids]
    del graph._nodes[gone.id]


def _rewire(into: Node, gone: Node) -> None:
    for source in {*gone.in_edges} - {into}:
        source.out_edges = _unique([into if n is gone else n for n in source.out_edges], source)
        into.args.append(source)
    for reader in {*gone.out_edges}:
        reader.replace_input(gone, into)
        reader.args = _unique(reader.args, reader)
    into.args = _unique(into.args, into, gone)
    into.out_edges = _unique([*into.out_edges, *gone.out_edges], into, gone)


def _unique(nodes: Iterable[Node], *without: Node) -> list[Node]:
    return sorted({*nodes} - {*without}, key=lambda node: node.topo_sort_id)


def split(graph: Graph) -> dict[int, Graph]:
    """stage -> a graph of its nodes; values from other stages are inputs."""
    kind = type(graph)
    found: dict[int, Graph] = {}
    for stage in sorted({node.stage_id for node in graph.non_input_nodes}):
        copy = kind.from_other(graph)
        mine = {n.id for n in copy.non_input_nodes if n.stage_id == stage}
        received = {u.id for i in mine for u in copy[i].in_edges if u.id not in mine}
        outputs = [i for i in sorted(mine) if i in graph.output_ids or _leaves(copy[i], mine)]
        for index in received:
            node = copy[index]
            node.type, node.stage_id = _input_type(), stage
            node.args, node.kwargs = [], {}
        for index in mine | received:
            copy[index].out_edges = [n for n in copy[index].out_edges if n.id in mine]
        nodes = {index: copy[index] for index in sorted(mine | received)}
        words = {i: w for i, w in graph.input_kw_ids.items() if i in received}
        found[stage] = kind(nodes, words, outputs, graph.depth, graph.basic_blocks)
    return found


def _leaves(node: Node, mine: set[int]) -> bool:
    return any(reader.id not in mine for reader in node.out_edges)


def _input_type() -> Any:
    from ligament.compat.autopipe.autopipe.model_profiling.control_flow_graph import NodeTypes

    return NodeTypes.IN


def sort(graph: Graph, change_graph: bool) -> None:
    """Numbers the nodes in the topological order that prefers low ids."""
    missing = {node.id: len({*node.in_edges}) for node in graph.nodes}
    ready = [index for index, count in missing.items() if count == 0]
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        node = graph[heapq.heappop(ready)]
        node.topo_sort_id = len(order)
        order.append(node)
        for reader in {*node.out_edges}:
            missing[reader.id] -= 1
            if missing[reader.id] == 0:
                heapq.heappush(ready, reader.id)
    if len(order) != len(graph):
        raise InvalidError("the graph has a cycle")
    ids = [node.id for node in order]
    if change_graph and ids != sorted(ids):
        graph.input_kw_ids = {graph[i].topo_sort_id: w for i, w in graph.input_kw_ids.items()}
        graph.output_ids = [graph[i].topo_sort_id for i in graph.output_ids]
        graph._nodes = {node.topo_sort_id: node for node in order}
        for node in order:
            node.id = node.topo_sort_id


def reaches(source: Node, targets: set[Node], limit: int) -> bool:
    """Whether `source` is one of `targets` or a path of at most `limit` edges leads to one."""
    seen, level = {source}, [source]
    for _ in range(limit + 1):
        if targets & {*level}:
            return True
        following = {reader for node in level for reader in node.out_edges} - seen
        seen |= following
        level = list(following)
    return False
