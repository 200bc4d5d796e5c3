"""Gathers the operations of a traced model into blocks: which operations form one block, and which
blocks must stay together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from torch import nn

from ligament.errors import InvalidError
from ligament.pipe.graph.blocks import Edge, Graph, Node, Tie, union
from ligament.pipe.graph.capture import OpaqueCall
from ligament.pipe.graph.ir import Frame, Op, Program, State
from ligament.pipe.graph.op_properties import is_getitem

INPUT, OUTPUT = "input", "output"


class BlockBuilder:
    """Gathers operations into blocks and draws the edges between them."""

    def __init__(
        self, program: Program, depth: int | None, basic: tuple[str, ...], together: list[set[str]]
    ) -> None:
        self.program = program
        self.depth = depth
        self.basic = set(basic)
        self.together = together
        self.nodes: list[Node] = []
        self.op_of = program.producers()
        self.inner = {frame.key for op in program.ops for frame in op.frames[:-1]}

    def build(self) -> Graph:
        """The graph of the program."""
        self._inputs()
        self._blocks()
        last_block = len(self.nodes) - 1
        if last_block < len(self.program.inputs):
            raise InvalidError(
                f"nothing in {type(self.program.model).__name__} depends on its inputs"
            )
        self.nodes.append(Node("output", "output", OUTPUT))
        edges = self._edges()
        ties = self._ties()
        graph = Graph(self.nodes, edges, self._groups(edges), ties)
        self._sizes(graph)
        return graph

    def _inputs(self) -> None:
        for name, meta in self.program.inputs.items():
            node = Node(name, f"input/{name}", INPUT, ops=[name])
            node.output_bytes = meta.bytes
            self.nodes.append(node)

    def _blocks(self) -> None:
        key = ""
        for op in self.program.ops:
            if op.free:
                continue
            if is_getitem(op):
                op.block = self.op_of[next(op.refs())].block
                self.nodes[op.block].ops.append(op.name)
                continue
            frame = self._terminal(op)
            before, key = key, frame.key if frame else "op " + op.name
            # A block is a contiguous part of the trace, so that no value can leave it and return.
            if key != before:
                self.nodes.append(self._node(op, frame))
            op.block = len(self.nodes) - 1
            self.nodes[op.block].ops.append(op.name)

    def _terminal(self, op: Op) -> Frame | None:
        """The module call that this operation belongs to as a whole; None if it is separate."""
        for level, frame in enumerate(op.frames):
            if level == 0:
                continue  # the model itself is never one block, unless it is opaque
            name = frame.type.rpartition(".")[2]
            leaf = frame.key not in self.inner
            deep = self.depth is not None and frame.path.count(".") + 1 >= self.depth
            if leaf or deep or name in self.basic or frame.type in self.basic:
                return frame
        return None

    def _node(self, op: Op, frame: Frame | None) -> Node:
        if isinstance(op.target, OpaqueCall):
            path = op.target.path or type(self.program.model).__name__
            return Node(path, self._scope(op.frames, op, frame), "opaque")
        if frame is not None:
            call = frame.key.partition("@")[2]
            name = f"{frame.path} (call {int(call) + 1})" if call else frame.path
            return Node(name, self._scope(op.frames, None, frame), "layer")
        prefix = op.frames[-1].path + "." if op.frames and op.frames[-1].path else ""
        return Node(prefix + op.name, self._scope(op.frames, op, None), "op")

    def _scope(self, frames: tuple[Frame, ...], op: Op | None, end: Frame | None) -> str:
        """Model/Class[name]/.../op, as the original writes it."""
        parts = [type(self.program.model).__name__]
        for outer, frame in zip(frames, frames[1:], strict=False):
            local = frame.path.removeprefix(outer.path).removeprefix(".")
            parts.append(f"{frame.type.rpartition('.')[2]}[{local}]")
            if end is not None and frame.key == end.key:
                return "/".join(parts)
        if op is not None and not isinstance(op.target, OpaqueCall):
            parts.append(f"{op.target._schema.name.replace('aten::', 'torch::')}")
        return "/".join(parts)

    def _edges(self) -> list[Edge]:
        """One edge for each value and reader; order-only edges keep random operations, and the
        terms of long gradient sums, in the order of the model."""
        index_of_input = {name: i for i, name in enumerate(self.program.inputs)}
        found: dict[tuple[int, int, str], Edge] = {}

        def value(name: str, target: int) -> None:
            op = self.op_of.get(name)
            source = index_of_input.get(name, op.block if op else -1)
            if source < 0 or source == target:
                return
            meta = self.program.inputs.get(name) or (op.meta if op else None)
            found[source, target, name] = Edge(source, target, name, meta.bytes if meta else 0)

        for op in self.program.ops:
            if not op.free:
                for name in self._solid(op.refs()):
                    value(name, op.block)
        end = len(self.nodes) - 1
        for name in self._solid(self.program.outputs):
            value(name, end)
        sources = {edge.source for edge in found.values()}
        for index in range(end):
            if index not in sources:
                found[index, end, ""] = Edge(index, end, "", 0)
        for first, second in self._order():
            if first != second:
                found.setdefault((first, second, ""), Edge(first, second, "", 0))
        return sorted(found.values(), key=lambda e: (e.source, e.target, e.value))

    def _solid(self, names: Iterable[str]) -> Iterable[str]:
        """Without state and without values that every stage computes itself."""
        for name in names:
            op = self.op_of.get(name)
            if name in self.program.inputs or (op is not None and not op.free):
                yield name

    def _order(self) -> Iterable[tuple[int, int]]:
        random = [op.block for op in self.program.ops if op.random]
        yield from zip(random, random[1:], strict=False)
        readers: dict[str, list[int]] = defaultdict(list)
        for op in self.program.ops:
            if op.grad:
                for name in op.refs():
                    readers[name].append(op.block)
        for name, blocks in readers.items():
            producer = self.op_of.get(name)
            state = self.program.states.get(name)
            differentiable = (
                producer.grad if producer else state is not None and state.tensor.requires_grad
            )
            # Two terms commute; three or more are added in the order of the backward pass.
            if differentiable and len(blocks) > 2 and len(set(blocks)) > 1:
                yield from zip(blocks, blocks[1:], strict=False)

    def _groups(self, edges: list[Edge]) -> list[list[int]]:
        """Inputs enter at the first stage and results leave at the last; both stages do some
        work."""
        count = len(self.program.inputs)
        work = range(count, len(self.nodes) - 1)
        sets: list[list[int]] = []
        for names in self.together:
            blocks = {
                self.op_of[n].block for n in names if n in self.op_of and not self.op_of[n].free
            }
            sets.append(sorted(blocks))
        readers = [e.target for e in edges if e.source < count and e.target < len(self.nodes) - 1]
        first = min(readers, default=work[0])
        writers = [e.source for e in edges if e.target == len(self.nodes) - 1 and e.source >= count]
        last = max(writers, default=work[-1])
        sets.append([*range(count), first])
        sets.append([last, len(self.nodes) - 1])
        opaque: dict[str, list[int]] = defaultdict(list)
        for op in self.program.ops:
            if isinstance(op.target, OpaqueCall):
                opaque[op.target.path].append(op.block)
        sets.extend(opaque.values())
        return union(sets, len(self.nodes))

    def _ties(self) -> list[Tie]:
        users: dict[str, set[int]] = defaultdict(set)
        for op in self.program.ops:
            for name in op.refs():
                state = self.program.states.get(name)
                if state is not None and state.kind == "parameter":
                    users[name].add(op.block)
        for op in self.program.ops:
            if isinstance(op.target, OpaqueCall):
                for tensor in self.program.model.get_submodule(op.target.path).parameters():
                    for name, state in self.program.states.items():
                        if state.tensor is tensor:
                            users[name].add(op.block)
        return [
            Tie(self.program.states[n].names[0], self.program.states[n].bytes, sorted(blocks))
            for n, blocks in users.items()
            if len(blocks) > 1
        ]

    def _sizes(self, graph: Graph) -> None:
        for node in graph.nodes:
            states: dict[str, State] = {}
            values: dict[str, int] = {}
            for op_name in node.ops:
                op = self.op_of.get(op_name)
                for name in op.refs() if op else ():
                    if name in self.program.states:
                        states[name] = self.program.states[name]
                if op is not None and isinstance(op.target, OpaqueCall):
                    module = self.program.model.get_submodule(op.target.path)
                    states.update(_module_state(module))
            node.parameter_bytes = sum(s.bytes for s in states.values() if s.kind == "parameter")
            node.buffer_bytes = sum(s.bytes for s in states.values() if s.kind != "parameter")
            del values
        inputs: dict[tuple[int, str], float] = {}
        outputs: dict[tuple[int, str], float] = {}
        for edge in graph.edges:
            inputs[edge.target, edge.value] = edge.bytes
            outputs[edge.source, edge.value] = edge.bytes
        for (index, _), size in inputs.items():
            graph.nodes[index].input_bytes += size
        for node in graph.nodes:
            if node.kind != INPUT:
                node.output_bytes = 0.0
        for (index, _), size in outputs.items():
            if graph.nodes[index].kind != INPUT:
                graph.nodes[index].output_bytes += size


def _module_state(module: nn.Module) -> dict[str, State]:
    found = {f"opaque {id(p)}": State("parameter", [], p, True) for p in module.parameters()}
    found.update({f"opaque {id(b)}": State("buffer", [], b, True) for b in module.buffers()})
    return found
