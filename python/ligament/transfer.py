"""Transfer learning with EvoStore's interface: find the best ancestor, load its prefix, train the
rest, store the changes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from . import _core, tensors
from .errors import InvalidError, UnsupportedError
from .graph import Graph
from .match import Match
from .store import Store

Id = int | str
_WRITER = "writer."  # before the number, in the store, of a model that wrote tensors


class TransferMethods:
    """`transfer` finds the ancestor and fills the prefix, the user freezes it and trains, and
    `store` saves the new tensors. `store` uses the result of `transfer`: the composition is
    computed once."""

    def __init__(
        self,
        store: Store | str | os.PathLike[str] | None = None,
        *,
        hosts: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    ) -> None:
        """`store`, or `hosts`: one server, as "host:port", a URI, an address file, or "@PATH"
        for an address file that need not exist yet."""
        if (store is None) == (hosts is None):
            raise InvalidError("TransferMethods takes either a store or hosts=")
        if hosts is not None:
            store = Store(_place(hosts))
        assert store is not None
        self.models = store if isinstance(store, Store) else Store(store)
        self._matches: dict[Id, Match] = {}

    def transfer(
        self, model: Any, id: Id, tags: dict[str, str] | None = None
    ) -> tuple[list[str], Id | None]:
        """Fills the layers shared with the best stored model; returns their names and its id, or
        ([], None). The result is leased until `store` or `retire` of this id."""
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
        """Stores a model. Tensors that equal the ancestor's are not written again; `prefix` are the
        layers that `transfer` returned, and requires a previous `transfer`. Returns False and
        stores nothing if the prefix is the whole model."""
        match, given = self._matches.get(id), set(prefix)
        if match is None and given:
            raise InvalidError(
                f"model '{id}' is stored without its prefix, but nothing was transferred to it"
            )
        if given and given.issuperset(tensors.layer_names(model, Graph.of(model).names)):
            return False
        metrics = {} if val_acc is None else {"val_acc": float(val_acc)}
        tags = {} if match is None else self._writers(match)
        self.models.save(str(id), model, match=match, metrics=metrics, tags=tags)
        self._forget(id)
        return True

    def _writers(self, match: Match) -> dict[str, str]:
        """Tags with the ids of the writers of inherited tensors, which may be retired."""
        parent = match.model
        known = parent.tags | {f"{_WRITER}{parent.id}": parent.name}
        keys = (f"{_WRITER}{owner}" for owner in set(match.owners.values()))
        return {key: known[key] for key in keys if key in known}

    def get_composition(self, id: Id, lids: Sequence[str] | None = None) -> list[Id]:
        """The id of the model that wrote each tensor; 0 for a missing one. None: all in order."""
        model = self.models[str(id)]
        owners = model.owners
        names = {
            int(key.removeprefix(_WRITER)): name
            for key, name in model.tags.items()
            if key.startswith(_WRITER)
        } | {model.id: model.name}
        if not names.keys() >= set(owners.values()):  # equal bytes of a model that is no ancestor
            names = {one.id: one.name for one in self.models.models()} | names
        wanted = owners if lids is None else lids
        return [_like(names.get(owners[name], "0"), id) if name in owners else 0 for name in wanted]

    def retire(self, id: Id) -> None:
        """Removes a model; tensors that others inherited are kept."""
        self._forget(id)
        self.models.retire(str(id))

    def get_time_stamps(self, key: str | None = None) -> Any:
        """[begin, end, ...] of an operation, or of all operations by name, in ns. For a served
        store they are measured by the server, for all clients; load and read are measured in this
        process."""
        stamps = self.models.get_time_stamps(key)
        return stamps if key is None else stamps[key]

    def clear_time_stamps(self, key: str | None = None) -> None:
        """Clears the timestamps of an operation, or all of them."""
        self.models.clear_time_stamps(key)

    def _forget(self, id: Id) -> None:
        match = self._matches.pop(id, None)
        if match is not None:
            match.release()

    def shutdown(self) -> None:
        """Ends the server of a served store, which must allow it, and closes the store."""
        try:
            self.models.shutdown_server()
        except UnsupportedError:  # a store without a server
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Releases all leases and closes the store."""
        for id in list(self._matches):
            self._forget(id)
        self.models.close()


def _place(hosts: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> str:
    given = [hosts] if isinstance(hosts, (str, os.PathLike)) else list(hosts)
    if len(given) != 1:
        raise InvalidError(
            f"hosts names {len(given)} servers; TransferMethods uses one "
            "(ligament.compat's DataStatesModelRepo takes several)"
        )
    return _core.served_uri(os.fspath(given[0]))


def _like(name: str, id: Id) -> Id:
    """A stored name as an id of the type that the caller uses."""
    return int(name) if name.isdigit() and not isinstance(id, str) else name
