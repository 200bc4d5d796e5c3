"""On a GPU, where there is one: measured by its own clock, equal to the original there."""

from __future__ import annotations

import pytest
import torch
from ligament.pipe import pipe_model, profile, trace
from ligament.pipe.graph import flatten_arguments
from pipe_models import OWN, REAL, make

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("name", [*REAL, *OWN])
def test_equal_on_the_gpu(name: str) -> None:
    case = make(name)
    case.model.cuda().train()
    flat = flatten_arguments.flatten((case.args, case.kwargs))
    # Lengths of packed sequences stay on the host.
    moved = [t if name == "packed lstm" and t.dim() == 1 else t.cuda() for t in flat.tensors]
    args, kwargs = flatten_arguments.unflatten(flat.shape, moved)
    plan = pipe_model(case.model, args, kwargs, stages=3, say=lambda line: None)
    result = plan.check()
    assert set(result.close) <= {"shared.weight"} and result.traced < 1e-5


def test_every_figure_is_measured() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)).cuda()
    graph = profile(trace(model, (torch.randn(32, 64, device="cuda"),)), iterations=3).graph
    for node in graph.nodes:
        if node.kind == "layer":
            assert node.forward_ms > 0 and node.backward_ms > 0
            assert node.forward_memory >= node.output_bytes
            assert node.backward_memory >= node.parameter_bytes


def test_a_model_on_the_host_is_measured_on_the_gpu() -> None:
    case = make("bert")
    traced = profile(trace(*case), device="cuda", iterations=2)
    assert sum(node.forward_ms for node in traced.graph.nodes) > 0
    assert all(p.device.type == "cpu" for p in case.model.parameters())
