"""The graph that is partitioned: blocks of the traced model, their costs, and the values
transferred between them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ligament.errors import InvalidError
from ligament.plural import count

FIGURES = (
    "forward_ms",
    "backward_ms",
    "weight_ms",
    "parameter_bytes",
    "buffer_bytes",
    "activation_bytes",
    "output_bytes",
)


@dataclass(slots=True)
class Node:
    """A block. `kind` is layer, op, opaque, input or output. Times are of one micro-batch, memory
    in bytes: `forward_memory` is added by the forward pass, `backward_memory` is needed in
    addition by the backward pass."""

    name: str
    scope: str = ""
    kind: str = "op"
    forward_ms: float = 0.0
    backward_ms: float = 0.0
    weight_ms: float = 0.0
    forward_memory: float = 0.0
    backward_memory: float = 0.0
    parameter_bytes: float = 0.0
    buffer_bytes: float = 0.0
    input_bytes: float = 0.0
    output_bytes: float = 0.0
    activation_bytes: float = 0.0
    stage: int = -1
    device: int = -1
    ops: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Edge:
    """`value` is the name of the transferred value; "" if only the order matters (then `bytes` is
    0)."""

    source: int
    target: int
    value: str
    bytes: float


@dataclass(slots=True)
class Tie:
    """A parameter that several nodes use."""

    name: str
    bytes: float
    nodes: list[int]


@dataclass(slots=True)
class Graph:
    """Nodes in a topological order, edges between their indexes, sets of nodes that stay in one
    stage."""

    nodes: list[Node]
    edges: list[Edge]
    groups: list[list[int]] = field(default_factory=list)
    ties: list[Tie] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        work = sum(n.forward_ms + n.backward_ms for n in self.nodes)
        return (
            f"Graph({count(len(self.nodes), 'node')}, {count(len(self.edges), 'edge')}, "
            f"{work:.3f} ms)"
        )

    def as_json(self) -> dict[str, Any]:
        """A dict that `from_json`, `ligament.pipe.partition` and `ligament partition` read."""
        return {
            "nodes": [asdict(node) for node in self.nodes],
            "edges": [[e.source, e.target] for e in self.edges],
            "edge_bytes": [e.bytes for e in self.edges],
            "edge_values": [e.value for e in self.edges],
            "groups": [list(g) for g in self.groups],
            "ties": [asdict(tie) for tie in self.ties],
        }

    @staticmethod
    def from_json(data: Any) -> Graph:
        """Reads the object of `as_json`, or the simple form: nodes with costs, and edges as pairs
        of indexes."""
        if isinstance(data, Graph):
            return data
        if not isinstance(data, dict) or not isinstance(data.get("nodes"), list):
            raise InvalidError(
                'expected a graph: an object {"nodes": [...], "edges": [[from, to], ...]}'
            )
        nodes = [_node(index, item) for index, item in enumerate(data["nodes"])]
        edges = _edges(data, nodes)
        groups = [[_index(i, nodes, "a group") for i in g] for g in data.get("groups", [])]
        ties = [
            Tie(
                str(t["name"]),
                _number(t["bytes"], "a tie's bytes"),
                [_index(i, nodes, "a tie") for i in t["nodes"]],
            )
            for t in data.get("ties", [])
        ]
        return Graph(nodes, edges, groups, ties)


def _node(index: int, item: Any) -> Node:
    if not isinstance(item, dict):
        raise InvalidError(f"node {index} must be an object")
    known = {f.name for f in fields(Node)}
    name = str(item.get("name", f"node {index}"))
    node = Node(name)
    for key, value in item.items():
        if key not in known:
            raise InvalidError(
                f"node '{name}' has unknown field '{key}' (known: {', '.join(sorted(known))})"
            )
        if key in ("name", "scope", "kind"):
            setattr(node, key, str(value))
        elif key in ("stage", "device"):
            setattr(node, key, int(value))
        elif key == "ops":
            node.ops = [str(v) for v in value]
        else:
            setattr(node, key, _number(value, f"{key} of node '{name}'"))
    if "weight_ms" not in item:
        node.weight_ms = node.backward_ms / 2
    return node


def _edges(data: dict[str, Any], nodes: list[Node]) -> list[Edge]:
    pairs = data.get("edges", [])
    sizes, values = data.get("edge_bytes"), data.get("edge_values")
    for extra in (sizes, values):
        if extra is not None and len(extra) != len(pairs):
            raise InvalidError("edge_bytes and edge_values must have one element per edge")
    edges = []
    for position, pair in enumerate(pairs):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise InvalidError(f"edge {position} must be a pair [from, to]")
        source, target = (_index(i, nodes, f"edge {position}") for i in pair)
        size = (
            _number(sizes[position], f"bytes of edge {position}")
            if sizes
            else nodes[source].output_bytes
        )
        edges.append(
            Edge(source, target, str(values[position]) if values else nodes[source].name, size)
        )
    return edges


def _index(value: Any, nodes: list[Node], what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < len(nodes):
        raise InvalidError(f"{what} refers to node {value!r}, but there are {len(nodes)} nodes")
    return value


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidError(f"{what} is {value!r}, not a number")
    if not math.isfinite(value) or value < 0:
        raise InvalidError(f"{what} is {value!r}: it must be a number of at least 0")
    return float(value)


def union(sets: Iterable[Iterable[int]], count: int) -> list[list[int]]:
    """Overlapping sets of 0..count-1 merged; those of one element are omitted."""
    parent = list(range(count))

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for members in sets:
        first = -1
        for member in members:
            if first >= 0:
                parent[find(member)] = find(first)
            first = member
    merged: dict[int, list[int]] = {}
    for i in range(count):
        merged.setdefault(find(i), []).append(i)
    return [group for group in merged.values() if len(group) > 1]
