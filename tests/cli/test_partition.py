"""`ligament partition`: graphs in JSON, the answer for people, programs and eyes, and bad input."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

METHODS = ["auto", "contiguous", "acyclic", "multilevel", "exact", "mixed"]


def chain(count: int, **figures) -> dict:
    """Equal blocks, one after the other."""
    node = {"forward_ms": 1.0, "backward_ms": 2.0, "output_bytes": 1e6, **figures}
    nodes = [{"name": f"block {i}", **node} for i in range(count)]
    return {"nodes": nodes, "edges": [[i - 1, i] for i in range(1, count)]}


@pytest.fixture
def write(tmp_path):
    def write_graph(graph) -> str:
        (tmp_path / "graph.json").write_text(
            graph if isinstance(graph, str) else json.dumps(graph), encoding="utf-8"
        )
        return "graph.json"

    return write_graph


@pytest.mark.parametrize("method", METHODS)
def test_answer(ligament, write, method):
    answer = ligament.json("partition", write(chain(12)), "-k", 4, "--method", method)
    stage = answer["stage"]
    assert len(stage) == 12 and len(answer["device"]) == 12
    assert stage == sorted(stage)
    assert answer["bottleneck_ms"] == answer["lower_bound_ms"] == 9.0
    assert answer["cut_bytes"] == (max(stage) - min(stage)) * 1e6
    assert answer["seed"] == 0
    assert answer["step_ms"] >= 8 * 9.0
    if method != "auto":
        assert answer["method"] == method


def test_same_seed_same_answer(ligament, write):
    graph = chain(40)
    graph["edges"] += [[i, i + 7] for i in range(0, 33, 3)]
    words = ("partition", write(graph), "-k", "5", "--balance", "1.2", "--seed", "7")
    assert ligament.json(*words) == ligament.json(*words)


def test_for_people(ligament, write):
    text = ligament("partition", write(chain(8)), "-k", 2)
    assert text.splitlines()[0].split()[:3] == ["STAGE", "DEVICE", "NODES"]
    assert "0.00 % above the bound of 12.000" in text


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved", "zb-h1", "zbv"])
def test_picture(ligament, write, schedule):
    picture = ligament("partition", write(chain(8)), "-k", 4, "-s", schedule, "--svg")
    root = ElementTree.fromstring(picture)
    assert root.tag.endswith("svg")
    titles = [item.text for item in root.iter() if item.tag.endswith("title")]
    assert sum("forward" in title for title in titles) == 4 * 8


def test_devices(ligament, write):
    name = write(chain(8, parameter_bytes=1e9))
    answer = ligament.json("partition", name, "-k", 2, "--speed", "1,3")
    assert answer["stage"] == [0, 0] + [1] * 6
    answer = ligament.json("partition", name, "-k", 2, "--memory", "21G,12G", "--speed", "1,3")
    assert answer["device_bytes"] == [20e9, 12e9]
    sentence = ligament.fails("partition", name, "-k", 2, "--memory", "10G")
    assert "they need 1.6000 times as much" in sentence
    ligament("partition", name, "-k", 2, "--memory", "16G")
    many = ("-k", 2, "--memory", "1G,2G,3G")
    assert "3 values, but there are 2" in ligament.fails("partition", name, *many, status=2)


def test_values_groups_and_ties(ligament, write):
    graph = chain(4, parameter_bytes=10)
    graph["edge_bytes"] = [5, 5, 5]
    graph["edge_values"] = ["a", "a", "a"]
    graph["groups"] = [[2, 3]]
    graph["apart"] = [[0, 1]]
    graph["ties"] = [{"name": "shared", "bytes": 4, "nodes": [0, 3]}]
    answer = ligament.json("partition", write(graph), "-k", 2, "--optimizer", "none")
    assert answer["stage"] == [0, 1, 1, 1]
    assert answer["cut_bytes"] == 5
    # 6 of its own and 4 shared; 10, 10, 6 of their own and 4 shared.
    assert answer["device_bytes"] == [10, 30]


@pytest.mark.parametrize(
    ("graph", "part"),
    [
        ({"nodes": []}, "no nodes"),
        ({"edges": []}, "expected a graph"),
        ("[1, 2", "JSON line"),
        ({"nodes": [{}, {}], "edges": [[0, 1], [1, 0]]}, "cycle of 2 nodes: node 0 -> node 1"),
        ({"nodes": [{}, {}], "edges": [[0, 2]]}, "edge 0 refers to node 2"),
        ({"nodes": [{}, {}], "edges": [[0]]}, "edge 0 must be a pair"),
        ({"nodes": [{"forward_ms": -1}, {}]}, "invalid forward_ms of node 0: -1"),
        ('{"nodes": [{"forward_ms": NaN}, {}]}', "JSON line"),
        ({"nodes": [{"output_bytes": "big"}, {}]}, "output_bytes of node 0"),
        ({"nodes": [3, {}]}, "node 0 must be an object"),
        ({"nodes": [{}]}, "2 stages requested, but the graph has only 1 nodes"),
        ({"nodes": [{}, {}], "groups": [[0], [0, 1]]}, "two groups"),
        ({"nodes": [{}, {}], "groups": [[0, 1]]}, "leave only 1 units"),
        ({"nodes": [{}, {}], "edges": [[0, 1]], "edge_bytes": [1, 2]}, "2 elements for 1 edges"),
    ],
)
def test_bad_graph(ligament, write, graph, part):
    assert part in ligament.fails("partition", write(graph), "-k", 2)


def test_bad_words(ligament, write):
    name = write(chain(4))
    assert "multilevel" in ligament.fails("partition", name, "--method", "best", status=2)
    assert "zb-h1" in ligament.fails("partition", name, "--schedule", "best", status=2)
    assert "invalid balance: 0.5" in ligament.fails("partition", name, "--balance", "0.5")
    assert "80Gi" in ligament.fails("partition", name, "--memory", "much", status=2)
    assert "expected a positive number" in ligament.fails(
        "partition", name, "--memory", "0", status=2
    )
    assert "expected a positive number" in ligament.fails(
        "partition", name, "--bandwidth", "0", status=2
    )
    assert "nothing.json" in ligament.fails("partition", "nothing.json")
    done = ligament.run("partition", name, "--json", "--svg")
    assert done.returncode == 2 and "cannot be combined" in done.stderr


def test_standard_input(ligament):
    answer = ligament.json("partition", "-", "-k", 1, input=json.dumps(chain(3)))
    assert answer["stage"] == [0, 0, 0]
