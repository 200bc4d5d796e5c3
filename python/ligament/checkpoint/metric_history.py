"""The metrics of a run by step, including those of checkpoints that were removed.

In a run that removes checkpoints (`keep`), every checkpoint stores the points of all earlier ones
in its meta, `{"history": {"steps": [...], "metrics": {name: [...]}}}`: the newest one has all
points, without another commit, and a copied checkpoint includes its run's history. A missing value
is null; a value that is not finite is a string. In a long run points are thinned out, so that the
text stays small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..store import Model

LIMIT = 2048  # numbers that a checkpoint stores: steps and values
_KEY = "history"

Metrics = dict[str, float]


@dataclass(frozen=True)
class Point:
    """The metrics of a step."""

    step: int
    metrics: Metrics = field(default_factory=dict)


def points(saved: Iterable[tuple[int, Model]]) -> list[Point]:
    """All points in the checkpoints of a run, by step. A step that was saved again has the metrics
    of the last save."""
    models = sorted(saved, key=lambda one: one[1].id)
    found: dict[int, Metrics] = {}
    for _, model in models:
        found.update(_decoded(model.meta))
    for step, model in models:
        found[step] = model.metrics
    return [Point(step, found[step]) for step in sorted(found) if found[step]]


def carried(saved: Iterable[tuple[int, Model]], step: int) -> dict[str, Any] | None:
    """The meta of the checkpoint of `step`: the points of earlier ones, at most LIMIT numbers; None
    if there are none."""
    known = _thinned([point for point in points(saved) if point.step != step])
    if not known:
        return None
    names = sorted({name for point in known for name in point.metrics})
    metrics = {name: [_plain(point.metrics.get(name)) for point in known] for name in names}
    return {_KEY: {"steps": [point.step for point in known], "metrics": metrics}}


def _thinned(known: list[Point]) -> list[Point]:
    """Few enough points, at about even distances over the whole run: those between the closest
    neighbours are removed. The first and the last are kept."""
    names = {name for point in known for name in point.metrics}
    room = max(LIMIT // (1 + len(names)), 2)
    while len(known) > room:
        closest_first = sorted(
            range(1, len(known) - 1), key=lambda i: known[i + 1].step - known[i - 1].step
        )
        gone: set[int] = set()
        for i in closest_first:
            if len(known) - len(gone) == room:
                break
            if gone.isdisjoint((i - 1, i + 1)):  # whose distances this would change
                gone.add(i)
        known = [point for i, point in enumerate(known) if i not in gone]
    return known


def _plain(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)


def _decoded(meta: Any) -> dict[int, Metrics]:
    """The points in a meta. Users may replace the meta: anything else in it is ignored."""
    try:
        steps, metrics = meta[_KEY]["steps"], meta[_KEY]["metrics"]
        return {
            int(step): {n: float(v[i]) for n, v in metrics.items() if v[i] is not None}
            for i, step in enumerate(steps)
        }
    except (TypeError, KeyError, ValueError, IndexError, AttributeError):
        return {}
