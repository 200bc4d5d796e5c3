"""The examples of the parameter manager: over nodes that somebody else started, and what they draw.
That they hold what they promise with their own settings is in tests/test_examples.py."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import ligament
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(ligament.__file__).parent / "bin/ligament"
BUILD = Path(os.environ.get("LIGAMENT_TEST_BUILD", ROOT / "build"))
SVG = "{http://www.w3.org/2000/svg}"


def run(*command: str | Path, folder: Path) -> str:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DMLC_", "LIGAMENT_"))}
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        env=kept,
        cwd=folder,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def curves(path: Path) -> list[list[float]]:
    """Heights in the picture, a list a curve; larger is lower."""
    lines = ET.parse(path).getroot().iter(f"{SVG}polyline")
    return [[float(p.split(",")[1]) for p in line.attrib["points"].split()] for line in lines]


@pytest.mark.parametrize("name", ["kge", "words", "factors", "ctr"])
def test_launched(name: str, tmp_path: Path) -> None:
    if name == "ctr":
        pytest.importorskip("torch")
    script = ROOT / f"examples/python/{name}.py"
    launch = (PROGRAM, "launch", "-w", "0", "-s", "2", "--", sys.executable, script)
    out = run(*launch, "--epochs", "2", folder=tmp_path)
    assert f"[server 0] loss curve: {name}.svg" in out
    (losses,) = curves(tmp_path / f"{name}.svg")
    assert len(losses) == 3
    assert losses[0] < losses[-1], "it has not learned"


@pytest.mark.parametrize("name", ["kge", "words", "factors"])
def test_launched_in_c(name: str, tmp_path: Path) -> None:
    launch = (PROGRAM, "launch", "-w", "0", "-s", "2", "--", BUILD / "examples" / name)
    out = run(*launch, "2", "2", folder=tmp_path)
    assert f"[server 0] loss curve: {name}.svg" in out
    (losses,) = curves(tmp_path / f"{name}.svg")
    assert losses[0] < losses[-1], "it has not learned"


def test_the_same_bits_on_other_nodes(tmp_path: Path) -> None:
    script = ROOT / "examples/python/factors.py"
    out = run(sys.executable, script, "--nodes", "3", "--epochs", "4", folder=tmp_path)
    assert "on 3 nodes, then 4: equal bits in every epoch" in out
    first, second = curves(tmp_path / "factors.svg")
    assert first == second
    assert "half-way" in run(PROGRAM, "ls", "factors-models", folder=tmp_path)


@pytest.mark.parametrize("words", [("--nodes", "0"), ("--epochs", "0"), ("--epochs", "1")])
def test_too_few(words: tuple[str, str], tmp_path: Path) -> None:
    script = str(ROOT / "examples/python/factors.py")
    done = subprocess.run(
        [sys.executable, script, *words], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "--nodes must be at least 1, --epochs at least 2" in done.stderr
    assert not list(tmp_path.iterdir())
