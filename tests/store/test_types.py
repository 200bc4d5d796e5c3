"""Names are real for type checkers and editors: the documents' blocks pass `mypy --strict`, results
have types, and dir() lists the available names."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The frameworks are left out: reading them takes minutes, and what is checked are our own types.
CONFIG = """
[mypy]
strict = True
mypy_path = {root}/python
ignore_missing_imports = True
disallow_subclassing_any = False
[mypy-torch.*,torchdata.*,keras.*,tensorflow.*,jax.*,flax.*,optax.*,transformers.*,lightning.*]
follow_imports = skip
[mypy-accelerate.*,ml_dtypes.*]
follow_imports = skip
[mypy-ligament.*]
follow_imports = silent
"""
RESULTS = """
import ligament
from ligament import Graph, Match, Model, Result, Store, Ticket
from ligament.checkpoint import Checkpointer
from ligament.pipe import Plan
from ligament.pipe.runtime.pipeline import PlannedSchedule
from typing import Any, assert_type

def check(store: Store, graph: Graph, later: bool) -> None:
    assert_type(store.save("m", {}), Model)
    assert_type(store.save("m", {}, tags={"seed": 3}, wait=True), Model)
    assert_type(store.save("m", {}, wait=False), Ticket[Model])
    assert_type(store.save("m", {}, wait=False).result(), Model)
    assert_type(store.save("m", {}, wait=later), Model | Ticket[Model])
    assert_type(store.find(graph), Match | None)
    assert_type(store.find(graph, k=3, prefer="-loss"), list[Match])
    assert_type(store.load("m"), Any)
    assert_type(store.load("m", {}, missing="keep"), Result)
    assert_type(store.models(), list[Model])
    assert_type(store.update("m", tags={"seed": 3, "old": None}, metrics={"n": 3}), Model)
    store.save("m", {}, tags={"seed": None})  # type: ignore[dict-item]
    store.save("m", {}, older="n")  # type: ignore[call-overload]
    store.load("m", strict=True)  # type: ignore[call-overload]

def save(ck: Checkpointer, plan: Plan, later: bool) -> None:
    assert_type(ck.save(1, model={}, metrics={"loss": 1}), Model)
    assert_type(ck.save(1, model={}, wait=False), Ticket[Model])
    assert_type(ck.save(1, model={}, wait=later), Model | Ticket[Model])
    ck.save(1, model={}, metrics=3)  # type: ignore[call-overload]
    assert_type(plan.pipeline(), PlannedSchedule)
    print(ligament.checkpoint.dcp.StorageWriter, ligament.checkpoint.lightning.CheckpointIO)
    print(ligament.checkpoint.transformers.Callback, ligament.checkpoint.accelerate.Hooks)
    print(ligament.checkpoint.CheckpointCallback, ligament.params.torch.Embedding)
    ligament.checkpoint.nosuch()  # type: ignore[attr-defined]
    ligament.nosuch()  # type: ignore[attr-defined]
"""


def blocks() -> dict[str, str]:
    """The Python of README and docs, by a name for each. A block that imports nothing continues the
    one before it."""
    found = {}
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        texts = re.findall(r"^```python\n(.*?)^```$", document.read_text(), re.M | re.S)
        before = ""
        for number, text in enumerate(texts):
            before = text if re.search(r"^(import|from) ", text, re.M) else before + text
            found[f"{document.stem.lower()}_{number}"] = before
    return found


def test_blocks_and_results(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    texts = blocks() | {"results": RESULTS}
    assert len(texts) > 15
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "mypy.ini").write_text(CONFIG.format(root=ROOT))
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini"]
    command += [
        "--cache-dir",
        str(ROOT / ".mypy_cache/documents"),
        *(f"{name}.py" for name in texts),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_dir_lists_everything() -> None:
    code = """
import ligament, sys
before = set(sys.modules)
names = {"Mesh", "Store", "checkpoint", "convert", "mesh", "params", "pipe", "transfer"}
assert names <= set(dir(ligament)), names - set(dir(ligament))
assert all(hasattr(ligament, name) for name in ligament.__all__ if name != "pipe")
assert dir(ligament) == sorted(ligament.__all__)
integrations = {"accelerate", "dcp", "lightning", "transformers"}
names = {"CheckpointCallback", *integrations, *ligament.checkpoint.__all__}
assert dir(ligament.checkpoint) == sorted(names)
for module in (ligament.convert, ligament.mesh, ligament.params):
    assert dir(module) == sorted(module.__all__)
    assert not hasattr(module, "nosuch") and not hasattr(ligament.checkpoint, "nosuch")
assert "torch" in dir(ligament.params)
assert not {"torch", "keras", "tensorflow"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
