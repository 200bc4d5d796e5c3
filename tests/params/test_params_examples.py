"""What the documents show of the parameter manager works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")


def blocks(path: Path) -> list[str]:
    found = re.findall(r"^```python\n(.*?)^```$", path.read_text(), re.M | re.S)
    return [one for one in found if "params" in one and "import" in one]


@pytest.mark.parametrize("name", ["docs/params.md", "README.md"])
def test_blocks(root: Path, name: str, tmp_path: Path) -> None:
    found = [one for one in blocks(root / name) if "from ligament import params" in one]
    assert found
    for code in found:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, code + done.stderr
