"""Descriptions of stored models."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _core, notebook, tensors
from .plural import count

if TYPE_CHECKING:
    from .store import Store


@dataclass(frozen=True)
class TensorInfo:
    """The description of a stored tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    owner: int
    fingerprint: str
    tied: str | None = None
    pack: int = field(default=0, repr=False)
    offset: int = field(default=0, repr=False)


class Model:
    """The description of one version of a stored model. It does not change."""

    def __init__(self, store: Store, core: _core.Model) -> None:
        self._store, self._core = store, core
        self._tensors: dict[str, TensorInfo] | None = None

    @property
    def id(self) -> int:
        """Never used twice in a store."""
        return self._core.id

    @property
    def name(self) -> str:
        """The name it was saved under, or was renamed to."""
        return self._core.name

    @property
    def parent(self) -> str | None:
        """The name of the model it was derived from."""
        return self._core.parent_name or None

    @property
    def bytes(self) -> int:
        """The size of all its tensors."""
        return self._core.bytes

    @property
    def own_bytes(self) -> int:
        """The size of the tensors that its own save wrote."""
        return self._core.own_bytes

    @property
    def metrics(self) -> dict[str, float]:
        """Numbers by name."""
        return self._core.metrics

    @property
    def tags(self) -> dict[str, str]:
        """Strings by name."""
        return self._core.tags

    @property
    def meta(self) -> Any:
        """The value passed as `meta`, or None."""
        return json.loads(self._core.meta) if self._core.meta else None

    @property
    def created(self) -> datetime.datetime:
        """The time it was saved (UTC)."""
        seconds = self._core.created_ns / 1e9
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC)

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """Its tensors in order, by name."""
        if self._tensors is None:
            if not self._core.complete:
                self._core = self._store._describe(self.id)
            rows = self._core.tensors()
            self._tensors = {row[0]: _info(row, rows) for row in rows}
        return self._tensors

    @property
    def owners(self) -> dict[str, int]:
        """The id of the model that wrote each tensor."""
        return {name: info.owner for name, info in self.tensors.items()}

    def _is_of(self, store: Store) -> bool:
        """Whether it was described by this store, or by another handle of the same place. Each
        "mem:" is a separate place."""
        mine = self._store
        return mine is store or (mine.uri == store.uri and mine.uri != "mem:")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and (self.id, self._store.uri) == (
            other.id,
            other._store.uri,
        )

    def __hash__(self) -> int:
        return hash((self.id, self._store.uri))

    def __repr__(self) -> str:
        tensors = count(self._core.tensor_count, "tensor")
        return f"<ligament.Model {self.name!r} of {tensors}, {count(self.bytes, 'byte')}>"

    def _repr_html_(self) -> str:
        return notebook.model(self)


def _info(row: _core.StoredTensor, rows: list[_core.StoredTensor]) -> TensorInfo:
    name, code, shape, bytes_, owner, pack, offset, fingerprint, tied = row
    twin = rows[tied][0] if tied >= 0 else None
    return TensorInfo(
        name, tensors.name_of(code), shape, bytes_, owner, fingerprint.hex(), twin, pack, offset
    )


@dataclass(frozen=True)
class Report:
    """The result of `check` or `compact`."""

    models: int
    tensors: int
    packs: int
    bytes: int
    freed_bytes: int
    leftover_bytes: int
    repaired: int
    problems: list[str]

    def __bool__(self) -> bool:
        """True if there are no problems."""
        return not self.problems
