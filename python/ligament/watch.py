"""Watching the changes of a store."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import _core
from .description import Model
from .errors import NotFoundError

if TYPE_CHECKING:
    from .store import Store

_KINDS = {1: "saved", 2: "replaced", 3: "retired", 4: "alias", 5: "updated"}


@dataclass(frozen=True)
class Event:
    """A change of a store. `version` is the store's version after the commit; events of one commit
    share it, and `more` of them follow. `kind` is "saved", "replaced", "retired", "alias" or
    "updated". `name` is the model's, or the alias. `other` is the name before a rename, the name of
    the model of an alias, otherwise None. `id` is the model's, None for an alias that was removed.
    `date` is the time of the commit (UTC)."""

    version: int
    kind: str
    name: str
    other: str | None
    id: int | None
    date: datetime.datetime
    more: int = 0
    _store: Store | None = field(default=None, repr=False, compare=False)

    @property
    def model(self) -> Model | None:
        """The model that the event refers to, in its current state; None if it is no longer in the
        store. Looked up at each access."""
        if self._store is None or self.id is None:
            return None
        try:
            return Model(self._store, self._store._describe(self.id))
        except NotFoundError:
            return None


class Watch:
    """An iterator over the changes of a store (`Store.watch`). It ends when there was no change for
    `timeout` seconds; another loop continues from there."""

    def __init__(
        self, store: Store, name: str | None, since: int | None, timeout: float | None
    ) -> None:
        self._store, self._name, self._timeout = store, name, timeout
        self._core = _core.Watch(store._core, name, since)
        self._closed = False

    @property
    def since(self) -> int:
        """The version to pass as `since` to continue later: every event up to it was delivered.
        While a commit is partly delivered, it is the version of the previous commit."""
        return self._core.since

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Event:
        found = self._core.next(self._timeout)
        if found is None:
            raise StopIteration
        version, date_ns, kind, model, name, other, more = found
        date = datetime.datetime.fromtimestamp(date_ns / 1e9, datetime.UTC)
        return Event(
            version, _KINDS[kind], name, other or None, model or None, date, more, self._store
        )

    def close(self) -> None:
        """Ends the watch, including a wait in another thread."""
        self._closed = True
        self._core.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        what = "" if self._name is None else f" {self._name!r}"
        state = " (closed)" if self._closed else f" since {self.since}"
        return f"<ligament.Watch{what} of {self._store.uri}{state}>"
