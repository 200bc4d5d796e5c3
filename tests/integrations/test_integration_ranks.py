"""The integrations under torchrun: two ranks, one checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ligament
import pytest


def test_two_ranks(tmp_path: Path) -> None:
    for name in ("torch", "transformers", "accelerate"):
        pytest.importorskip(name)
    program = Path(__file__).with_name("integration_ranks.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=280,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("all is well") == 2
    with ligament.Store(tmp_path / "runs", "r") as store:
        assert [model.name[-1] for model in store.models()] == ["2", "4", "6"]
        assert store.check().problems == []
