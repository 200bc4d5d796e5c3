"""Targets and whether they were met, in the same form for every benchmark."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Bar:
    what: str
    value: float
    bar: float
    at_least: bool = False
    unit: str = "x"
    against: str = ""

    @property
    def met(self) -> bool:
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    def cells(self) -> list[str]:
        sign = ">=" if self.at_least else "<="
        unit = "" if self.unit in ("", "x") else f" {self.unit}"
        verdict = "met" if self.met else "MISSED"
        return [self.what, f"{self.value:.3g}{unit}", f"{sign} {self.bar:g}{unit}", verdict]

    def record(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "met": self.met}


def from_record(record: dict[str, Any]) -> Bar:
    fields = {field.name for field in dataclasses.fields(Bar)}
    return Bar(**{name: value for name, value in record.items() if name in fields})


def show(bar: Bar) -> Bar:
    what, value, limit, verdict = bar.cells()
    print(f"  {what:<62} {value:>10}  (bar {limit}) {verdict}")
    return bar


def report(bars: list[Bar], path: Path | None) -> int:
    """Prints the bars and writes them to a file; returns the exit status."""
    for bar in bars:
        show(bar)
    if path:
        path.write_text(json.dumps({"bars": [bar.record() for bar in bars]}, indent=1))
    return 0 if all(bar.met for bar in bars) else 1


def skip(missing: str, path: Path | None) -> int:
    """The same for a benchmark that cannot run here."""
    print(f"skipped: {missing}")
    if path:
        path.write_text(json.dumps({"skipped": missing}))
    return 0


def collect(found: Any) -> list[Bar]:
    """Every bar in the JSON of a benchmark, however deep."""
    if isinstance(found, dict):
        bars = [from_record(each) for each in found.get("bars", [])]
        return bars + [
            bar for name, each in found.items() if name != "bars" for bar in collect(each)
        ]
    if isinstance(found, list):
        return [bar for each in found for bar in collect(each)]
    return []
