"""Which checkpoints of a run are kept and which are removed after a save (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isnan, nan
from numbers import Integral
from typing import Any, TypeVar

from ..errors import InvalidError
from ..store import Model

T = TypeVar("T")


def check_keep(keep: Any) -> None:
    """Rejects what is not a count, and a count that would remove every checkpoint."""
    if keep is None:
        return
    if isinstance(keep, bool) or not isinstance(keep, Integral) or int(keep) < 1:
        raise InvalidError(f"keep={keep!r}: expected an int of at least 1, or None")


def beyond(saved: Sequence[T], keep: int | None) -> Sequence[T]:
    """Those of `saved`, oldest first, that are not among the last `keep`."""
    return saved[: max(len(saved) - keep, 0)] if keep is not None else ()


@dataclass(frozen=True)
class Retention:
    """`keep`: how many of the latest checkpoints to keep, None for all. `best=(metric, "min" or
    "max")`: the best checkpoint is kept too."""

    keep: int | None = None
    best: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        check_keep(self.keep)
        pair = isinstance(self.best, (tuple, list)) and len(self.best) == 2
        if self.best is not None and not (pair and self.best[1] in ("min", "max")):
            raise InvalidError(f"best={self.best!r}: expected (metric, 'min' or 'max')")

    def best_step(self, saved: Iterable[tuple[int, Model]]) -> int | None:
        """The step with the best value of the metric. Models without the metric, or with NaN, are
        ignored; of equal values the highest step is chosen."""
        if self.best is None:
            return None
        metric, mode = self.best
        sign = 1 if mode == "max" else -1
        found = [
            (sign * model.metrics[metric], step)
            for step, model in saved
            if not isnan(model.metrics.get(metric, nan))
        ]
        return max(found)[1] if found else None

    def removable(self, saved: Sequence[tuple[int, Model]], newest: int) -> list[Model]:
        """The models to retire after step `newest` was committed. The age of a checkpoint is its
        id, not its step: a run that resumed from an earlier step saves lower steps than it already
        has. Ids increase with the saves of a process, but not across processes, so the checkpoint
        that was just saved counts as the newest regardless of its id."""
        best = self.best_step(saved)
        by_age = sorted(saved, key=lambda one: (one[0] == newest, one[1].id))
        return [model for step, model in beyond(by_age, self.keep) if step != best]
