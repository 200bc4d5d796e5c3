"""Transfer learning as the users of EvoStore know it: find the best ancestor, take its prefix,
train the rest, store what changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from . import tensors
from .errors import InvalidError, NotFoundError
from .graph import Graph
from .match import Match
from .store import Store

Id = int | str


class TransferMethods:
    """One flow: `transfer` finds the ancestor and fills the prefix, the user freezes it and trains,
    `store` keeps what is new. What `transfer` found goes on into `store`: the composition is asked
    for once."""

    def __init__(self, store: Store | str | os.PathLike[str]) -> None:
        self.models = store if isinstance(store, Store) else Store(store)
        self._matches: dict[Id, Match] = {}

    def transfer(
        self, model: Any, id: Id, tags: dict[str, str] | None = None
    ) -> tuple[list[str], Id | None]:
        """Fills the layers that the best stored model has too; gives their names and its id, or
        ([], None). What it found is held until `store` or `retire` of this id."""
        self._forget(id)
        match = self.models.find(model, tags=tags, exclude=[str(id)])
        if match is None:
            return [], None
        self.models.load(match, into=model)
        self._matches[id] = match
        return tensors.layer_names(model, match.layers), _like(match.model.name, id)

    def store(
        self, id: Id, model: Any, prefix: Iterable[str] = (), val_acc: float | None = None
    ) -> bool:
        """Stores a model. What equals the ancestor's is not written again; `prefix` are the layers
        that `transfer` gave, and need a `transfer` before."""
        match = self._matches.get(id)
        if match is None and next(iter(prefix), None) is not None:
            raise InvalidError(
                f"model '{id}' is stored without its prefix, but nothing was transferred to it"
            )
        metrics = {} if val_acc is None else {"val_acc": float(val_acc)}
        self.models.save(str(id), model, match=match, metrics=metrics)
        self._forget(id)
        return True

    def get_composition(self, id: Id, lids: Sequence[str] | None = None) -> list[int]:
        """The id, in the store, of the model that wrote each tensor; 0 for one that is not there.
        None: all in order."""
        owners = self.models[str(id)].owners
        return [owners.get(name, 0) for name in (owners if lids is None else lids)]

    def retire(self, id: Id) -> None:
        """Removes a model; what others inherited lives on."""
        self._forget(id)
        self.models.retire(str(id))

    def get_time_stamps(self, key: str | None = None) -> Any:
        """[begin, end, ...] of an operation, or of all by name, in ns."""
        stamps = self.models.get_time_stamps(key)
        return stamps if key is None else stamps[key]

    def clear_time_stamps(self, key: str | None = None) -> None:
        """Forgets them."""
        self.models.clear_time_stamps(key)

    def _forget(self, id: Id) -> None:
        match = self._matches.pop(id, None)
        if match is not None:
            match.release()

    def close(self) -> None:
        """Lets go of what is held, and of the store."""
        for id in list(self._matches):
            self._forget(id)
        self.models.close()


def _like(name: str, id: Id) -> Id:
    """A stored name as an id of the kind that the caller uses."""
    return int(name) if isinstance(id, int) and name.isdigit() else name


class LayerStore:
    """The level below, with numbers for models, layers and tensors: tensors are handed over first,
    and the model is published, whole, by `store_meta`. A tensor's number is that of its layer or
    one of the few after it."""

    _NEAR = 1024  # tensors of one layer

    def __init__(self, store: Store | str | os.PathLike[str]) -> None:
        self.models = store if isinstance(store, Store) else Store(store)
        self._handed: dict[int, dict[int, Any]] = {}
        self._match: Match | None = None

    def store_layers(self, values: Sequence[Any], id: int, lids: Sequence[int]) -> None:
        """Hands over tensors of a model that is not published yet; they are read when it is."""
        self._handed.setdefault(int(id), {}).update(zip(map(int, lids), values, strict=True))

    def get_prefix(self, edges: Sequence[tuple[int, int]]) -> tuple[int, list[int]]:
        """The best model and the numbers of the layers it shares; (0, []) when there is none."""
        graph = _numbered(edges)
        self._match = self.models.find(graph)
        if self._match is None:
            return 0, []
        return int(self._match.model.name), [int(name) for name in self._match.layers]

    def get_composition(self, id: int, lids: Sequence[int]) -> list[int]:
        """The number of the model that wrote each tensor; 0 for one that is not there."""
        model = self.models[str(id)]
        writers = {one.id: one.name for one in self.models.models()}
        known = {_number(name): info.owner for name, info in model.tensors.items()}
        names = [writers.get(known.get(int(lid), 0)) for lid in lids]
        return [
            int(name) if name is not None else int(id) if int(lid) in known else 0
            for name, lid in zip(names, lids, strict=True)
        ]

    def read_layers(
        self, values: Sequence[Any], lids: Sequence[int], owners: Sequence[int]
    ) -> None:
        """Fills tensors, each from the model that is named beside it, or from what `get_prefix`
        found last: that lives on when its writer is retired."""
        wanted = dict(zip(map(int, lids), values, strict=True))
        if self._match is not None:
            held = {_number(name): name for name in self._match.tensors}
            mine = {held[lid]: wanted.pop(lid) for lid in list(wanted) if lid in held}
            if mine:
                self.models.load(self._match, into=mine, extra="ignore")
        by_owner: dict[int, dict[int, Any]] = {}
        for lid, owner in zip(map(int, lids), owners, strict=True):
            if lid in wanted:
                by_owner.setdefault(int(owner), {})[lid] = wanted[lid]
        for owner, some in by_owner.items():
            names = {_number(name): name for name in self.models[str(owner)].tensors}
            lost = [lid for lid in some if lid not in names]
            if lost:
                raise NotFoundError(f"model '{owner}' has no tensor {lost[0]}")
            into = {names[lid]: value for lid, value in some.items()}
            self.models.load(str(owner), into=into, extra="ignore")

    def store_meta(
        self,
        id: int,
        edges: Sequence[tuple[int, int]],
        lids: Sequence[int],
        owners: Sequence[int],
        val_acc: float | None = None,
    ) -> None:
        """Publishes a model: what was handed over, and what it inherits from the owners named."""
        graph = _numbered(edges)
        handed = self._handed.get(int(id), {})
        name = self._names(graph, lids)
        tree = {name[lid]: handed[lid] for lid in map(int, lids) if lid in handed}
        inherited = [
            (int(lid), int(owner))
            for lid, owner in zip(lids, owners, strict=True)
            if int(lid) not in handed
        ]
        tree.update(self._inherited(inherited, name))
        parent = str(inherited[0][1]) if inherited and str(inherited[0][1]) in self.models else None
        metrics = {} if val_acc is None else {"val_acc": float(val_acc)}
        self.models.save(
            str(id),
            {name[int(lid)]: tree[name[int(lid)]] for lid in lids},
            graph=graph,
            parent=parent if self._match is None else None,
            match=self._match if inherited else None,
            metrics=metrics,
        )
        self._handed.pop(int(id), None)

    def _inherited(self, pairs: list[tuple[int, int]], name: dict[int, str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._match is not None and pairs:
            held = {_number(key): key for key in self._match.tensors}
            wanted = [held[lid] for lid, _ in pairs if lid in held]
            loaded = self.models.load(self._match, tensors=wanted) if wanted else {}
            found = {name[_number(key)]: value for key, value in loaded.items()}
        for lid, owner in pairs:
            if name[lid] not in found:
                stored = {_number(key): key for key in self.models[str(owner)].tensors}
                if lid not in stored:
                    raise NotFoundError(f"model '{owner}' has no tensor {lid}")
                part = self.models.load(str(owner), tensors=[stored[lid]])
                found[name[lid]] = part[stored[lid]]
        return found

    def _names(self, graph: Graph, lids: Sequence[int]) -> dict[int, str]:
        """A tensor's name begins with its layer's: the nearest number at or below its own."""
        layers = sorted(int(name) for name in graph.names)
        names = {}
        for lid in map(int, lids):
            below = [layer for layer in layers if 0 <= lid - layer < self._NEAR]
            names[lid] = f"{below[-1]}.{lid}" if below else str(lid)
        return names

    def retire_model(self, id: int) -> None:
        """Removes a model; what others inherited lives on."""
        self.models.retire(str(id))

    def update_ref_counter(self, id: int, value: int) -> None:
        """The store counts by itself: only the end of a model is news."""
        if value < 0:
            self.retire_model(id)

    def get_time_stamps(self, name: str | None = None) -> list[int]:
        """Of an operation, or of all one after the other, in ns."""
        stamps = self.models.get_time_stamps(name)
        return [stamp for key in sorted(stamps) for stamp in stamps[key]]

    def get_num_time_stamps(self, name: str | None = None) -> int:
        """How many `get_time_stamps` gives."""
        return len(self.get_time_stamps(name))

    def clear_time_stamps(self, name: str | None = None) -> None:
        """Forgets them."""
        self.models.clear_time_stamps(name)

    def shutdown(self) -> None:
        """Closes the store."""
        self.models.close()


def _numbered(edges: Sequence[tuple[int, int]]) -> Graph:
    """Layers are equal when their numbers are. An edge that is there twice counts once: the
    original's users list an input as often as it is taken."""
    unique = list(dict.fromkeys((int(a), int(b)) for a, b in edges))
    vertices = dict.fromkeys(vertex for edge in unique for vertex in edge)
    return Graph([(str(v), str(v)) for v in vertices], [(str(a), str(b)) for a, b in unique])


def _number(name: str) -> int:
    return int(name.rpartition(".")[2])
