"""FTPipe's package of the partitioner."""

from ligament.compat.autopipe.autopipe.compiler import compile_partitioned_model
from ligament.compat.autopipe.autopipe.model_partitioning import (
    METIS_partition,
    acyclic_partition,
    get_weight_functions,
    metis_partition,
    partition_2dbin_pack,
    partition_mpipe,
)
from ligament.compat.autopipe.autopipe.model_profiling import (
    EdgeWeightFunction,
    Graph,
    Node,
    NodeWeightFunction,
)
from ligament.compat.autopipe.autopipe.utils import ExecTimes, FullExecTimes, move_tensors

__all__ = [
    "EdgeWeightFunction",
    "ExecTimes",
    "FullExecTimes",
    "Graph",
    "METIS_partition",
    "Node",
    "NodeWeightFunction",
    "acyclic_partition",
    "compile_partitioned_model",
    "get_weight_functions",
    "metis_partition",
    "move_tensors",
    "partition_2dbin_pack",
    "partition_mpipe",
]
