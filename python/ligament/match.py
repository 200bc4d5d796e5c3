"""The result of a search, and loading it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _core, notebook
from .description import Model, TensorInfo
from .graph import Graph
from .load import Loader, Result
from .plural import count

if TYPE_CHECKING:
    from .store import Store


class Match:
    """A stored model and the layers it shares with the query model. It is a lease: the tensors
    stay until it is released (or garbage-collected), expires, or its process ends."""

    def __init__(self, store: Store, core: _core.Match, graph: Graph) -> None:
        self._store, self._core, self._graph = store, core, graph
        self._tensors: dict[str, TensorInfo] | None = None

    @property
    def model(self) -> Model:
        """The stored model."""
        return Model(self._store, self._core.model)

    @property
    def layers(self) -> list[str]:
        """The common layers, by their names in the query model."""
        return [self._graph._layers.names[i] for i in self._core.layers]

    @property
    def length(self) -> int:
        """The number of common layers."""
        return len(self._core.layers)

    def __len__(self) -> int:
        return self.length

    def __bool__(self) -> bool:
        return True

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """The descriptions of their tensors, by the name in the query model; `.name` is the name in
        the stored model."""
        if self._tensors is None:
            stored = list(self.model.tensors.values())
            self._tensors = {name: stored[at] for name, at in self._core.tensors}
        return self._tensors

    @property
    def owners(self) -> dict[str, int]:
        """The id of the model that wrote each of these tensors, by the name in the query model."""
        return {name: info.owner for name, info in self.tensors.items()}

    @property
    def bytes(self) -> int:
        """The size of these tensors."""
        return self._core.bytes

    @property
    def expires(self) -> datetime.datetime | None:
        """When the lease expires (UTC). None: there is no lease, because it was released or the
        store is read-only."""
        at = self._core.expires_ns
        return datetime.datetime.fromtimestamp(at / 1e9, datetime.UTC) if at else None

    def release(self) -> None:
        """Ends the lease; the match can no longer be loaded or inherited from."""
        self._core.release()

    def __enter__(self) -> Match:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        held = "" if self.expires else ", released" if self._core.released else ", not pinned"
        what = f"{self.length} of {count(len(self._graph), 'layer')}"
        what += f", {count(self.bytes, 'byte')}{held}"
        return f"<ligament.Match with {self._core.model.name!r}: {what}>"

    def _repr_html_(self) -> str:
        return notebook.match(self, len(self._graph))


class MatchLoader(Loader):
    """One load of a match, by the names in the query model."""

    def __init__(self, source: _core.Ref, match: Match) -> None:
        super().__init__(source)
        stored = self.model.tensors()
        pairs = match._core.tensors
        self.names = [name for name, _ in pairs]
        self.index = {name: i for i, name in enumerate(self.names)}
        at = {place: i for i, (_, place) in enumerate(pairs)}
        self._rows = [
            (name, *stored[place][1:8], at.get(stored[place][8], -1)) for name, place in pairs
        ]
        self._stored_names = {name: stored[place][0] for name, place in pairs}

    def _fetch(
        self, batch: _core.Batch, names: Sequence[str], slices: tuple[Any, ...] | None = None
    ) -> None:
        stored = tuple(self._stored_names[name] for name in names)
        self.source.read(batch, stored, slices or (None,) * len(stored))

    def fill_prefix(self, into: Any, ignore: bool, cast: bool) -> Result:
        """Fills the common tensors; the rest is unchanged."""
        return self.fill(into, True, ignore, cast, False)

    def _tree(self, made: dict[str, Any]) -> Any:
        return made

    def _map_some(self, reads: list[Any], takers: list[Any], mapped: bool) -> None:
        """Maps nothing: tensors without memory take over what was read."""
