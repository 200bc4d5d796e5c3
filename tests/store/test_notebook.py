"""Small things a user expects: exclusive creation, notebooks, plurals, `python -m ligament`."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import ligament
import ligament.progress
import numpy as np
import pytest
from ligament.plural import count


def test_a_store_is_created_exclusively(tmp_path: Path) -> None:
    with ligament.Store(tmp_path / "s", "x") as store:
        store.save("m", {"w": np.ones(3)})
        with pickle.loads(pickle.dumps(store)) as other:
            assert len(other) == 1
    for mode in ("x", "w"):
        with pytest.raises(ligament.ExistsError, match="store.*already.*mode=a"):
            ligament.Store(tmp_path / "s", mode)
    with pytest.raises(ligament.InvalidError, match="'q'.*'r', 'a', or 'x'"):
        ligament.Store(tmp_path / "t", "q")
    assert not (tmp_path / "t").exists()


def test_plurals(store: ligament.Store) -> None:
    assert [count(n, "tensor") for n in range(3)] == ["0 tensors", "1 tensor", "2 tensors"]
    assert count(2, "batch", "batches") == "2 batches"
    assert repr(store.save("m", {"w": np.ones(1, "u1")})) == (
        "<ligament.Model 'm' of 1 tensor, 1 byte>"
    )


def test_notebooks(store: ligament.Store) -> None:
    graph = ligament.Graph([("a", b"x"), ("b", b"y")], [("a", "b")])
    tree = {"a.w": np.ones(3), "b.w": np.ones((2, 2), "f4")}
    for i in range(25):
        store.save(
            f"<i>{i}",
            tree,
            graph=graph,
            metrics={"loss": i / 3},
            tags={"run": "<b>"},
            meta={"lr": 1},
        )
    shown = store._repr_html_()
    assert "25 models" in shown and "and 5 more" in shown and "loss = 8" in shown
    assert "&lt;i&gt;24" in shown and "<i>" not in shown and "&lt;b&gt;" in shown
    model = store["<i>3"]._repr_html_()
    assert "2 tensors" in model and "[2, 2]" in model and "f" in model and "<i>" not in model
    match = store.find(graph)
    assert match is not None
    assert "2 of 2 layers" in match._repr_html_() and "<i>" not in match._repr_html_()
    store.close()
    assert "closed" in store._repr_html_()


def test_check_shows_progress(
    files: ligament.Store, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ligament.progress.Bar.__init__, "__defaults__", (True, 0.0))
    files.save("m", {f"t{i}": np.ones(3 << 20, "u1") for i in range(8)})
    capfd.readouterr()
    assert files.check()
    assert capfd.readouterr().err == ""
    assert files.check(progress=True)
    bar = capfd.readouterr().err
    assert "checking [" in bar and "100%" in bar and bar.count("\r") > 1


def test_a_check_is_interrupted(files: ligament.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    files.save("m", {"w": np.ones(100)})

    def stop(self: object, done: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ligament.progress.Bar, "update", stop)
    with pytest.raises(KeyboardInterrupt):
        files.check(progress=True)
    monkeypatch.undo()
    assert files.check()


def test_the_module_is_the_program() -> None:
    command = [sys.executable, "-m", "ligament"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"ligament {ligament.__version__}\n"
    wrong = subprocess.run([*command, "nosuch"], capture_output=True, text=True)
    assert wrong.returncode == 2 and wrong.stderr.startswith("ligament: unknown command 'nosuch'")
