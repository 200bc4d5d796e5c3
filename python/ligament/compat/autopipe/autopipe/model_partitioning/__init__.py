"""FTPipe's partitioning methods and weight functions."""

from ligament.compat.autopipe.autopipe.model_partitioning.calls import (
    METIS_partition,
    acyclic_partition,
    metis_partition,
    partition_2dbin_pack,
    partition_mpipe,
    partition_pipedream,
)
from ligament.compat.autopipe.autopipe.model_partitioning.heuristics import get_weight_functions

__all__ = [
    "METIS_partition",
    "acyclic_partition",
    "get_weight_functions",
    "metis_partition",
    "partition_2dbin_pack",
    "partition_mpipe",
    "partition_pipedream",
]
