"""The examples of the store run and say what happened."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import ligament
import pytest


def test_the_search(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    words = [tmp_path, "--candidates", "14", "--workers", "2"]
    command = [sys.executable, str(root / "examples/python/evolve.py"), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "14/14" in done.stdout and "best accuracy" in done.stdout
    assert "the store is intact" in done.stdout
    picture = ElementTree.parse(tmp_path / "lineage.svg").getroot()
    assert len(picture.findall(".//{http://www.w3.org/2000/svg}circle")) >= 14
    with ligament.Store(tmp_path / "store", mode="r") as store:
        assert len(store) == 14 and any(model.parent for model in store.models())


def test_a_population(root: Path, tmp_path: Path) -> None:
    words = [f"{tmp_path / 'store'}?fsync=0", "--generated", "30", "--evolved", "10"]
    command = [sys.executable, str(root / "examples/python/population.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    with ligament.Store(tmp_path / "store") as store:
        assert len(store) == 40 and store.check()
        assert all(model.parent for model in store.models("evolved/*"))


def test_a_population_on_a_server(root: Path, tmp_path: Path) -> None:
    words = [f"{tmp_path / 'store'}?fsync=0", "--workers", "8", "--candidates", "3"]
    command = [sys.executable, str(root / "examples/python/served_population.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "24 models" in done.stdout
    assert "find on the server: 24 calls" in done.stdout
    assert "save on the server: 24 calls" in done.stdout
    assert "the server exited with status 0" in done.stdout
    with ligament.Store(tmp_path / "store", mode="r") as store:
        assert len(store) == 24 and store.check()
        parents = [model.parent for model in store.models()]
        assert any(parents)
