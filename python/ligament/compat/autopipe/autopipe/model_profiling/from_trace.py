"""Creates FTPipe's graph of a model that Ligament has traced and profiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ligament.compat.autopipe.autopipe.model_profiling.control_flow_graph import (
    Graph,
    Node,
    NodeTypes,
)
from ligament.compat.autopipe.autopipe.model_profiling.profiler import Profile
from ligament.pipe import Trace

MEGA = 1e6


def make_graph(trace: Trace, depth: int, basic_blocks: Any) -> Graph:
    """Nodes in the order of the trace's blocks, with their ids; the block that represents the
    model's outputs has no node."""
    blocks = trace.graph.nodes[:-1]
    scopes = _Scopes(trace.program.model)
    nodes = {index: _node(index, block, scopes) for index, block in enumerate(blocks)}
    graph = Graph(nodes, _keywords(trace), [], depth, tuple(basic_blocks))
    graph.trace = trace
    _edges(graph, trace)
    values = values_of(trace)
    for index, node in nodes.items():
        _describe(node, trace, values[index])
        node.num_parameters = _parameters(trace, blocks[index])
    made_by = {name: index for index, names in values.items() for name in names}
    wanted = dict.fromkeys(made_by[n] for n in trace.program.outputs if n in made_by)
    graph.output_ids = list(wanted) or [len(nodes) - 1]
    return graph


def set_weights(graph: Graph, recomputed: Callable[[str], bool]) -> None:
    """Profiles of the nodes from those of the trace; the backward time of what is recomputed
    includes its forward time."""
    assert graph.trace is not None
    for node, block in zip(graph.nodes, graph.trace.graph.nodes, strict=False):
        again = block.forward_ms if recomputed(node.scope) else 0.0
        node.weight = Profile(
            block.forward_ms,
            block.backward_ms + again,
            cuda_memory_forward=block.forward_memory / MEGA,
            cuda_memory_backward=block.backward_memory / MEGA,
            size=(block.parameter_bytes + block.buffer_bytes) / MEGA,
            input_size=block.input_bytes / MEGA,
            output_size=block.output_bytes / MEGA,
        )
        node.max_memory_bytes = block.forward_memory


def values_of(trace: Trace) -> dict[int, list[str]]:
    """node -> names of the values that others read or the model returns, in the order of the
    trace."""
    read = {(edge.source, edge.value) for edge in trace.graph.edges if edge.value}
    found: dict[int, list[str]] = {}
    for index, block in enumerate(trace.graph.nodes[:-1]):
        found[index] = [name for name in block.ops if (index, name) in read]
    return found


class _Scopes:
    """The scopes (Model/Class[name]/...) of modules by their path."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.known = {"": type(model).__name__}

    def of(self, path: str) -> str:
        if path not in self.known:
            parent, _, local = path.rpartition(".")
            kind = type(self.model.get_submodule(path)).__name__
            self.known[path] = f"{self.of(parent)}/{kind}[{local}]"
        return self.known[path]


def _node(index: int, block: Any, scopes: _Scopes) -> Node:
    if block.kind == "input":
        return Node(NodeTypes.IN, index, f"input{index}")
    if block.kind in ("layer", "opaque"):
        path = block.name.partition(" (call ")[0]
        inner = "" if path == scopes.known[""] and block.kind == "opaque" else path
        return Node(NodeTypes.LAYER, index, scopes.of(inner))
    # An operation's scope in the trace ends in its name; its number distinguishes it from others.
    path = block.name.rpartition(".")[0]
    operation = block.scope.rpartition("/")[2]
    return Node(NodeTypes.OP, index, f"{scopes.of(path)}/{operation}_{index}")


def _keywords(trace: Trace) -> dict[int, str]:
    """node -> name, for arguments that were given by keyword."""
    shape: Any = trace.program.input_shape
    words = shape.children[1]
    found: dict[int, str] = {}
    for word, child in zip(words.keys, words.children, strict=True):
        places = _places(child)
        found |= {p: word if len(places) == 1 else f"{word}_{i}" for i, p in enumerate(places)}
    return found


def _places(shape: Any) -> list[int]:
    """The positions of the tensors in a nested argument."""
    if hasattr(shape, "place"):
        return [shape.place]
    return [place for child in getattr(shape, "children", ()) for place in _places(child)]


def _edges(graph: Graph, trace: Trace) -> None:
    for edge in trace.graph.edges:
        if edge.value and edge.target in graph:
            graph[edge.source].add_out_edge(graph[edge.target])
            graph[edge.target].add_arg(graph[edge.source])


def _describe(node: Node, trace: Trace, values: list[str]) -> None:
    metas, ops = trace.program.metas(), trace.program.producers()
    known = [metas.get(name) for name in values]
    shapes = tuple(torch.Size(m.shape) if m else None for m in known)
    dtypes = tuple(m.dtype if m else type(None) for m in known)
    grads = tuple(name in ops and ops[name].grad for name in values)
    dense = tuple(m is None or _is_contiguous(m.shape, m.stride) for m in known)
    if len(values) == 1:
        node.value_type = torch.Tensor if known[0] else type(None)
        node.tensor_shape, node.tensor_dtype = shapes[0], dtypes[0]
    else:
        node.value_type = tuple if values else type(None)
        node.tensor_shape, node.tensor_dtype = shapes, dtypes
    node.req_grad, node.is_contiguous = any(grads), all(dense)


def _is_contiguous(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    step = 1
    for size, own in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and own != step:
            return False
        step *= size
    return True


def _parameters(trace: Trace, block: Any) -> int:
    """The number of elements of the parameters that a block uses."""
    program = trace.program
    if block.kind == "opaque":
        path = block.name.partition(" (call ")[0]
        model = program.model
        inner = model if path == type(model).__name__ else model.get_submodule(path)
        return sum(p.numel() for p in inner.parameters())
    ops = program.producers()
    names = {ref for name in block.ops if name in ops for ref in ops[name].refs()}
    states = (program.states[name] for name in names if name in program.states)
    return sum(state.tensor.numel() for state in states if state.kind == "parameter")
