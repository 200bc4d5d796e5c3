"""Pipeline partitioning: partitions a PyTorch model into stages that compute the same bits.

    plan = pipe_model(model, (batch,), stages=4)
    print(plan.report()); plan.check(); plan.write("stages.py"); plan.draw("plan.html")

`trace`, `profile` and `partition` are the steps. Importing this package imports torch.
"""

from __future__ import annotations

from ligament.errors import missing

try:
    import torch  # noqa: F401
except ImportError as error:
    raise missing(error, "ligament.pipe") from None

from ligament.pipe.costs.profile import profile
from ligament.pipe.graph.blocks import Edge, Graph, Node
from ligament.pipe.graph.trace import Trace, trace
from ligament.pipe.plan import Plan, make_plan, pipe_model
from ligament.pipe.report.report import Report, Timeline
from ligament.pipe.solver import partition

__all__ = [
    "Edge",
    "Graph",
    "Node",
    "Plan",
    "Report",
    "Timeline",
    "Trace",
    "make_plan",
    "partition",
    "pipe_model",
    "profile",
    "trace",
]


def __dir__() -> list[str]:
    return sorted(__all__)
