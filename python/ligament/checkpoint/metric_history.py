"""The metrics of a run over its steps, also of checkpoints that were removed since.

Every checkpoint of a run that removes some (`keep`) carries the points of those before it in its
meta, `{"history": {"steps": [...], "metrics": {name: [...]}}}`: the newest one has them all, with
no further commit, and a copy of a checkpoint brings its run's history along. A value that a step
lacks is null; one that is not finite is a string. Older points are thinned out, so that the text
stays small however long a run is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..store import Model

LIMIT = 2048  # numbers that a checkpoint carries: steps and values
_KEY = "history"

Metrics = dict[str, float]


@dataclass(frozen=True)
class Point:
    """The metrics of a step."""

    step: int
    metrics: Metrics = field(default_factory=dict)


def points(saved: Iterable[tuple[int, Model]]) -> list[Point]:
    """All points that the checkpoints of a run know, by step. A step that was saved again has the
    metrics of the last time."""
    models = sorted(saved, key=lambda one: one[1].id)
    found: dict[int, Metrics] = {}
    for _, model in models:
        found.update(_decoded(model.meta))
    for step, model in models:
        found[step] = model.metrics
    return [Point(step, found[step]) for step in sorted(found) if found[step]]


def carried(saved: Iterable[tuple[int, Model]], step: int) -> dict[str, Any] | None:
    """The meta of the checkpoint of `step`: the points of those before it, at most LIMIT numbers;
    None when there are none."""
    known = _thinned([point for point in points(saved) if point.step != step])
    if not known:
        return None
    names = sorted({name for point in known for name in point.metrics})
    metrics = {name: [_plain(point.metrics.get(name)) for point in known] for name in names}
    return {_KEY: {"steps": [point.step for point in known], "metrics": metrics}}


def _thinned(known: list[Point]) -> list[Point]:
    """Every second point goes until few enough are left; the newest stays. What is added later is
    at full resolution, so that the oldest points are the farthest apart."""
    while len(known) > 1 and _numbers(known) > LIMIT:
        known = known[::-1][::2][::-1]
    return known


def _numbers(known: list[Point]) -> int:
    return len(known) * (1 + len({name for point in known for name in point.metrics}))


def _plain(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)


def _decoded(meta: Any) -> dict[int, Metrics]:
    """The points in a meta. The meta is the user's to replace: whatever else it holds is none."""
    try:
        steps, metrics = meta[_KEY]["steps"], meta[_KEY]["metrics"]
        return {
            int(step): {n: float(v[i]) for n, v in metrics.items() if v[i] is not None}
            for i, step in enumerate(steps)
        }
    except (TypeError, KeyError, ValueError, IndexError, AttributeError):
        return {}
