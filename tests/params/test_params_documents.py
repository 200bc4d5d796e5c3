"""What the documents show of the parameter manager works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")


@pytest.mark.parametrize("name", ["docs/params.md", "README.md"])
def test_blocks(root: Path, name: str, tmp_path: Path) -> None:
    found = re.findall(r"^```python\n(.*?)^```$", (root / name).read_text(), re.M | re.S)
    shown = [code for code in found if "from ligament import params" in code]
    assert shown
    for code in shown:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, code + done.stderr
