"""Writing the stages of a partitioned graph as FTPipe does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ligament.compat.autopipe.autopipe.compiler.batches import any_batch, batched_values
from ligament.compat.autopipe.autopipe.compiler.configuration import Configuration, batch_of
from ligament.compat.autopipe.autopipe.compiler.routes import find_routes
from ligament.compat.autopipe.autopipe.model_partitioning.methods import Wanted, judged
from ligament.compat.autopipe.autopipe.model_profiling.control_flow_graph import Graph
from ligament.errors import InvalidError


def compile_partitioned_model(
    graph: Graph,
    model: Any,
    batch_dim: int,
    generate_explicit_del: bool = False,
    generate_activation_propagation: bool = True,
    output_file: str | None = None,
) -> str:
    """Writes the stages given by the nodes' stage_id, with `create_pipeline_configuration`, and
    returns the path: `output_file`, or generated_{model}{stages}.py."""
    if graph.trace is None or graph.trace.program.model is not model:
        raise InvalidError("the graph was not traced from this model: call build_profiled_graph")
    before = graph.plan
    wanted = Wanted(before.options.stages if before else max(graph.unique_partitions_ids) + 1)
    wanted.recomputation = before.options.recompute if before else False
    plan = judged(graph, wanted, str(before.answer["method"]) if before else "given")
    batch = batch_of(graph, batch_dim)
    with any_batch(plan.program, batch_dim, batch):
        source = plan.source()
    graph.plan = plan
    batched = batched_values(plan, batch_dim, batch) if batch else None
    routes = find_routes(graph, generate_activation_propagation)
    text = source + "\n\n" + Configuration(graph, routes, batch_dim, batched).text()
    name = output_file or f"generated_{type(model).__name__}{plan.stage_count}"
    path = Path(name.removesuffix(".py") + ".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return str(path)
