"""FTPipe's graph and its tracer's registry."""

from ligament.compat.autopipe.autopipe.model_profiling.control_flow_graph import (
    EdgeWeightFunction,
    Graph,
    Node,
    NodeTypes,
    NodeWeightFunction,
)
from ligament.compat.autopipe.autopipe.model_profiling.tracer import (
    register_new_explicit_untraced_function,
    register_new_traced_function,
    used_namespaces,
)

__all__ = [
    "EdgeWeightFunction",
    "Graph",
    "Node",
    "NodeTypes",
    "NodeWeightFunction",
    "register_new_explicit_untraced_function",
    "register_new_traced_function",
    "used_namespaces",
]
