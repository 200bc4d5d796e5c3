"""FTPipe's methods as functions over a profiled graph. Options that are not listed here controlled
its heuristics and have no effect."""

from __future__ import annotations

from typing import Any

from ligament.compat.autopipe.autopipe.model_partitioning.methods import Wanted, partition
from ligament.compat.autopipe.autopipe.model_partitioning.stage_to_device import (
    gen_stage_to_device_map,
)
from ligament.compat.autopipe.autopipe.model_profiling.control_flow_graph import Graph


def acyclic_partition(
    model: Any,
    graph: Graph,
    k: int,
    epsilon: float = 0.1,
    node_weight_function: Any = None,
    edge_weight_function: Any = None,
    constraint: Any = None,
    objective: Any = None,
    meta_algorithm: Any = None,
    maximum_constraint_value: float | None = None,
    rounds: int = 10,
    allocated_seconds: int = 20,
    use_layers_graph: bool = True,
) -> Graph:
    """Stages without cycles between them, one on each device."""
    opt = {
        "epsilon": epsilon,
        "constraint": constraint,
        "objective": objective,
        "meta_algorithm": meta_algorithm,
        "maximum_constraint_value": maximum_constraint_value,
    }
    wanted = Wanted(k, "acyclic", acyclic_opt=opt)
    return partition(graph, wanted, node_weight_function, edge_weight_function)


def metis_partition(
    graph: Graph,
    num_partitions: int,
    node_weight_function: Any = None,
    edge_weight_function: Any = None,
    use_layers_only_graph: bool = True,
    use_virtual_stages: bool = True,
    **METIS_opts: Any,
) -> Graph:
    """Bins of libmetis, then stages."""
    wanted = Wanted(num_partitions, "metis", METIS_opt=METIS_opts)
    return partition(graph, wanted, node_weight_function, edge_weight_function)


METIS_partition = metis_partition


def partition_2dbin_pack(
    graph: Graph,
    num_gpus: int,
    n_clusters: int = 2,
    node_weight_function: Any = None,
    **options: Any,
) -> tuple[Graph, list[int]]:
    """Several stages on a device; the graph, and the device of each stage."""
    partition(graph, Wanted(num_gpus, "2dbin"), node_weight_function, None)
    return graph, gen_stage_to_device_map(graph)


def partition_mpipe(
    model: Any,
    graph: Graph,
    num_gpus: int,
    node_weight_function: Any = None,
    edge_weight_function: Any = None,
    **options: Any,
) -> tuple[Graph, list[int]]:
    """Mixed-Pipe: several stages on a device; the graph, and the device of each stage."""
    partition(graph, Wanted(num_gpus, "mpipe"), node_weight_function, edge_weight_function)
    return graph, gen_stage_to_device_map(graph)


def partition_pipedream(
    graph: Graph,
    num_gpus: int,
    node_weight_function: Any = None,
    edge_weight_function: Any = None,
    **options: Any,
) -> Graph:
    """Intervals of the topological order, one on each device."""
    wanted = Wanted(num_gpus, "pipedream")
    return partition(graph, wanted, node_weight_function, edge_weight_function)
