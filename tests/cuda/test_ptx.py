"""The kernels in the tree are those that were compiled."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def check(root: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, root / "tools/ptx.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_the_ptx_was_made_of_the_source(root: Path) -> None:
    assert check(root) == (0, "")


def test_a_changed_source_is_noticed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    shutil.copy(root / "tools/ptx.py", tmp_path / "tools")
    shutil.copytree(root / "src/tensor/cuda", tmp_path / "src/tensor/cuda")
    with (tmp_path / "src/tensor/cuda/block_hashes.cu").open("a") as file:
        file.write("\n")
    assert check(tmp_path) == (
        1,
        "block_hashes.ptx was not made of this block_hashes.cu: run tools/ptx.py\n",
    )


@pytest.mark.parametrize(
    ("file", "kernel"),
    [
        ("tensor/cuda/block_hashes", "ligament_hash_blocks"),
        ("params/device/row_kernels", "ligament_rows_find"),
        ("mesh/device/flag_kernels", "ligament_flag_wait"),
    ],
)
def test_older_drivers_take_the_ptx(root: Path, file: str, kernel: str) -> None:
    text = (root / f"src/{file}.ptx").read_text()
    assert "\n.version 6.3\n.target sm_70\n" in text
    assert f".entry {kernel}(" in text
