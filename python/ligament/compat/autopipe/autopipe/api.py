"""FTPipe's entry points: trace and profile a model, partition it, write its stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from ligament.compat.autopipe.autopipe.compiler import compile_partitioned_model
from ligament.compat.autopipe.autopipe.model_partitioning.methods import (
    Wanted,
    partition,
    partition_async,
)
from ligament.compat.autopipe.autopipe.model_profiling.control_flow_graph import Graph
from ligament.compat.autopipe.autopipe.model_profiling.from_trace import make_graph, set_weights
from ligament.errors import MismatchError
from ligament.pipe import profile, trace

__all__ = [
    "build_profiled_graph",
    "compile_partitioned_model",
    "partition_model",
    "partition_profiled_graph",
    "pipe_model",
]


def pipe_model(
    model: nn.Module,
    batch_dim: int,
    model_args: Any = (),
    model_kwargs: dict[str, Any] | None = None,
    n_iter: int = 10,
    nparts: int = 4,
    depth: int = 1000,
    basic_blocks: Any = None,
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
    force_no_recomp_scopes: Callable[[str], bool] | None = None,
    save_memory_mode: bool = False,
    trace_on_gpu: bool = False,
    use_graph_profiler: bool = True,
    use_network_profiler: bool = False,
    profile_ops: bool = True,
    graph: Graph | None = None,
    async_pipe: bool = False,
    trace_cache_name: str | None = None,
    profiles_cache_name: str | None = None,
    dont_use_async_meta_alg: bool = False,
) -> Graph:
    """Partitions `model`, writes its stages to a file and returns the graph. The parameters are
    described in docs/compat.md."""
    made = partition_model(
        model,
        model_args=model_args,
        model_kwargs=model_kwargs,
        n_iter=n_iter,
        nparts=nparts,
        max_depth=depth,
        basic_blocks=basic_blocks,
        node_weight_function=node_weight_function,
        edge_weight_function=edge_weight_function,
        use_layers_only_graph=use_layers_only_graph,
        recomputation=recomputation,
        partitioning_method=partitioning_method,
        METIS_opt=METIS_opt,
        acyclic_opt=acyclic_opt,
        binpack_opt=binpack_opt,
        mpipe_opt=mpipe_opt,
        force_no_recomp_scopes=force_no_recomp_scopes,
        use_graph_profiler=use_graph_profiler,
        use_network_profiler=use_network_profiler,
        profile_ops=profile_ops,
        save_memory_mode=save_memory_mode,
        trace_on_gpu=trace_on_gpu,
        graph=graph,
        async_pipe=async_pipe,
        trace_cache_name=trace_cache_name,
        profiles_cache_name=profiles_cache_name,
        dont_use_async_meta_alg=dont_use_async_meta_alg,
    )
    compile_partitioned_model(
        made,
        model,
        batch_dim,
        generate_explicit_del=generate_explicit_del,
        generate_activation_propagation=generate_activation_propagation,
        output_file=output_file,
    )
    return made


def partition_model(
    model: nn.Module,
    model_args: Any = (),
    model_kwargs: dict[str, Any] | None = None,
    n_iter: int = 10,
    nparts: int = 4,
    max_depth: int = 100,
    basic_blocks: Any = None,
    node_weight_function: Callable[[Any], float] | None = None,
    edge_weight_function: Callable[[Any, Any], float] | None = None,
    use_layers_only_graph: bool = True,
    recomputation: bool = True,
    partitioning_method: str = "ACYCLIC",
    METIS_opt: dict[str, Any] | None = None,
    acyclic_opt: dict[str, Any] | None = None,
    binpack_opt: dict[str, Any] | None = None,
    mpipe_opt: dict[str, Any] | None = None,
    force_no_recomp_scopes: Callable[[str], bool] | None = None,
    use_graph_profiler: bool = True,
    use_network_profiler: bool = False,
    profile_ops: bool = True,
    save_memory_mode: bool = False,
    trace_on_gpu: bool = False,
    graph: Graph | None = None,
    use_virtual_stages: bool = True,
    async_pipe: bool = False,
    trace_cache_name: str | None = None,
    profiles_cache_name: str | None = None,
    dont_use_async_meta_alg: bool = False,
) -> Graph:
    """Traces, profiles and partitions `model`; `graph` is one to partition again."""
    wanted = Wanted(nparts, partitioning_method, acyclic_opt or {}, METIS_opt or {}, recomputation)
    wanted.options()  # rejects invalid arguments before the model is measured
    if graph is None or graph.trace is None:
        made = build_profiled_graph(
            model,
            model_args,
            model_kwargs,
            use_network_profiler=use_network_profiler,
            use_graph_profiler=use_graph_profiler and graph is None,
            profile_ops=profile_ops,
            recomputation=recomputation,
            n_iter=n_iter,
            max_depth=max_depth,
            basic_blocks=basic_blocks,
            force_no_recomp_scopes=force_no_recomp_scopes,
            profiles_cache_name=profiles_cache_name,
        )
        graph = made if graph is None else _with_figures_of(graph, made)
    two_profiles = async_pipe and recomputation and not dont_use_async_meta_alg
    call = partition_async if two_profiles else partition
    return call(graph, wanted, node_weight_function, edge_weight_function)


def build_profiled_graph(
    model: nn.Module,
    model_args: Any = (),
    model_kwargs: dict[str, Any] | None = None,
    use_network_profiler: bool = False,
    use_graph_profiler: bool = True,
    save_memory_mode: bool = False,
    trace_on_gpu: bool = False,
    profile_ops: bool = True,
    recomputation: bool = False,
    n_iter: int = 10,
    max_depth: int = 1000,
    basic_blocks: Any = None,
    force_no_recomp_scopes: Callable[[str], bool] | None = None,
    trace_cache_name: str | None = None,
    profiles_cache_name: str | None = None,
) -> Graph:
    """The graph of a model with the times of its nodes, measured, or estimated if no profiler is
    requested."""
    args = tuple(model_args) if isinstance(model_args, (tuple, list)) else (model_args,)
    blocks = tuple(basic_blocks or ())
    # FTPipe's depth 0 is the model's own children, Ligament's is 1.
    traced = trace(model, args, model_kwargs, depth=max_depth + 1, basic_blocks=blocks)
    measured = use_graph_profiler or use_network_profiler
    how = (profiles_cache_name or None) if measured else "flops"
    profile(traced, how, iterations=n_iter, profile_ops=profile_ops)
    graph = make_graph(traced, max_depth, blocks)
    keep = force_no_recomp_scopes or (lambda scope: False)
    set_weights(graph, lambda scope: recomputation and not keep(scope))
    return graph


def partition_profiled_graph(
    graph: Graph,
    model: nn.Module,
    nparts: int,
    partitioning_method: str,
    node_weight_function: Callable[[Any], float] | None,
    edge_weight_function: Callable[[Any, Any], float] | None,
    use_virtual_stages: bool = True,
    use_layers_only_graph: bool = True,
    METIS_opt: dict[str, Any] | None = None,
    acyclic_opt: dict[str, Any] | None = None,
    binpack_opt: dict[str, Any] | None = None,
    mpipe_opt: dict[str, Any] | None = None,
) -> Graph:
    """Partitions a profiled graph."""
    wanted = Wanted(nparts, partitioning_method, acyclic_opt or {}, METIS_opt or {})
    return partition(graph, wanted, node_weight_function, edge_weight_function)


def _with_figures_of(old: Graph, made: Graph) -> Graph:
    """The graph `made`, with the times of a graph that has no trace, such as one from a file."""
    if [node.scope for node in old.nodes] != [node.scope for node in made.nodes]:
        raise MismatchError("the graph belongs to another model: the scopes of its nodes differ")
    assert made.trace is not None
    for before, node, block in zip(old.nodes, made.nodes, made.trace.graph.nodes, strict=False):
        node.weight = before.weight
        block.forward_ms, block.backward_ms = before.weight
        block.weight_ms = min(block.weight_ms, block.backward_ms)
    return made
