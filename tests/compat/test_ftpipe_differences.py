"""What differs from FTPipe: one test for each of its rows in docs/compat.md."""

from __future__ import annotations

from pathlib import Path

import torch
from ligament.compat import autopipe


class Scaled(torch.nn.Module):
    """A constant, an operation and a string argument, which FTPipe's tracer takes for nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, *, scale: float = 2.0) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)) * scale)  # type: ignore[no-any-return]


def test_graph(tmp_path: Path) -> None:
    graph = autopipe.pipe_model(
        Scaled(),
        0,
        model_args=(torch.randn(2, 4),),
        model_kwargs={"scale": 3.0},
        nparts=2,
        output_file=str(tmp_path / "scaled"),
        n_iter=1,
    )
    scopes = [node.scope for node in graph.nodes if node.scope.startswith("Scaled/")]
    assert scopes == [
        "Scaled/Linear[first]",
        "Scaled/torch::relu",
        "Scaled/torch::mul",
        "Scaled/Linear[second]",
    ]
    assert not any(str(node.type).endswith("CONSTANT") for node in graph.nodes)
    assert graph.plan.check() is not None
