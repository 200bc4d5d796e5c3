"""The original's call on ours."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from ligament.compat import autopipe
from ligament.errors import InvalidError
from pipe_models import make


@pytest.mark.parametrize("method", ["ACYCLIC", "METIS", "MPIPE", "2DBIN", "PIPEDREAM"])
def test_every_method_of_the_original(method: str, tmp_path: Path) -> None:
    case = make("gpt2")
    graph = autopipe.pipe_model(
        case.model,
        0,
        model_args=case.args,
        model_kwargs=case.kwargs,
        n_iter=1,
        nparts=2,
        partitioning_method=method,
        output_file=str(tmp_path / "gpt2_2p"),
        use_graph_profiler=False,
        save_memory_mode=False,
        trace_on_gpu=False,
    )
    assert {node.gpu_id for node in graph.nodes} == {0, 1}
    assert graph.num_partitions == len({node.stage_id for node in graph.nodes})
    written = runpy.run_path(str(tmp_path / "gpt2_2p.py"))
    assert len(written["STAGES"]) == graph.num_partitions
    assert graph.plan.check() is not None


def test_weight_functions_and_bad_method() -> None:
    case = make("branch")
    graph = autopipe.pipe_model(
        case.model,
        model_args=case.args,
        nparts=2,
        node_weight_function=lambda node: 100.0 if node.kind == "opaque" else 1.0,
        edge_weight_function=lambda u, v: 7.0,
        use_graph_profiler=False,
    )
    heavy = next(n for n in graph.nodes if n.type == "OPAQUE")
    assert heavy.weight == (100.0, 0.0) and len(graph) == len(graph.nodes)
    with pytest.raises(InvalidError, match="partitioning_method is 'BEST'"):
        autopipe.pipe_model(case.model, model_args=case.args, partitioning_method="BEST")


def test_an_unchanged_script_runs(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "from autopipe import pipe_model\n"
        "model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)])\n"
        "graph = pipe_model(model, 0, model_args=(torch.randn(2, 8),), n_iter=1, nparts=2,\n"
        "                   output_file='stages')\n"
        "print(sorted({n.stage_id for n in graph.nodes}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "ligament.compat", str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[0, 1]" and (tmp_path / "stages.py").exists()
