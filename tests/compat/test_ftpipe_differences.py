"""What differs from FTPipe: one test for each of its rows in docs/compat.md."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from ftpipe_models import SAMPLE, Deep, load
from ligament.compat.autopipe import pipe_model
from ligament.compat.autopipe.autopipe.model_profiling import NodeTypes


class Scaled(torch.nn.Module):
    """A constant, an operation, a bare parameter and a keyword argument."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.bare = torch.nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor, *, scale: float = 2.0) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)) * scale + self.bare)  # type: ignore[no-any-return]


def test_graph(tmp_path: Path) -> None:
    graph = pipe_model(
        Scaled(),
        0,
        model_args=(torch.randn(2, 4),),
        model_kwargs={"scale": 3.0},
        nparts=2,
        output_file=str(tmp_path / "scaled"),
        use_graph_profiler=False,
    )
    assert [node.scope for node in graph.nodes] == [
        "input0",
        "Scaled/Linear[first]",
        "Scaled/torch::relu_2",
        "Scaled/torch::mul_3",
        "Scaled/torch::add_4",
        "Scaled/Linear[second]",
    ]
    assert {node.type for node in graph.nodes} == {NodeTypes.IN, NodeTypes.LAYER, NodeTypes.OP}
    assert graph.plan is not None and graph.plan.check().gradients == 5


def test_search(tmp_path: Path) -> None:
    def stages(**options: object) -> list[int]:
        graph = pipe_model(
            Deep(),
            0,
            **SAMPLE,
            nparts=2,
            output_file=str(tmp_path / "deep"),
            use_graph_profiler=False,
            **options,  # type: ignore[arg-type]
        )
        return [node.stage_id for node in graph.nodes]

    assert stages(acyclic_opt={"rounds": 1, "allocated_seconds": 0}) == stages()
    attempts = {"METIS_opt": {"attempts": 7}, "partitioning_method": "metis"}
    assert stages(**attempts) == stages(partitioning_method="metis")
    lists = {"mpipe_opt": {"L_list": [9]}, "partitioning_method": "mpipe"}
    assert stages(**lists) == stages(partitioning_method="mpipe")
    assert stages(node_weight_function=lambda node: 1.0) != stages()


def test_batch(tmp_path: Path) -> None:
    class Padded(torch.nn.Module):
        """Makes a tensor of the batch's size."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(5, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            return self.second(torch.cat([x, torch.zeros(x.size(0), 1)], dim=1))  # type: ignore[no-any-return]

    path = tmp_path / "padded"
    options = {"nparts": 2, "use_graph_profiler": False, "output_file": str(path)}
    pipe_model(Padded(), 0, (torch.randn(3, 4),), **options)
    module = load(path.with_suffix(".py"))
    assert module.create_pipeline_configuration(batch_size=3)["model_inputs"]
    with pytest.raises(ValueError, match="batches of 3 only"):
        module.create_pipeline_configuration(batch_size=4)
