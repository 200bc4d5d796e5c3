"""Plain values of a saved tree in `show`, and completion in a shell."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import ligament as library
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree() -> dict[str, Any]:
    return {
        "model": {"w": np.ones(3)},
        "epoch": 3,
        "name": 'a "b"\n\x1b[1m',
        "groups": [{"lr": 0.1, "betas": (0.9, 0.999), "foreach": None}],
        "odd": {1: math.inf, "c": 1 + 2j, "b": b"xy", "big": 1 << 70, "$x": True},
    }


def test_values_are_shown(ligament: Any, tmp_path: Path, tree: dict[str, Any]) -> None:
    with library.Store(tmp_path / "s") as store:
        store.save("m", tree)
        store.save("flat", {"w": np.ones(3)})
        store.save("many", {"w": np.ones(1), "n": list(range(40))})
    text = ligament("show", "s#m")
    assert "values    epoch = 3\n" in text and "groups.0.lr = 0.1\n" in text
    assert "\x1b" not in text and "groups.0.betas.1 = 0.999\n" in text
    assert "values" not in ligament("show", "s#flat")
    many = ligament("show", "s#many")
    assert "n.15 = 15" in many and "n.16" not in many and "and 24 more (--json prints all)" in many
    values = ligament.json("show", "s#m")[0]["values"]
    assert values == {
        "epoch": 3,
        "name": 'a "b"\n\x1b[1m',
        "groups.0.lr": 0.1,
        "groups.0.betas.0": 0.9,
        "groups.0.betas.1": 0.999,
        "groups.0.foreach": None,
        "odd.1": "inf",
        "odd.c": [1.0, 2.0],
        "odd.b": "eHk=",
        "odd.big": hex(1 << 70),
        "odd.$x": True,
    }
    ligament("cp", "s#m", "m.safetensors")
    assert json.loads(ligament("show", "m.safetensors", "--json"))[0]["values"] == values


def test_a_long_meta_is_cut(ligament: Any, tmp_path: Path) -> None:
    with library.Store(tmp_path / "s") as store:
        store.save("short", {"w": np.ones(3)}, meta={"lr": 0.1})
        assert "in 1 tensor\n" in ligament("show", "s")
        store.save("long", {"w": np.ones(3)}, meta={"text": "\u00e9" * 1000})
    assert 'meta      {"lr": 0.1}\n' in ligament("show", "s#short")
    (line,) = [one for one in ligament("show", "s#long").splitlines() if one.startswith("meta")]
    assert len(line) < 500 and line.endswith("more bytes (--json prints all)")
    assert ligament.json("show", "s#long")[0]["meta"] == {"text": "\u00e9" * 1000}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_completion(ligament: Any, tmp_path: Path) -> None:
    with library.Store(tmp_path / "s") as store:
        for name in ("run/1", "run/2", "other"):
            store.save(name, {"w": np.ones(3)})

    def complete(*words: str) -> list[str]:
        script = (
            f'. "{ROOT}/cli/ligament.bash"; program=$1; shift; '
            'COMP_WORDS=("$program" "$@"); COMP_CWORD=$#; _ligament; '
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        command = ["bash", "-c", script, "bash", str(ligament.path), *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return sorted(done.stdout.split())

    assert complete("ch") == ["check"] and {"ls", "cp", "plugin-test"} <= set(complete(""))
    assert complete("check", "--rep") == ["--repair"]
    assert complete("show", "s#ru") == ["s#run/1", "s#run/2"]
    assert complete("ls", "s") == ["s"]
