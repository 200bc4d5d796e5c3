"""FTPipe's `pipe_model` and its steps: every parameter."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from ftpipe_models import SAMPLE, Block, Deep
from ligament.compat.autopipe import autopipe, pipe_model
from ligament.compat.autopipe.autopipe import api
from ligament.compat.autopipe.autopipe.model_partitioning.acyclic import (
    META_ALGORITH,
    Constraint,
    Objective,
)
from ligament.compat.autopipe.autopipe.model_profiling import Graph, Node, NodeTypes
from ligament.errors import InvalidError, MismatchError, UnsupportedError

ROOT = Path(__file__).resolve().parents[2]
# The original's, in its order; `...` where there is no default.
PARAMETERS: dict[str, Any] = {
    "model": ...,
    "batch_dim": ...,
    "model_args": (),
    "model_kwargs": None,
    "n_iter": 10,
    "nparts": 4,
    "depth": 1000,
    "basic_blocks": None,
    "node_weight_function": None,
    "edge_weight_function": None,
    "use_layers_only_graph": True,
    "output_file": None,
    "generate_explicit_del": False,
    "generate_activation_propagation": True,
    "recomputation": False,
    "partitioning_method": "ACYCLIC",
    "METIS_opt": None,
    "acyclic_opt": None,
    "binpack_opt": None,
    "mpipe_opt": None,
    "force_no_recomp_scopes": None,
    "save_memory_mode": False,
    "trace_on_gpu": False,
    "use_graph_profiler": True,
    "use_network_profiler": False,
    "profile_ops": True,
    "graph": None,
    "async_pipe": False,
    "trace_cache_name": None,
    "profiles_cache_name": None,
    "dont_use_async_meta_alg": False,
}
NO_EFFECT = {
    "use_layers_only_graph": False,
    "generate_explicit_del": True,
    "binpack_opt": {"n_clusters": 3},
    "mpipe_opt": {"L_list": [4], "special_blocks": (Block,)},
    "save_memory_mode": True,
    "trace_on_gpu": True,
    "trace_cache_name": "trace",
}


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def piped(model: torch.nn.Module | None = None, **options: Any) -> Graph:
    """Estimated costs, so that equal calls give equal plans."""
    given = {"nparts": 2, "use_graph_profiler": False, **SAMPLE, **options}
    return pipe_model(model or Deep(), 0, **given)


def stages(graph: Graph) -> list[tuple[int, int | None]]:
    return [(node.stage_id, node.gpu_id) for node in graph.nodes]


def documented() -> dict[str, str]:
    """parameter -> works, no effect or refused, of the table in docs/compat.md."""
    text = (ROOT / "docs/compat.md").read_text("utf-8")
    body = text.partition("\n### Parameters of pipe_model\n")[2].partition("\n##")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([a-z ]+) \| (.+) \|$", body, re.M)
    assert all(reason.strip() for _, _, reason in rows)
    return {name: effect.strip() for name, effect, _ in rows}


def test_the_signature_is_the_original_s() -> None:
    found = inspect.signature(pipe_model).parameters.values()
    empty = inspect.Parameter.empty
    defaults = {p.name: ... if p.default is empty else p.default for p in found}
    assert list(defaults.items()) == list(PARAMETERS.items()) and len(defaults) == 31
    assert {p.kind for p in found} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    with pytest.raises(TypeError, match="nprats"):
        piped(nprats=2)


def test_the_documented_effects_are_those_of_the_tests() -> None:
    table = documented()
    assert list(table) == list(PARAMETERS)
    assert {name for name, effect in table.items() if effect == "no effect"} == {*NO_EFFECT}
    assert {*table.values()} <= {"works", "in part", "no effect"}


@pytest.mark.parametrize("name", NO_EFFECT)
def test_a_parameter_without_effect(name: str) -> None:
    assert stages(piped(**{name: NO_EFFECT[name]})) == stages(piped())
    assert not Path("trace").exists()


def test_defaults_write_a_file_named_after_the_model() -> None:
    model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(6)])
    graph = pipe_model(model, 0, (torch.randn(2, 4),), basic_blocks=None, n_iter=1)
    assert graph.num_partitions == 4
    assert [path.name for path in Path().iterdir()] == ["generated_Sequential4.py"]
    assert graph.plan is not None and graph.plan.check().outputs == 1


@pytest.mark.parametrize("name", ["out/deep", "deep.py"])
def test_output_file(name: str) -> None:
    piped(output_file=name)
    assert [str(path) for path in Path().rglob("*.py")] == [name.removesuffix(".py") + ".py"]


@pytest.mark.parametrize("method", ["ACYCLIC", "METIS", "MPIPE", "2DBIN", "PIPEDREAM", "metis"])
def test_every_method(method: str) -> None:
    graph = piped(partitioning_method=method, METIS_opt={"seed": 1})
    assert {node.gpu_id for node in graph.nodes} == {0, 1}
    assert graph.num_partitions == graph.n_stages == len(graph.unique_partitions_ids)
    assert graph.plan is not None and graph.plan.check() is not None


def test_refused_options() -> None:
    with pytest.raises(InvalidError, match="partitioning_method 'BEST' "):
        piped(partitioning_method="BEST")
    for opt in ({"constraint": Constraint.MEMORY}, {"maximum_constraint_value": 3.0}):
        with pytest.raises(UnsupportedError, match="memory_limit"):
            piped(acyclic_opt=opt)


def test_acyclic_options() -> None:
    level = {"meta_algorithm": META_ALGORITH.MULTI_LEVEL}
    cut = {"objective": Objective.EDGE_CUT, "epsilon": 0.5, "rounds": 3, "allocated_seconds": 1}
    plain, levels, small = piped(), piped(acyclic_opt=level), piped(acyclic_opt=cut)
    assert plain.plan and levels.plan and small.plan
    assert levels.plan.answer["method"] == "multilevel"
    assert small.plan.answer["cut_bytes"] <= plain.plan.answer["cut_bytes"]


def test_depth_and_basic_blocks() -> None:
    scopes = {"Deep/ModuleList[blocks]/Block[0]", "Deep/ModuleList[blocks]/Block[1]"}
    assert not scopes & {node.scope for node in piped().nodes}
    assert scopes <= {node.scope for node in piped(basic_blocks=[Block]).nodes}
    assert scopes <= {node.scope for node in piped(depth=1).nodes}


def test_weight_functions_see_nodes_and_decide() -> None:
    seen: list[Node] = []

    def weigh(node: Node) -> float:
        seen.append(node)
        assert node.weight.forward_time >= 0 and node.weight.backward_time >= 0
        assert node.gpu_id is None and node.req_grad in (False, True)
        return 100.0 if node.scope == "Deep/Sequential[head]/Linear[0]" else 1.0

    def between(u: Node, v: Node) -> float:
        assert v in u.out_edges and u in v.in_edges and u in v.args
        assert u.value_type in (torch.Tensor, tuple) and u.tensor_shape is not None
        return 7.0

    graph = piped(node_weight_function=weigh, edge_weight_function=between)
    assert {node.id for node in seen} == {node.id for node in graph.nodes}
    heavy = next(node for node in graph.nodes if node.scope.endswith("head]/Linear[0]"))
    alone = [node for node in graph.nodes if node.stage_id == heavy.stage_id]
    assert len(alone) < graph.num_nodes / 3  # the rest weighs less than it


def test_the_original_s_weight_functions() -> None:
    class Arguments:
        weight_mult_factor, auto_infer_node_bwd_to_fwd_ratio, bwd_to_fwd_ratio = 10.0, False, 2
        bw, penalize_non_tensors, edge_penalty = 5.0, False, 1e7

    node_weight, edge_weight = autopipe.get_weight_functions(Arguments(), verbose=False)
    graph = piped(node_weight_function=node_weight, edge_weight_function=edge_weight)
    node = next(n for n in graph.nodes if n.type is NodeTypes.LAYER)
    times = node.weight
    assert node_weight(node) == 10 * (times.forward_time + 2 * times.backward_time)
    node.gpu_id = None
    assert edge_weight(node, node.out_edges[0]) == max(1e-3, 10 * 4 * 8 * 4 / (1e6 * 5))


def test_recomputation() -> None:
    def total(**options: Any) -> dict[str, tuple[float, float]]:
        return {n.scope: tuple(n.weight) for n in piped(**options).nodes}

    plain = total()
    again = total(recomputation=True)
    some = total(recomputation=True, force_no_recomp_scopes=lambda scope: "head" in scope)
    for scope, (forward, backward) in plain.items():
        assert again[scope] == (forward, backward + forward)
        assert some[scope] == ((forward, backward) if "head" in scope else again[scope])


def test_async_pipelines_do_not_recompute_in_the_last_stage() -> None:
    plain = {node.id: node.weight for node in piped().nodes}
    graph = piped(recomputation=True, async_pipe=True)
    last = [node for node in graph.nodes if node.stage_id == 1]
    assert all(node.weight == plain[node.id] for node in last)
    same = piped(recomputation=True, async_pipe=True, dont_use_async_meta_alg=True)
    assert stages(same) == stages(piped(recomputation=True))


def test_profilers_and_their_cache() -> None:
    graph = piped(use_graph_profiler=True, n_iter=1, profiles_cache_name="times")
    assert Path("times").exists()
    again = piped(use_network_profiler=True, n_iter=1, profiles_cache_name="times")
    assert [n.weight for n in graph.nodes] == [n.weight for n in again.nodes]
    without = piped(
        use_graph_profiler=True, n_iter=1, profiles_cache_name="times", profile_ops=False
    )
    ops = [node.weight for node in without.nodes if node.type is NodeTypes.OP]
    assert ops and all(weight == (0, 0) for weight in ops)


def test_a_graph_is_partitioned_again_also_from_a_file() -> None:
    model = Deep()
    graph = piped(model)
    assert len({s for s, _ in stages(piped(model, graph=graph, nparts=3))}) == 3
    graph.serialize("graph")
    heavy = Graph.deserialize("graph")
    assert stages(heavy) == stages(graph)
    for node in heavy.nodes:
        node.weight = type(node.weight)(9.0 if "head" in node.scope else 1.0, 0.0)
    found = piped(model, graph=heavy)
    assert [node.weight for node in found.nodes] == [node.weight for node in heavy.nodes]
    with pytest.raises(MismatchError, match="scopes"):
        piped(Deep(1), graph=heavy)


def test_the_steps_one_by_one() -> None:
    model = Deep()
    graph = api.build_profiled_graph(model, **SAMPLE, use_graph_profiler=False)
    assert graph.plan is None and {node.stage_id for node in graph.nodes} == {0}
    for node in graph.nodes:
        node.stage_id = int(node.id > graph.num_nodes // 2)
    path = api.compile_partitioned_model(graph, model, 0, output_file="mine")
    assert path == "mine.py" and graph.plan is not None and graph.plan.stage_count == 2
    assert graph.plan.check() is not None
    api.partition_profiled_graph(graph, model, 3, "mpipe", None, None)
    assert {node.gpu_id for node in graph.nodes} == {0, 1, 2}
    assert autopipe.acyclic_partition(model, graph, 2) is graph and graph.num_partitions == 2
    assert autopipe.partition_mpipe(model, graph, 2)[0] is graph
    whole = api.partition_model(model, **SAMPLE, nparts=2, use_graph_profiler=False)
    assert whole.num_partitions == 2 and not Path("generated_Deep2.py").exists()


def test_stages_that_cannot_be() -> None:
    model = Deep()
    graph = api.build_profiled_graph(model, **SAMPLE, use_graph_profiler=False)
    with pytest.raises(InvalidError, match="not traced from this model"):
        api.compile_partitioned_model(graph, Deep(), 0)
    for node in graph.nodes:
        node.stage_id = 2 * int(node.id > 12)
    with pytest.raises(InvalidError, match="invalid stages"):
        api.compile_partitioned_model(graph, model, 0)
    for node in graph.nodes:
        node.stage_id = int(node.id < 12)
    with pytest.raises(InvalidError):
        api.compile_partitioned_model(graph, model, 0)
