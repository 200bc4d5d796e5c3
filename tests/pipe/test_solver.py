"""The partitioner as Python calls it: graphs, options, and what is refused."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ligament.errors import Error, InvalidError, LimitError, UnsupportedError
from ligament.pipe import Graph, partition, profile, solver, trace
from ligament.pipe.graph.blocks import union
from pipe_models import make


def chain(*times: float, size: float = 100.0) -> dict[str, Any]:
    nodes = [
        {"name": f"n{i}", "forward_ms": t, "backward_ms": 2 * t, "output_bytes": size}
        for i, t in enumerate(times)
    ]
    return {"nodes": nodes, "edges": [[i, i + 1] for i in range(len(times) - 1)]}


def test_the_answer_has_the_promised_keys() -> None:
    answer = partition(chain(1, 2, 3, 4), 2, seed=5)
    wanted = {"stage", "device", "bottleneck_ms", "lower_bound_ms", "cut_bytes", "step_ms"}
    assert wanted | {"method", "seed"} <= answer.keys()
    assert answer["stage"] == [0, 0, 0, 1] and answer["seed"] == 5
    assert answer["bottleneck_ms"] == 18 and answer["cut_bytes"] == 100
    assert answer["lower_bound_ms"] <= 18


def test_a_graph_may_be_a_file_a_dict_or_a_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("{graph}.json")  # a path is a path, whatever its name
    path.write_text(json.dumps(chain(1, 1, 1)))
    given = (path, path.read_text(), chain(1, 1, 1), Graph.from_json(chain(1, 1, 1)))
    answers = [partition(g, 3) for g in given]
    assert answers[1:] == answers[:-1]
    with pytest.raises(InvalidError, match="is not valid JSON"):
        partition("{", 3)
    again = Graph.from_json(json.loads(json.dumps(Graph.from_json(chain(1, 2, 3)).as_json())))
    assert partition(again, 2) == partition(chain(1, 2, 3), 2)


@pytest.mark.parametrize(
    "method", ["contiguous", "acyclic", "multilevel", "exact", "metis", "mixed"]
)
def test_every_method_answers_and_repeats(method: str) -> None:
    graph = chain(*(1 + (i * 7) % 5 for i in range(20)))
    first = partition(graph, 4, method=method, seed=3)
    assert first == partition(graph, 4, method=method, seed=3)
    assert first["method"] == method
    assert all(first["stage"][a] <= first["stage"][b] for a, b in graph["edges"])


@pytest.mark.parametrize(
    ("graph", "stages", "sentence"),
    [
        ({"nodes": [{"name": "a"}, {"name": "b"}], "edges": [[0, 1], [1, 0]]}, 1, "a"),
        (chain(1, 1), 3, "3"),
        (chain(1, 1), 0, "invalid stages 0"),
        (chain(1, 1), True, "invalid stages True"),
        ({"nodes": [], "edges": []}, 1, "node"),
        (chain(1, math.nan), 1, "forward_ms of node 'n1'"),
        (chain(1, -1), 1, "forward_ms of node 'n1'"),
        (chain(1, math.inf), 1, "forward_ms of node 'n1'"),
        ({"nodes": [{"name": "a", "weight": 1}]}, 1, "unknown field 'weight'"),
        ({"nodes": [{"name": "a"}], "edges": [[0, 1]]}, 1, "refers to node 1, but there are 1"),
        ({"nodes": [{"name": "a"}], "edges": [[0]]}, 1, "must be a pair"),
        ({"nodes": [3]}, 1, "node 0 must be an object"),
        ({"edges": []}, 1, "expected a graph: an object"),
        ([], 1, "expected a graph: an object"),
    ],
)
def test_graphs_that_make_no_sense(graph: Any, stages: Any, sentence: str) -> None:
    with pytest.raises(InvalidError, match=sentence):
        partition(graph, stages)


def test_one_stage_zeros_and_loose_parts_are_fine() -> None:
    assert partition(chain(1, 2), 1)["stage"] == [0, 0]
    loose = {"nodes": [{"name": str(i), "forward_ms": 1} for i in range(4)], "edges": []}
    assert sorted(set(partition(loose, 4)["stage"])) == [0, 1, 2, 3]
    assert len(partition({"nodes": [{}, {}], "edges": [[0, 1]]}, 2)["stage"]) == 2


def test_what_does_not_fit_is_refused_with_a_figure() -> None:
    graph = chain(1, 1, 1, 1)
    for node in graph["nodes"]:
        node["parameter_bytes"] = 1e9
    with pytest.raises(LimitError, match="[0-9]"):
        partition(graph, 2, memory_limit="1G")
    assert partition(graph, 4, memory_limit="5G")["stage"] == [0, 1, 2, 3]
    with pytest.raises(LimitError, match="[0-9]"):
        partition(chain(2, 2, 2), 2, balance=1.0, method="contiguous")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"method": "best"}, "best"),
        ({"schedule": "random"}, "random"),
        ({"balance": 0.5}, "invalid balance 0.5"),
        ({"balance": math.nan}, "invalid balance nan"),
        ({"microbatches": 0}, "invalid microbatches 0"),
        ({"memory_limit": "much"}, "invalid memory_limit 'much'"),
        ({"memory_limit": -1}, "at least 0"),
        ({"memory_limit": 0}, "memory_limit must be greater"),
        ({"memory_limit": ["1G", 0]}, "memory_limit must be greater"),
        ({"devices": [{"memory": 0}, {}]}, "memory of device 0 must be greater"),
        ({"bandwidth": 0}, "bandwidth must be greater"),
        ({"bandwidth": [[0, 1], [0, 0]]}, r"bandwidth\[1\]\[0\] must be greater"),
        ({"memory_limit": [1, 2], "devices": [{}, {}, {}]}, "2 elements, but there are 3 devices"),
        ({"bandwidth": [[1, 2], [3]]}, "matrix"),
        ({"devices": []}, "devices must be a list"),
        ({"devices": [{"sped": 1}]}, "sped"),
        ({"devices": [{"speed": 0}]}, "speed of device 0: 0.0"),
        ({"optimizer": "adamax2"}, "invalid optimizer 'adamax2'"),
        ({"optimizer": -1}, "at least 0"),
        ({"ties": "loose"}, "invalid ties 'loose'"),
        ({"seed": -1}, "invalid seed -1"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidError, match=sentence):
        partition(chain(1, 1, 1), 2, **options)


def test_a_schedule_that_does_not_suit_the_devices_is_refused() -> None:
    with pytest.raises(UnsupportedError):
        partition(chain(1, 1, 1, 1), 3, schedule="zbv", devices=[{}, {}, {}])


def test_devices_of_different_speed() -> None:
    answer = partition(
        chain(*[1.0] * 12), 2, devices=[{"speed": 2.0}, {"speed": 1.0}], method="contiguous"
    )
    counts = [answer["stage"].count(s) for s in range(2)]
    assert counts[answer["stage_device"].index(0)] == 8


def test_sizes_in_words() -> None:
    assert solver.size("80G", "x") == 80e9 and solver.size("1.5 GiB", "x") == 1.5 * 2**30
    assert solver.size("512k", "x") == 512e3 and solver.size(7, "x") == 7


def test_a_bandwidth_makes_transfers_cost() -> None:
    graph = chain(1, 1, size=1e6)
    free, slow = partition(graph, 2), partition(graph, 2, bandwidth=1e6)
    assert slow["step_ms"] > free["step_ms"] + 900


def test_errors_are_the_librarys() -> None:
    assert issubclass(InvalidError, (Error, ValueError)) and issubclass(InvalidError, Error)


def test_the_program_reads_what_a_trace_writes(program: Path, tmp_path: Path) -> None:
    """A traced model's graph, groups and ties included, gives the same answer on both ways."""
    graph = profile(trace(*make("t5")), "flops").graph
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(graph.as_json()))
    command = [program, "partition", path, "-k", "3", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ours, theirs = partition(graph, 3), json.loads(done.stdout)
    assert {key: theirs[key] for key in ("stage", "device", "method")} == {
        key: ours[key] for key in ("stage", "device", "method")
    }
    for key in ("bottleneck_ms", "lower_bound_ms", "cut_bytes", "step_ms"):
        assert theirs[key] == pytest.approx(ours[key], rel=1e-9)


def test_overlapping_sets_are_one() -> None:
    assert union([[0, 2], [2, 4], [1], [3, 5]], 6) == [[0, 2, 4], [3, 5]]


def test_a_split_of_backward_that_nobody_told_is_taken_as_half() -> None:
    answer = partition(chain(1, 1, 1, 1), 4, schedule="zb-h1", microbatches=8)
    assert answer["stages"]["weight_ms"] == [1, 1, 1, 1]
    assert answer["step_ms"] < partition(chain(1, 1, 1, 1), 4, microbatches=8)["step_ms"]
