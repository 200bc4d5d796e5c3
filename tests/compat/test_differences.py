"""docs/compat.md, "Differences from the originals": every row is complete and backed by a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = ["id", "original", "difference", "reason", "test"]
ORIGINALS = {"TMCI", "StepMesh", "AdaPM", "FTPipe", "DCP"}  # EvoStore: nothing differs
MOST_ROWS = 8
FEWEST_WORDS = 5


class Row(NamedTuple):
    """One difference."""

    id: str
    original: str
    difference: str
    reason: str
    test: str


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def section() -> list[str]:
    """The lines of the table, its head first."""
    text = (ROOT / "docs/compat.md").read_text("utf-8")
    body = text.partition("\n## Differences from the originals\n")[2].partition("\n## ")[0]
    return [line for line in body.splitlines() if line.startswith("|")]


def table() -> list[Row]:
    return [Row(*cells(line)) for line in section()[2:]]


def test_the_table_has_one_head_and_few_rows() -> None:
    head, rule, *rows = section()
    assert cells(head) == COLUMNS and set(rule) <= set("|-: ")
    assert 1 <= len(rows) <= MOST_ROWS
    assert all(len(cells(row)) == len(COLUMNS) for row in rows)
    ids = [row.id for row in table()]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("row", table(), ids=lambda row: row.id)
def test_a_row_is_complete_and_its_test_exists(row: Row) -> None:
    assert row.original in ORIGINALS
    assert re.fullmatch(rf"{row.original.lower()}-[a-z0-9-]+", row.id)
    assert len(row.difference.split()) >= FEWEST_WORDS and len(row.reason.split()) >= FEWEST_WORDS
    path, name = row.test.strip("`").split("::")
    assert path.startswith("tests/")
    assert name in names_of_tests(ROOT / path), f"{path} has no test {name}"


def names_of_tests(path: Path) -> set[str]:
    """The tests of a Python file, or of a C program for cmocka."""
    source = path.read_text("utf-8")
    if path.suffix == ".c":
        return set(re.findall(r"cmocka_unit_test\w*\((\w+)", source))
    found = {n.name for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)}
    return {name for name in found if name.startswith("test_")}
