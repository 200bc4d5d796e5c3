"""find, diff and lineage on the command line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import ligament
import numpy as np
import pytest
from ligament import Graph

Run = Any


@pytest.fixture
def run(program: Path, files: ligament.Store) -> Run:
    for name, marks, parent in (("a", "xyz", None), ("b", "xyw", "a"), ("c", "xq", "b")):
        graph = Graph(
            [(f"l{i}", mark) for i, mark in enumerate(marks)],
            [(f"l{i}", f"l{i + 1}") for i in range(len(marks) - 1)],
        )
        values = {f"l{i}.w": np.full(4, ord(mark)) for i, mark in enumerate(marks)}
        files.save(name, values, graph=graph, parent=parent, metrics={"acc": len(marks)})
    files.save("plain", {"w": np.zeros(1)})

    def call(command: str, *words: str) -> subprocess.CompletedProcess[str]:
        place, *rest = words
        line = [program, command, f"{files.uri}{place}", *rest]
        return subprocess.run(line, capture_output=True, text=True, timeout=60)

    return call


def test_find(run: Run) -> None:
    done = run("find", "#a", "--prefer", "acc")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert done.returncode == 0 and [row[:2] for row in rows[1:]] == [["b", "2"], ["c", "1"]]
    found = json.loads(run("find", "#a", "-n", "1", "--json").stdout)
    assert [one["name"] for one in found] == ["b"] and found[0]["shared_layers"] == 2
    assert found[0]["shared_tensors"] == {"l0.w": "l0.w", "l1.w": "l1.w"}


def test_find_explains_an_empty_result(run: Run, files: ligament.Store) -> None:
    files.update("a", tags={"run": "x"})
    files.save("lone", {"l.w": np.zeros(4)}, graph=Graph([("l", "other")], []))
    for words in (("#lone",), ("#lone", "--json"), ("#a", "-t", "run=y")):
        done = run("find", *words)
        assert done.returncode == 0 and done.stdout in ("", "[]\n")
        assert f"shares a layer with '{words[0][1:]}'" in done.stderr
    for words, sentence in (
        (("#a", "-p", "-ac"), "has the metric 'ac' (known: acc)"),
        (("#a", "-t", "rum=x"), "has the tag 'rum' (known: run)"),
    ):
        done = run("find", *words)
        assert (done.returncode, done.stdout) == (1, "") and sentence in done.stderr


def test_find_refuses(run: Run) -> None:
    for words, status, sentence in (
        (("#nobody",), 1, "no model 'nobody'"),
        (("#plain",), 1, "without a graph"),
        (("#plain",), 1, "graph=ligament.Graph.of(model, args)"),
        (("",), 2, "STORE#NAME"),
    ):
        done = run("find", *words)
        assert done.returncode == status and sentence in done.stderr, done.stderr


def test_diff(run: Run) -> None:
    done = run("diff", "#a", "b")
    assert done.returncode == 1 and "l2.w" in done.stdout and "l0.w" not in done.stdout
    assert "2 same (64 B), 1 changed (32 B)" in done.stdout
    assert "l0.w" in run("diff", "#a", "b", "--all").stdout
    told = json.loads(run("diff", "#a", "c", "--json").stdout)
    assert told["same"] == ["l0.w"] and told["changed"] == ["l1.w"] and told["removed"] == ["l2.w"]
    assert run("diff", "#a", "a").returncode == 0
    done = run("diff", "#a", "nobody")
    assert done.returncode == 2 and "'nobody'" in done.stderr


def test_lineage_in_show(run: Run) -> None:
    text = run("show", "#c").stdout
    assert "parent    b" in text and "lineage   b < a" in text
    assert "children  b" in run("show", "#a").stdout
    (told,) = json.loads(run("show", "#b", "--json").stdout)
    assert told["ancestors"] == ["a"] and told["children"] == ["c"]
