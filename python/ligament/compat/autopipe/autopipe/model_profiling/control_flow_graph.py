"""FTPipe's graph of a model: nodes with scopes, profiles, stages and edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ligament.compat.autopipe.autopipe.model_profiling import contraction, graph_file
from ligament.compat.autopipe.autopipe.model_profiling.drawing import Drawing, draw
from ligament.compat.autopipe.autopipe.utils import layerDict, tensorDict
from ligament.errors import InvalidError

if TYPE_CHECKING:
    from ligament.pipe import Plan, Trace


class NodeTypes(IntEnum):
    """What a node represents. Ligament's graphs have IN, LAYER and OP."""

    IN = 1
    BUFF_PARAM = 2
    LAYER = 3
    OP = 4
    CONSTANT = 5
    PRIMITIVE = 6

    def __repr__(self) -> str:
        return self.name


class Node:
    """A block of the model."""

    # Everything but the edges; `graph_file` saves these.
    PLAIN = (
        "id",
        "scope",
        "type",
        "scope_to_hold_to",
        "topo_sort_id",
        "stage_id",
        "gpu_id",
        "weight",
        "max_memory_bytes",
        "num_parameters",
        "compound_edge_weights",
        "value_type",
        "tensor_dtype",
        "tensor_shape",
        "req_grad",
        "is_contiguous",
        "constant_value",
    )

    def __init__(self, node_type: Any, idx: Any, scope: str) -> None:
        self.type = node_type
        self.id = idx
        self.scope = scope
        self.scope_to_hold_to: str | None = None
        self.topo_sort_id = idx
        self.stage_id = 0
        self.gpu_id: int | None = None
        self.weight: Any = None
        self.max_memory_bytes: float = 0
        self.num_parameters = 0
        self.compound_edge_weights: dict[int, float] = defaultdict(float)
        self.value_type: Any = None
        self.tensor_dtype: Any = None
        self.tensor_shape: Any = None
        self.req_grad: Any = False
        self.is_contiguous: Any = None
        self.constant_value: Any = None
        self.args: list[Node] = []
        self.kwargs: dict[Node, list[str]] = defaultdict(list)
        self.out_edges: list[Node] = []

    def __repr__(self) -> str:
        return f"id: {self.id}, scope:{self.scope}, type:{self.type}"

    @property
    def in_edges(self) -> list[Node]:
        """The nodes whose values this one reads."""
        return [*self.args, *self.kwargs]

    def is_graph_input(self) -> bool:
        """Whether it is an argument of the model."""
        return self.type is NodeTypes.IN

    def add_arg(self, arg_node: Node) -> None:
        """Adds the next positional argument."""
        self.args.append(arg_node)

    def add_kwarg(self, kwarg: str, kwarg_node: Node) -> None:
        """Adds a keyword argument."""
        self.kwargs[kwarg_node].append(kwarg)

    def add_out_edge(self, dest_node: Node) -> None:
        """Adds `dest_node` as a reader of this node."""
        self.out_edges.append(dest_node)

    def remove_output(self, out_node: Node) -> None:
        """Removes `out_node` from the readers of this node."""
        self.out_edges.remove(out_node)

    def replace_input(self, original: Node, new: Node) -> None:
        """Replaces the input `original` by `new`."""
        if original not in self.in_edges:
            raise KeyError(f"node {self.id} does not read node {original.id}")
        self.args = [new if node is original else node for node in self.args]
        if original in self.kwargs:
            self.kwargs[new] = self.kwargs.pop(original)

    def remove_input(self, original: Node) -> None:
        """Removes the input `original`."""
        if original not in self.in_edges:
            raise KeyError(f"node {self.id} does not read node {original.id}")
        self.args = [node for node in self.args if node is not original]
        self.kwargs.pop(original, None)

    def maybe_create_compound_edge_weights(
        self, edge_weight_function: Callable[[Node, Node], float]
    ) -> bool:
        """Fills `compound_edge_weights` unless that was done; returns whether anything was
        added."""
        if self.compound_edge_weights or not self.out_edges:
            return False
        for node in self.out_edges:
            self.compound_edge_weights[node.id] = edge_weight_function(self, node)
        return True

    def state_dict(self) -> dict[str, Any]:
        """All attributes; edges as ids."""
        state: dict[str, Any] = {name: getattr(self, name) for name in self.PLAIN}
        state["compound_edge_weights"] = dict(self.compound_edge_weights)
        state["args"] = [node.id for node in self.args]
        state["kwargs"] = {node.id: list(words) for node, words in self.kwargs.items()}
        state["out_edges"] = [node.id for node in self.out_edges]
        return state

    def load_state(self, state: dict[str, Any], out_edges: Any, args: Any, kwargs: Any) -> Node:
        """The inverse of `state_dict`, with the nodes at the ends of its edges."""
        for name in self.PLAIN:
            setattr(self, name, state[name])
        self.compound_edge_weights = defaultdict(float, state["compound_edge_weights"])
        self.args, self.out_edges = list(args), list(out_edges)
        self.kwargs = defaultdict(list, kwargs)
        return self

    @classmethod
    def from_other(cls, other: Node) -> Node:
        """A copy with the same neighbours."""
        made = cls(other.type, other.id, other.scope)
        return made.load_state(other.state_dict(), other.out_edges, other.args, other.kwargs)


NodeWeightFunction = Callable[[Node], float]
EdgeWeightFunction = Callable[[Node, Node], float]


class Graph:
    """The graph of a model. `trace` is the Ligament trace it was created from and `plan` the plan
    of its stages; each is None if there is none (a graph from a file, or one that was edited)."""

    def __init__(
        self,
        nodes: dict[int, Node] | None,
        input_kw_ids: dict[int, str] | None,
        output_ids: list[int] | None,
        depth: int | None,
        basic_blocks: Any,
    ) -> None:
        self._nodes: dict[int, Node] = {} if nodes is None else nodes
        self.input_kw_ids = input_kw_ids or {}
        self.output_ids = output_ids or []
        self.depth = depth
        self.basic_blocks = basic_blocks
        self.trace: Trace | None = None
        self.plan: Plan | None = None

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, idx: int) -> Node:
        return self._nodes[idx]

    def __contains__(self, node_id: int) -> bool:
        return node_id in self._nodes

    @property
    def nodes(self) -> Iterable[Node]:
        """All nodes."""
        return self._nodes.values()

    @property
    def non_input_nodes(self) -> Iterator[Node]:
        """All nodes but the model's arguments."""
        return (node for node in self.nodes if node.type is not NodeTypes.IN)

    @property
    def inputs(self) -> Iterator[Node]:
        """The model's arguments."""
        return (node for node in self.nodes if node.type is NodeTypes.IN)

    @property
    def outputs(self) -> list[Node]:
        """The nodes that compute the model's results."""
        return [self._nodes[index] for index in self.output_ids]

    @property
    def output_scopes(self) -> list[str]:
        """The scopes of `outputs`."""
        return [node.scope for node in self.outputs]

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return len(self._nodes)

    @property
    def num_inputs(self) -> int:
        """The number of arguments."""
        return sum(1 for _ in self.inputs)

    @property
    def unique_partitions_ids(self) -> set[int]:
        """All stages."""
        return {node.stage_id for node in self.nodes}

    @property
    def num_partitions(self) -> int:
        """The number of stages."""
        return len(self.unique_partitions_ids)

    @property
    def n_stages(self) -> int:
        """The number of stages."""
        return self.num_partitions

    @property
    def model_name(self) -> str:
        """The class of the model."""
        return self.outputs[0].scope.split("/", maxsplit=1)[0]

    def asNetworkx(
        self,
        directed: bool = False,
        node_weight_function: NodeWeightFunction | None = None,
        edge_weight_function: EdgeWeightFunction | None = None,
    ) -> Any:
        """A networkx graph, weights as integers (1 without a function), without parallel edges."""
        import networkx

        made = networkx.DiGraph() if directed else networkx.Graph()
        for node in self.nodes:
            weight = node_weight_function(node) if node_weight_function else 1
            made.add_node(node.id, weight=int(weight))
        for node in self.nodes:
            for target in dict.fromkeys(node.out_edges):
                weight = edge_weight_function(node, target) if edge_weight_function else 1
                made.add_edge(node.id, target.id, weight=int(max(1, weight)))
        return made

    def build_dot(
        self,
        node_weight_function: NodeWeightFunction | None = None,
        edge_weight_function: EdgeWeightFunction | None = None,
    ) -> Drawing:
        """The graph in Graphviz's language: `source`, `save` and `render`."""
        return draw(self, node_weight_function, edge_weight_function)

    def save_as_pdf(
        self,
        file_name: str,
        directory: str,
        node_weight_function: NodeWeightFunction | None = None,
        edge_weight_function: EdgeWeightFunction | None = None,
    ) -> Graph:
        """Writes `directory/file_name.pdf`. Needs Graphviz's program `dot`."""
        drawing = self.build_dot(node_weight_function, edge_weight_function)
        drawing.format = "pdf"
        drawing.render(file_name, directory=directory, cleanup=True)
        return self

    def display(
        self,
        node_weight_function: NodeWeightFunction | None = None,
        edge_weight_function: EdgeWeightFunction | None = None,
    ) -> Drawing:
        """Shows the result of `build_dot` in a notebook."""
        return self.build_dot(node_weight_function, edge_weight_function)

    def serialize(self, path: str) -> None:
        """Writes the graph as JSON."""
        Path(path).write_text(graph_file.dumps(self.state()), "utf-8")

    @classmethod
    def deserialize(cls, path: str) -> Graph:
        """Reads what `serialize` wrote."""
        return cls.from_state(graph_file.read(Path(path), NodeTypes))

    def state(self) -> dict[str, Any]:
        """All attributes of the graph, as a dict."""
        return {
            "node_data": {node.id: node.state_dict() for node in self.nodes},
            "input_kw_ids": dict(self.input_kw_ids),
            "output_ids": list(self.output_ids),
            "depth": self.depth,
            "basic_blocks": self.basic_blocks,
        }

    def load_state(self, graph_state: dict[str, Any]) -> Graph:
        """The inverse of `state`."""
        states = [graph_state["node_data"][index] for index in sorted(graph_state["node_data"])]
        nodes = {s["id"]: Node(s["type"], s["id"], s["scope"]) for s in states}
        try:
            for state in states:
                nodes[state["id"]].load_state(
                    state,
                    [nodes[index] for index in state["out_edges"]],
                    [nodes[index] for index in state["args"]],
                    {nodes[index]: list(words) for index, words in state["kwargs"].items()},
                )
        except KeyError as error:
            raise InvalidError(f"not a graph: no node or attribute {error}") from None
        self._nodes = nodes
        self.input_kw_ids = dict(graph_state["input_kw_ids"])
        self.output_ids = list(graph_state["output_ids"])
        self.depth, self.basic_blocks = graph_state["depth"], graph_state["basic_blocks"]
        return self

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Graph:
        """A graph of `state`."""
        return cls(None, None, None, None, None).load_state(state)

    @classmethod
    def from_other(cls, graph: Graph) -> Graph:
        """A copy."""
        return cls.from_state(graph.state())

    def new_graph_without_constants(self) -> tuple[Graph, dict[int, int]]:
        """A copy, and the map from its ids to this graph's. Nothing is omitted: constants have no
        nodes."""
        return Graph.from_other(self), {index: index for index in self._nodes}

    def layers_graph(self) -> tuple[Graph, dict[int, int]]:
        """Like `new_graph_without_constants`."""
        return self.new_graph_without_constants()

    def induce_layer_partition(self, layers_graph: Graph, layers_to_original: Any) -> Graph:
        """Copies the stages of a layers graph."""
        for index, original in layers_to_original.items():
            node, source = self._nodes[original], layers_graph[index]
            node.stage_id, node.gpu_id = source.stage_id, source.gpu_id
        return self

    def get_copy_without_parallel_edges(self) -> Graph:
        """A copy in which a node reads another one at most once."""
        made = Graph.from_other(self)
        for node in made.nodes:
            node.args = sorted({*node.in_edges} - {node}, key=lambda n: n.id)
            node.kwargs.clear()
            node.out_edges = sorted({*node.out_edges} - {node}, key=lambda n: n.id)
        return made

    def split_to_stages(self) -> dict[int, Graph]:
        """One graph for each stage; the values that it receives are its inputs."""
        return contraction.split(self)

    def merge(
        self,
        uid: int,
        vid: int,
        edge_weight_function: EdgeWeightFunction,
        dynamic_topo_sort: bool = False,
        uf: Any = None,
        partial_uf: Any = None,
    ) -> None:
        """Merges node `vid` into its producer `uid`, which must not create a cycle."""
        contraction.merge(self, self._nodes[uid], self._nodes[vid], edge_weight_function)

    def topo_sort(
        self, verbose: bool = False, change_graph: bool = True, resort_edges: bool = False
    ) -> None:
        """Sets `topo_sort_id`; with `change_graph` the ids become those, unless they already are a
        topological order."""
        contraction.sort(self, change_graph)

    def forward_dfs_and_check_if_in_set(
        self, source: Node, set_to_check: set[Node], depth_limit: int | None = None
    ) -> bool:
        """Whether a path of at most `depth_limit` edges leads from `source` to one of the nodes."""
        return contraction.reaches(source, set_to_check, depth_limit or len(self))

    def selfcheck(self) -> Graph:
        """Raises InvalidError if an edge has one end only or leads to a lower id."""
        for node in self.nodes:
            for reader in node.out_edges:
                if reader.id <= node.id or node not in reader.in_edges:
                    raise InvalidError(f"invalid edge from node {node.id} to node {reader.id}")
            for source in node.in_edges:
                if node not in source.out_edges:
                    raise InvalidError(f"invalid edge from node {source.id} to node {node.id}")
        return self

    def calculate_params_per_node(self, model: nn.Module) -> None:
        """Sets `num_parameters` of layers and parameters."""
        layers = layerDict(model, self.depth or 1000, self.basic_blocks or ())
        tensors: dict[str, Tensor] = tensorDict(model)
        for node in self.nodes:
            if node.scope in layers:
                node.num_parameters = sum(p.numel() for p in layers[node.scope].parameters())
            elif node.scope in tensors:
                node.num_parameters = tensors[node.scope].numel()
