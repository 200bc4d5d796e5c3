"""FTPipe's graph: nodes, edges, files, pictures, contraction."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from ftpipe_models import SAMPLE, Deep
from ligament.compat.autopipe.autopipe.api import build_profiled_graph, partition_model
from ligament.compat.autopipe.autopipe.model_profiling import Graph, Node, NodeTypes
from ligament.errors import InvalidError, UnsupportedError


@pytest.fixture
def graph() -> Graph:
    return partition_model(Deep(), **SAMPLE, nparts=2, use_graph_profiler=False)


def described(graph: Graph) -> list[dict[str, object]]:
    return [node.state_dict() for node in graph.nodes]


def test_nodes_have_the_original_s_attributes(graph: Graph) -> None:
    assert [node.id for node in graph.nodes] == list(range(graph.num_nodes)) == list(graph._nodes)
    assert [node.scope for node in graph.inputs] == ["input0", "input1"]
    assert graph.input_kw_ids == {1: "shift"} and graph.num_inputs == 2
    assert {node.type for node in graph.nodes} == {NodeTypes.IN, NodeTypes.LAYER, NodeTypes.OP}
    by_scope = {node.scope: node for node in graph.nodes}
    assert len(by_scope) == graph.num_nodes
    layer = by_scope["Deep/ModuleList[blocks]/Block[1]/Linear[second]"]
    assert layer.num_parameters == 72 and layer.value_type is torch.Tensor and layer.req_grad
    assert layer.tensor_shape == torch.Size([4, 8]) and layer.tensor_dtype is torch.float32
    assert [n.scope.rpartition("_")[0] for n in layer.in_edges] == [
        "Deep/ModuleList[blocks]/Block[1]/torch::relu"
    ]
    chunk = next(node for node in graph.nodes if "chunk" in node.scope)
    assert chunk.value_type is tuple and chunk.tensor_shape == (torch.Size([4, 3]),) * 2
    assert [node.scope.split("::")[0] for node in graph.outputs] == ["Deep/torch", "Deep/torch"]
    assert graph.output_scopes == [node.scope for node in graph.outputs]
    assert graph.model_name == "Deep" and graph.depth == 100
    weight = layer.weight
    assert (weight.forward_time, weight.backward_time) == weight and weight.size == 72 * 4 / 1e6
    assert weight.cuda_memory_forward >= 0 and weight.input_size == weight.output_size
    assert graph.selfcheck() is graph and repr(layer).startswith(f"id: {layer.id}, scope:Deep/")


def test_the_first_nodes_of_a_stage_never_come_after_their_readers(graph: Graph) -> None:
    for node in graph.nodes:
        assert all(reader.stage_id >= node.stage_id for reader in node.out_edges)


def test_files(graph: Graph, tmp_path: Path) -> None:
    graph.serialize(str(tmp_path / "graph"))
    again = Graph.deserialize(str(tmp_path / "graph"))
    assert described(again) == described(graph) and again.output_ids == graph.output_ids
    assert described(Graph.from_other(graph)) == described(graph)
    assert again.input_kw_ids == graph.input_kw_ids and again.trace is None
    for text in ("", "[]", '{"format": "ligament autopipe graph 1"}', "\x80\x04pickle"):
        (tmp_path / "bad").write_text(text, "latin-1")
        with pytest.raises(InvalidError, match="bad is not a graph"):
            Graph.deserialize(str(tmp_path / "bad"))


def test_pictures(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = graph.build_dot(lambda node: 2.5, lambda u, v: 1.5).source
    assert source.startswith("digraph {")
    assert source.count(" -> ") == sum(len(node.in_edges) for node in graph.nodes)
    assert "weight: 2.5" in source and "kwarg: shift" in source
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedError, match="install Graphviz"):
        graph.save_as_pdf("deep", str(tmp_path))
    program = tmp_path / "dot"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:], len(sys.stdin.read()))\n"
    )
    os.chmod(program, 0o755)
    assert graph.save_as_pdf("deep", str(tmp_path / "graphs")) is graph
    assert [path.name for path in (tmp_path / "graphs").iterdir()] == ["deep.pdf"]
    assert (tmp_path / "graphs/deep.pdf").read_text().startswith("['-Tpdf'] ")


def test_networkx(graph: Graph) -> None:
    pytest.importorskip("networkx")
    made = graph.asNetworkx(directed=True, node_weight_function=lambda n: n.id)
    assert made.number_of_nodes() == graph.num_nodes and made.nodes[3]["weight"] == 3
    pairs = {(node.id, reader.id) for node in graph.nodes for reader in node.out_edges}
    assert {*made.edges} == pairs


def test_layers_graph_and_copies(graph: Graph) -> None:
    layers, lookup = graph.layers_graph()
    assert described(layers) == described(graph) and lookup == {i: i for i in graph._nodes}
    for node in layers.nodes:
        node.stage_id = 1 - node.stage_id
    graph.induce_layer_partition(layers, lookup)
    assert described(layers) == described(graph)
    plain = graph.get_copy_without_parallel_edges()
    assert all(len({*n.out_edges}) == len(n.out_edges) for n in plain.nodes)


def diamond() -> Graph:
    """3 -> 0, 3 -> 1, 0 -> 2, 1 -> 2: ids that are no topological order."""
    nodes = {i: Node(NodeTypes.OP, i, f"M/op_{i}") for i in range(4)}
    nodes[3].type = NodeTypes.IN
    for a, b in ((3, 0), (3, 1), (0, 2), (1, 2)):
        nodes[a].add_out_edge(nodes[b])
        nodes[b].add_arg(nodes[a])
    return Graph(nodes, {3: "x"}, [2], 10, ())


def test_topo_sort() -> None:
    graph = diamond()
    graph.topo_sort(change_graph=False)
    assert [node.topo_sort_id for node in graph.nodes] == [1, 2, 3, 0]
    with pytest.raises(InvalidError, match="invalid edge from node 3 to node 0"):
        graph.selfcheck()
    graph.topo_sort()
    assert [node.scope for node in graph.nodes] == ["M/op_3", "M/op_0", "M/op_1", "M/op_2"]
    assert graph.input_kw_ids == {0: "x"} and graph.output_ids == [3]
    assert graph.selfcheck().model_name == "M"
    graph[0].add_arg(graph[3])
    graph[3].add_out_edge(graph[0])
    with pytest.raises(InvalidError, match="cycle"):
        graph.topo_sort()


def test_merge_and_reach() -> None:
    graph = diamond()
    graph.topo_sort()
    assert graph.forward_dfs_and_check_if_in_set(graph[0], {graph[3]})
    assert not graph.forward_dfs_and_check_if_in_set(graph[0], {graph[3]}, depth_limit=1)
    assert not graph.forward_dfs_and_check_if_in_set(graph[1], {graph[2]})
    graph[1].num_parameters, graph[3].num_parameters = 5, 7
    graph.merge(1, 3, lambda u, v: 10.0 * u.id + v.id)
    assert [node.id for node in graph.nodes] == [0, 1, 2] and graph.output_ids == [1]
    assert graph[1].in_edges == [graph[0], graph[2]] and graph[2].out_edges == [graph[1]]
    assert graph[1].num_parameters == 12 and graph[2].compound_edge_weights == {1: 23.0}
    with pytest.raises(InvalidError, match="does not read"):
        graph.merge(2, 0, lambda u, v: 1.0)


def test_split_to_stages(graph: Graph) -> None:
    parts = graph.split_to_stages()
    assert {*parts} == graph.unique_partitions_ids
    inner = sum(part.num_nodes - part.num_inputs for part in parts.values())
    assert inner == graph.num_nodes - graph.num_inputs
    assert parts[1].output_ids == sorted(graph.output_ids)
    sent = {node.scope for node in parts[0].outputs}
    received = {node.scope for node in parts[1].inputs}
    assert received <= sent | {"input0", "input1"}


def test_recount_parameters() -> None:
    model = Deep()
    graph = build_profiled_graph(model, **SAMPLE, use_graph_profiler=False)
    before = [node.num_parameters for node in graph.nodes]
    graph.calculate_params_per_node(model)
    assert [node.num_parameters for node in graph.nodes] == before
    assert sum(before) == sum(p.numel() for p in model.parameters())
