"""What became of what."""

from __future__ import annotations

from dataclasses import dataclass, field

from .description import Model


@dataclass(frozen=True)
class Lineage:
    """A model, what it was derived from (its parent first, as far as they are still there) and
    what was derived from it (the oldest first)."""

    model: Model
    ancestors: list[Model] = field(default_factory=list)
    children: list[Model] = field(default_factory=list)


@dataclass(frozen=True)
class Diff:
    """The names of the tensors of two models: equal, with other bytes, with another shape or
    dtype, only in the first, only in the second. `bytes` has the same names and tells how many
    bytes these are."""

    same: list[str]
    changed: list[str]
    reshaped: list[str]
    removed: list[str]
    added: list[str]
    bytes: dict[str, int]

    def __bool__(self) -> bool:
        """True when there is a difference."""
        return bool(self.changed or self.reshaped or self.removed or self.added)
