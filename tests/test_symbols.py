"""What the library exports: the listed names, all of them declared in a public header.

After a deliberate change: .venv/bin/python tests/test_symbols.py writes tests/symbols.txt anew.
"""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "python/ligament/lib/libligament.so.0"
LISTED = ROOT / "tests/symbols.txt"


def exported() -> list[str]:
    command = ["nm", "-D", "--defined-only", "--format=posix", str(LIBRARY)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in out.splitlines()]
    return sorted(row[0].split("@")[0] for row in rows if row[1] != "A")


def declared() -> list[str]:
    names = set()
    for header in (ROOT / "include/ligament").glob("*.h"):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
        names |= set(re.findall(r"^LIG_API\b[^;(]*?\b(lig_\w+)\s*[\[(;]", text, flags=re.M))
    return sorted(names)


def test_only_lig():
    assert [name for name in exported() if not name.startswith("lig_")] == []


def test_exports_are_the_listed_ones():
    assert exported() == LISTED.read_text().split()


def test_exports_are_the_declared_ones():
    assert sorted(set(declared()) - set(exported())) == [], "declared and not there"
    assert sorted(set(exported()) - set(declared())) == [], "there and not declared"


def test_version_node(library):
    command = ["nm", "-D", "--defined-only", "--with-symbol-versions", str(library)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "lig_version@@LIGAMENT_0" in out


if __name__ == "__main__":
    LISTED.write_text("\n".join(exported()) + "\n")
