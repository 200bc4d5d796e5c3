"""FTPipe's module tree under `python -m ligament.compat`, with and without a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TREE = {
    "autopipe": "pipe_model",
    "autopipe.autopipe": "get_weight_functions METIS_partition metis_partition acyclic_partition "
    "partition_2dbin_pack partition_mpipe compile_partitioned_model Graph Node NodeWeightFunction "
    "EdgeWeightFunction move_tensors ExecTimes FullExecTimes",
    "autopipe.autopipe.api": "pipe_model partition_model build_profiled_graph "
    "partition_profiled_graph compile_partitioned_model",
    "autopipe.autopipe.utils": "layerDict tensorDict move_tensors nested_map flatten unflatten "
    "traverse_model traverse_params_buffs special_traverse_model convert_none_checks",
    "autopipe.autopipe.compiler": "compile_partitioned_model",
    "autopipe.autopipe.model_profiling": "Graph Node NodeTypes NodeWeightFunction "
    "EdgeWeightFunction register_new_traced_function register_new_explicit_untraced_function "
    "used_namespaces",
    "autopipe.autopipe.model_profiling.control_flow_graph": "Graph Node NodeTypes "
    "NodeWeightFunction EdgeWeightFunction",
    "autopipe.autopipe.model_profiling.tracer": "register_new_traced_function "
    "register_new_explicit_untraced_function",
    "autopipe.autopipe.model_partitioning": "get_weight_functions acyclic_partition",
    "autopipe.autopipe.model_partitioning.acyclic": "Objective META_ALGORITH Constraint ALGORITHM",
    "autopipe.autopipe.model_partitioning.heuristics": "NodeWeightFunction EdgeWeightFunction "
    "NodeWeightFunctionWithRatioAutoInfer NodeMemoryEstimator",
    "autopipe.autopipe.model_partitioning.mixed_pipe.partition_mixed_pipe_v1_clusters": ""
    "ReminderPolicy SecondAndOnClusterPolicy",
    "autopipe.autopipe.model_partitioning.stage_to_device": "sorted_stage_to_device_map",
    "autopipe.cmd_parser": "Parser",
    "autopipe.tasks": "register_task get_parser_and_partitioner Parser PartitioningTask",
    "autopipe.tasks.partitioning_task": "PartitioningTask",
    "autopipe.partition": "parse_cli main",
}
# Of a checkout: an engine that must not run, and modules that Ligament does not have.
CHECKOUT = {
    "autopipe/__init__.py": "raise SystemExit('the original package ran')",
    "autopipe/autopipe/__init__.py": "raise SystemExit('the original engine ran')",
    "autopipe/autopipe/api.py": "raise SystemExit('the original engine ran')",
    "autopipe/autopipe/union_find.py": "from .utils import ExecTimes\nword = 'theirs'",
    "autopipe/analysis/__init__.py": "from ..autopipe.utils import layerDict\nword = 'theirs'",
    "autopipe/partition.py": "raise SystemExit('the original command ran')",
    "autopipe/tasks/__init__.py": "raise SystemExit('the original tasks ran')",
    "models/__init__.py": "",
    "models/normal.py": "from torch import nn\n"
    "model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])",
}


def run(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(script)
    command = [sys.executable, "-m", "ligament.compat", str(folder / "script.py")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


def checkout(folder: Path) -> Path:
    for name, text in CHECKOUT.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return folder


IMPORTS = "".join(
    f"from {module} import {', '.join(names.split())}\n" for module, names in TREE.items()
)
SAME = """
import sys
import autopipe.autopipe.model_profiling as one
import ligament.compat.autopipe.autopipe.model_profiling as other
assert one is other and one.Graph is Graph
"""


def test_every_name_is_there_without_a_checkout(tmp_path: Path) -> None:
    script = (
        "try:\n"
        "    import autopipe.autopipe.union_find\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error)\n"
    )
    done = run(IMPORTS + SAME + "print(pipe_model.__module__)\n" + script, tmp_path)
    assert done.returncode == 0, done.stderr
    module, error = done.stdout.splitlines()
    assert module == "ligament.compat.autopipe.autopipe.api"
    assert error == "No module named 'autopipe.autopipe.union_find'"


def test_a_checkout_provides_what_is_not_the_engine(tmp_path: Path) -> None:
    script = (
        IMPORTS
        + SAME
        + (
            "import torch, autopipe.analysis, autopipe.autopipe.union_find\n"
            "from autopipe.autopipe.utils import ExecTimes\n"
            "from models.normal import model\n"
            "assert autopipe.autopipe.union_find.ExecTimes is ExecTimes\n"
            "assert autopipe.analysis.layerDict is layerDict\n"
            "graph = pipe_model(model, 0, (torch.randn(2, 4),), nparts=2, n_iter=1)\n"
            "words = autopipe.analysis.word, autopipe.autopipe.union_find.word\n"
            "print(*words, graph.num_partitions)\n"
        )
    )
    found = checkout(tmp_path / "checkout")
    done = run(script, tmp_path, PYTHONPATH=str(found))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "theirs theirs 2\n"
    assert (tmp_path / "generated_Sequential2.py").exists()
