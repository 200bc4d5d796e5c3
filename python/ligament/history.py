"""Lineage and differences of models."""

from __future__ import annotations

from dataclasses import dataclass, field

from .description import Model


@dataclass(frozen=True)
class Lineage:
    """A model, its ancestors (the parent first, as far as they still exist) and its children (the
    oldest first)."""

    model: Model
    ancestors: list[Model] = field(default_factory=list)
    children: list[Model] = field(default_factory=list)


@dataclass(frozen=True)
class Diff:
    """The names of the tensors of two models: equal, with different bytes, with a different shape
    or dtype, only in the first, only in the second. `bytes` has their sizes."""

    same: list[str]
    changed: list[str]
    reshaped: list[str]
    removed: list[str]
    added: list[str]
    bytes: dict[str, int]

    def __bool__(self) -> bool:
        """True if there is a difference."""
        return bool(self.changed or self.reshaped or self.removed or self.added)
