"""The kernel in the tree is the one that was compiled."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


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


def test_older_drivers_take_the_ptx(root: Path) -> None:
    text = (root / "src/tensor/cuda/block_hashes.ptx").read_text()
    assert "\n.version 6.3\n.target sm_70\n" in text
    assert ".entry ligament_hash_blocks(" in text
