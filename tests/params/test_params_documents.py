"""What the document of the parameter manager shows works; tests/test_examples.py has README.md."""

from __future__ import annotations

import re
from pathlib import Path

from warm_python import WarmPython


def test_blocks(root: Path, warm_torch: WarmPython, tmp_path: Path) -> None:
    text = (root / "docs/params.md").read_text()
    found = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    shown = [code for code in found if "from ligament import params" in code]
    assert shown
    for code in shown:
        done = warm_torch.run("-c", code, cwd=tmp_path)
        assert done.returncode == 0, code + done.stderr
