"""The original's `pipe_model` on ours: the same names and calls; the graph with stage_id and gpu_id
comes back, and a Python file is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ligament.errors import InvalidError
from ligament.pipe import Plan, make_plan, profile, solver, trace

METHODS = {
    "ACYCLIC": "acyclic",
    "METIS": "metis",
    "2DBIN": "mixed",
    "MPIPE": "mixed",
    "PIPEDREAM": "contiguous",
}


@dataclass(slots=True)
class Node:
    """A block under the original's names."""

    id: int
    scope: str
    type: str
    stage_id: int
    gpu_id: int
    weight: tuple[float, float]
    num_parameters: int


class Graph:
    """What the original returns: nodes with their stage and GPU. `plan` is all that ours knows."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.model_name = plan.model_name

    @property
    def nodes(self) -> list[Node]:
        """All blocks, in a topological order."""
        return [
            Node(
                index,
                node.scope,
                node.kind.upper(),
                node.stage,
                node.device,
                (node.forward_ms, node.backward_ms),
                int(node.parameter_bytes // 4),
            )
            for index, node in enumerate(self.plan.graph.nodes)
        ]

    @property
    def num_partitions(self) -> int:
        """The number of stages."""
        return self.plan.stage_count

    def __len__(self) -> int:
        return len(self.plan.graph.nodes)


def pipe_model(  # noqa: PLR0913 - the original's call
    model: Any,
    batch_dim: int = 0,
    model_args: Sequence[Any] = (),
    model_kwargs: dict[str, Any] | None = None,
    n_iter: int = 10,
    nparts: int = 4,
    depth: int = 1000,
    basic_blocks: Sequence[Any] = (),
    node_weight_function: Callable[[Any], float] | None = None,
    edge_weight_function: Callable[[Any, Any], float] | None = None,
    use_layers_only_graph: bool = True,
    output_file: str | None = None,
    generate_explicit_del: bool = False,
    generate_activation_propagation: bool = True,
    recomputation: bool = False,
    partitioning_method: str = "ACYCLIC",
    METIS_opt: dict[str, Any] | None = None,
    acyclic_opt: dict[str, Any] | None = None,
    binpack_opt: dict[str, Any] | None = None,
    mpipe_opt: dict[str, Any] | None = None,
    use_graph_profiler: bool = True,
    use_network_profiler: bool = False,
    profile_ops: bool = True,
    profiles_cache_name: str = "",
    **unused: Any,
) -> Graph:
    """Traces, profiles and partitions `model`, writes `output_file` and returns the graph. Options
    that steered the original's heuristics are accepted; what they tuned is done by the library."""
    name = partitioning_method.upper()
    if name not in METHODS:
        raise InvalidError(f"partitioning_method is {partitioning_method!r}, none of {[*METHODS]}")
    method = "multilevel" if (acyclic_opt or {}).get("use_multilevel") else METHODS[name]
    args = tuple(model_args) if isinstance(model_args, (tuple, list)) else (model_args,)
    traced = trace(model, args, model_kwargs, depth=depth + 1, basic_blocks=tuple(basic_blocks))
    measured = use_graph_profiler or use_network_profiler
    how = (profiles_cache_name or None) if measured else "flops"
    profile(traced, how, iterations=n_iter, profile_ops=profile_ops)
    for node in traced.graph.nodes if node_weight_function else ():
        node.forward_ms, node.backward_ms, node.weight_ms = node_weight_function(node), 0.0, 0.0  # type: ignore[misc]
    for edge in traced.graph.edges if edge_weight_function else ():
        ends = traced.graph.nodes[edge.source], traced.graph.nodes[edge.target]
        edge.bytes = edge_weight_function(*ends)  # type: ignore[misc]
    seed = (METIS_opt or {}).get("seed", 0) or 0
    wanted = solver.options(stages=nparts, method=method, recompute=recomputation, seed=seed)
    plan = make_plan(traced, wanted)
    if output_file:
        path = Path(output_file)
        plan.write(path if path.suffix == ".py" else path.with_name(path.name + ".py"))
    return Graph(plan)
