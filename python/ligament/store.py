"""The store: models by name, saved and loaded without a copy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat, Unpack, overload

from . import _core, arguments, credentials, notebook, place, tensors
from .arguments import FindOptions, LoadOptions, SaveOptions
from .async_saves import PendingSaves, Snapshot
from .description import Model, Report, TensorInfo
from .errors import Error, InvalidError, NotFoundError
from .export import SHARD_BYTES, export, renamed
from .graph import Graph, graphs_for
from .history import Diff, Lineage
from .load import Loader, Result
from .match import Match, MatchLoader
from .progress import Bar, wanted
from .ticket import Ticket, release_when_done
from .watch import Watch

if TYPE_CHECKING:
    from .checkpoint.metric_history import Point

_REPLACE = 1
_SNAPSHOT = Snapshot()


class Store:
    """Holds models by name. `mode`: "r" is read-only, "x" (or "w") creates a new store and fails if
    one exists, "a" opens the store or creates it."""

    def __init__(self, uri: str | bytes | os.PathLike[str], mode: str = "a") -> None:
        if mode not in ("r", "w", "x", "a"):
            raise InvalidError(f"mode {mode!r}: expected 'r', 'a', or 'x' ('w' is the same)")
        self._given = place.absolute(os.fsdecode(uri))
        self._mode = mode
        self._saves = PendingSaves()
        self._closed = False
        credentials.provide(self._given)
        self._core = _core.Store(place.with_mode(self._given, mode))

    # --- the handle -----------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """The URI, without options."""
        return self._core.uri or self._given

    def close(self) -> None:
        """Waits for a save in the background (and raises its error), then closes the store."""
        try:
            self._saves.close()
        finally:
            self._closed = True
            self._core.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " (closed)" if self._closed else ""
        return f"ligament.Store({self._given!r}, mode={self._mode!r}){state}"

    def _repr_html_(self) -> str:
        return repr(self) if self._closed else notebook.store(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # A store created with "x" exists by now.
        return (Store, (self._given, "r" if self._mode == "r" else "a"))

    def wait(self) -> None:
        """Waits for the save in the background; raises its failure once."""
        self._saves.settle()

    _settle = wait

    # --- save -----------------------------------------------------------------------------------

    @overload
    def save(
        self, name: str, model: Any, *, wait: Literal[True] = True, **options: Unpack[SaveOptions]
    ) -> Model: ...
    @overload
    def save(
        self, name: str, model: Any, *, wait: Literal[False], **options: Unpack[SaveOptions]
    ) -> Ticket[Model]: ...
    @overload
    def save(
        self, name: str, model: Any, *, wait: bool, **options: Unpack[SaveOptions]
    ) -> Model | Ticket[Model]: ...
    def save(
        self,
        name: str,
        model: Any,
        *,
        parent: str | Model | None = None,
        match: Match | None = None,
        metrics: Mapping[str, SupportsFloat] | None = None,
        tags: Mapping[str, arguments.Tag] | None = None,
        meta: Any = None,
        graph: Graph | Sequence[Graph] | None = None,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        replace: bool = False,
        wait: bool = True,
        snapshot: str | None = None,
        snapshot_bytes: int = Snapshot.room,
        gpu_reserve: float = Snapshot.gpu_reserve,
        progress: bool | None = None,
    ) -> Model | Ticket[Model]:
        """Saves a model or tree; on return it is durable. Tensors that equal those of the parent or
        the match or, from 64 KiB up, any stored tensor are not written again. `graph` (or `args`,
        as for `Graph.of`) is the graph that a search compares; the default is the model's own.

        `wait=False` returns a Ticket as soon as the previous asynchronous save of any thread has
        ended, and saves the state at the time of the call. Writes through a bare address are not
        detected; `snapshot="copy"` copies everything, in at most `snapshot_bytes` of memory.
        Tensors on a GPU are copied to spare memory of the GPU, of which `gpu_reserve` (a fraction
        below 1, or bytes) stays free; those that do not fit are written before the call returns."""
        saved: Model | Ticket[Model] = self._save(
            name,
            tensors.collect(model),
            parent=parent.name if isinstance(parent, Model) else parent,
            metrics=metrics,
            tags=tags,
            meta=meta,
            replace=replace,
            wait=wait,
            snapshot=Snapshot(snapshot, snapshot_bytes, gpu_reserve),
            progress=progress,
            related=(graphs_for(model, graph, args, kwargs), match._core if match else None),
        )
        return saved

    def _save(
        self,
        name: str,
        found: tensors.Collected,
        *,
        parent: str | None = None,
        metrics: Mapping[str, SupportsFloat] | None = None,
        tags: Mapping[str, arguments.Tag] | None = None,
        meta: Any = None,
        replace: bool = False,
        wait: bool = True,
        snapshot: Snapshot = _SNAPSHOT,
        progress: bool | None = None,
        after: Callable[[], None] = lambda: None,
        related: tuple[tuple[_core.Graph, ...], _core.Match | None] = ((), None),
    ) -> Any:
        snapshot.check()
        arguments.name(name)
        given = (arguments.metrics(metrics) or None, arguments.tags(tags) or None)
        options = (
            _REPLACE if replace else 0,
            parent,
            *given,
            _meta_text(meta),
            found.structure or None,
            *related,
            None,
        )
        if not wait:
            with self._saves.turn():
                self._saves.settle()
                return self._save_later(name, found, options, snapshot, after)
        self._saves.settle()
        batch = _core.Batch(found.names, tensors.lend(found.values))
        save = self._save_shown if wanted(progress) else self._core.save
        saved = Model(self, save(name, batch, options))
        after()
        return saved

    def _save_shown(self, name: str, batch: _core.Batch, options: _core.Options) -> _core.Model:
        ticket = self._core.save_start(name, batch, options)
        sizes = batch.sizes()
        with Bar(f"saving {name}", sum(sizes)) as bar:
            seen = gathered = 0
            while seen < len(sizes) and not ticket.done():
                done = min(ticket.progress(seen, 0.1), len(sizes))
                gathered += sum(sizes[seen:done])
                seen = done
                bar.update(gathered)
            ticket.wait()
            bar.update(sum(sizes))
        return ticket.model()

    def _save_later(
        self,
        name: str,
        found: tensors.Collected,
        options: _core.Options,
        snapshot: Snapshot,
        after: Callable[[], None],
    ) -> Ticket[Model]:
        def ended() -> None:
            inner.model()  # which releases the saved version: it may be replaced by now
            after()

        def finish() -> Model:
            watcher.join()
            return Model(self, inner.model())

        given = (found.names, found.values)
        inner, batch, arena = self._saves.start(self._core, name, given, options, snapshot)
        watcher = release_when_done(inner, batch, ended)
        ticket = Ticket(inner, finish, watcher)
        self._saves.add(ticket, arena)
        return ticket

    # --- load -----------------------------------------------------------------------------------

    @overload
    def load(
        self, name: str | Model | Match, into: None = None, **options: Unpack[LoadOptions]
    ) -> Any: ...
    @overload
    def load(
        self, name: str | Model | Match, into: object, **options: Unpack[LoadOptions]
    ) -> Result: ...
    def load(
        self,
        name: str | Model | Match,
        into: Any = None,
        *,
        like: Any = None,
        tensors: Sequence[str] | Mapping[str, Any] | str | None = None,
        framework: str | None = None,
        map: bool = False,
        missing: str = "error",
        extra: str = "error",
        cast: bool = False,
        device: Any = None,
        verify: bool = True,
        progress: bool | None = None,
    ) -> Any:
        """Fills `into` in place (every tensor is checked before any is changed) and returns the
        missing and extra names. Without `into`, returns the saved structure, as arrays or as
        tensors of `framework`. With `like`, for JAX, returns a new tree with the structure and
        devices of that tree. A match loads its tensors under the names of the query model; other
        tensors of `into` are unchanged."""
        if missing not in ("error", "keep") or extra not in ("error", "ignore"):
            raise InvalidError(
                f"missing={missing!r}, extra={extra!r}: missing must be 'error' or 'keep', "
                "extra must be 'error' or 'ignore'"
            )
        if into is not None and (device is not None or framework is not None):
            raise InvalidError(
                "`framework` and `device` apply to new tensors and cannot be combined with `into`"
            )
        if like is not None and not (into is tensors is framework is device is None):
            raise InvalidError("`like` cannot be combined with into, tensors, framework or device")
        if isinstance(name, Match):
            return self._load_match(name, into, tensors, framework, map, extra, cast, device)
        loader = Loader(self._resolve(name))
        loader.choose(tensors)
        loader.verify = verify
        loader.show = wanted(progress)
        if into is not None:
            # A pipeline stage requests only its own part of the model.
            part = extra == "ignore" or getattr(into, "IS_PART_OF_A_MODEL", False)
            return loader.fill(into, missing == "keep", part, cast, map)
        if like is not None:
            return loader.like(like, map, missing == "keep", extra == "ignore")
        return loader.whole(framework, map, device)

    def _load_match(
        self,
        match: Match,
        into: Any,
        tensors: Any,
        framework: str | None,
        map: bool,
        extra: str,
        cast: bool,
        device: Any,
    ) -> Any:
        if map:
            raise InvalidError("a match cannot be mapped: map its model")
        loader = MatchLoader(self._core.resolve(match._core), match)
        loader.choose(tensors)
        if into is not None:
            return loader.fill_prefix(into, extra == "ignore", cast)
        return loader.whole(framework, False, device)

    def _version(self, model: str | Model) -> str | int:
        """The core's argument for a model: for a model described by this store, its id, which
        identifies that version."""
        if isinstance(model, Model) and model._is_of(self):
            return model.id
        return _name_of(model)

    def _resolve(self, model: str | Model) -> _core.Ref:
        try:
            return self._core.resolve(self._version(model))
        except NotFoundError:
            if not isinstance(model, Model):
                raise
            raise NotFoundError(
                f"model '{model.name}' (id {model.id}) was replaced or retired since it "
                f"was looked up in {self.uri} (load it by name)"
            ) from None

    # --- find -----------------------------------------------------------------------------------

    @overload
    def find(
        self,
        model: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        *,
        k: Literal[1] = 1,
        **options: Unpack[FindOptions],
    ) -> Match | None: ...
    @overload
    def find(
        self,
        model: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        *,
        k: int,
        **options: Unpack[FindOptions],
    ) -> list[Match]: ...
    def find(
        self,
        model: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        *,
        tags: Mapping[str, arguments.Tag] | None = None,
        exclude: Iterable[str | Model] = (),
        prefer: str | None = "val_acc",
        k: int = 1,
        lease_s: float = 3600,
    ) -> Match | list[Match] | None:
        """Finds the stored model that shares the most layers with a model or Graph; a layer counts
        only if all its ancestors are shared. Returns a Match or None, or a list of the k best if
        k > 1. Ties: more bytes, then the metric `prefer` ("-loss": lower is better), then newer."""
        if k < 1:
            raise InvalidError(f"k={k}: expected at least 1")
        if not lease_s > 0:
            raise InvalidError(f"lease_s={lease_s}: expected a positive number of seconds")
        graph = model if isinstance(model, Graph) else Graph.of(model, args, kwargs)
        passed = [exclude] if isinstance(exclude, (str, Model)) else exclude
        found = self._core.find(
            graph._core,
            arguments.tags(tags) or None,
            tuple(one.name if isinstance(one, Model) else one for one in passed),
            prefer,
            k,
            min(int(lease_s * 1e9), 1 << 62),
        )
        matches = [Match(self, core, graph) for core in found]
        return matches if k > 1 else matches[0] if matches else None

    # --- contents -------------------------------------------------------------------------------

    def _describe(self, id: int) -> _core.Model:
        return self._core.model(id)

    def models(
        self,
        name: str | None = None,
        tags: Mapping[str, arguments.Tag] | None = None,
        order: str | None = None,
        limit: int | None = None,
    ) -> list[Model]:
        """Returns the models whose names match the pattern and that have all of the tags, sorted
        by `order` ("-val_acc": largest first)."""
        if limit is not None and limit < 0:
            raise InvalidError(f"limit={limit}: expected None or at least 0")
        if limit == 0:
            return []
        found = self._core.models(name, arguments.tags(tags) or None, order, limit or 0)
        return [Model(self, core) for core in found]

    def __getitem__(self, name: str) -> Model:
        return Model(self, self._core.model(arguments.name(name)))

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        try:
            self._core.model(name)
        except NotFoundError:
            return False
        return True

    def __len__(self) -> int:
        return int(self._core.stat()["models"])

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter([model.name for model in self.models()])

    def aliases(self) -> dict[str, str]:
        """The model that each alias refers to."""
        return self._core.aliases()

    def stats(self) -> dict[str, Any]:
        """Counts, bytes, and how the store does I/O."""
        return self._core.stat()

    # --- change ---------------------------------------------------------------------------------

    def update(
        self,
        model: str | Model,
        *,
        metrics: Mapping[str, SupportsFloat] | None = None,
        tags: Mapping[str, arguments.Tag | None] | None = None,
        meta: Any = None,
        name: str | None = None,
    ) -> Model:
        """Adds or replaces metrics and tags (None removes a tag), the meta or the name."""
        old = _name_of(model)
        changes = (arguments.metrics(metrics) or None, arguments.tags(tags, True) or None)
        self._core.update(old, *changes, _meta_text(meta), name)
        return self[name if name is not None else old]

    def alias(self, alias: str, model: str | Model | None) -> None:
        """Makes `alias` refer to the model; None removes it."""
        arguments.name(alias, "an alias")
        self._core.alias(alias, None if model is None else _name_of(model))

    def retire(self, model: str | Model, *, now: bool = False) -> None:
        """Removes a model, given by name or alias, and its aliases. Tensors that other models use
        are kept. A server with `--undelete` keeps the model for that time (see `restore`) unless
        `now` is true."""
        if now:
            self._core.retire_now(_name_of(model))
        else:
            self._core.retire(_name_of(model))

    def restore(self, name: str, as_: str | None = None) -> Model:
        """Restores the most recently retired model of this name, if the server still keeps it
        (`ligament serve --undelete`); `as_` is a new name. Its aliases are not restored."""
        self._core.restore(name, as_)
        return self[name if as_ is None else as_]

    # --- history --------------------------------------------------------------------------------

    def history(self, run: str = "default") -> list[Point]:
        """The metrics of a run of `ligament.checkpoint.Checkpointer` by step (`.step`, `.metrics`),
        including checkpoints that its `keep` has removed."""
        from .checkpoint import metric_history, runs

        saved = runs.saved(self, runs.check(run))
        if not saved:
            there = runs.names(self)
            raise NotFoundError(
                f"run {run!r} has no checkpoint in {self.uri} (existing runs: {there})"
            )
        return metric_history.points(saved)

    def lineage(self, model: str | Model) -> Lineage:
        """The ancestors and children of a model."""
        mine, ancestors, children = self._core.lineage(self._version(model))
        return Lineage(
            Model(self, mine),
            [Model(self, one) for one in ancestors],
            [Model(self, one) for one in children],
        )

    def diff(self, a: str | Model, b: str | Model) -> Diff:
        """Compares two models by fingerprint. Tensors that were saved by different numbers of ranks
        are read, and their bytes compared."""
        return Diff(*self._resolve(a).diff(self._resolve(b)))

    def export(
        self,
        name: str | Model,
        path: str | os.PathLike[str],
        *,
        part: str | None = None,
        strip: str = "",
        rename: Mapping[str, str] | None = None,
        shard_bytes: int = SHARD_BYTES,
        replace: bool = False,
    ) -> None:
        """Writes a model as a file (.safetensors) or as a folder that `from_pretrained` reads:
        weights, in several files if they are larger than `shard_bytes`, and the config and
        tokenizer that `ligament cp` stored with them. `part="model"` exports that part of a
        checkpoint, under its own names; `strip` removes a prefix from names; `rename` maps
        names, or prefixes before a '.', to new ones."""
        ref = self._resolve(name)
        names = renamed(Loader(ref).names, part, strip, rename)
        export(ref, os.fspath(path), names, shard_bytes, replace)

    def watch(
        self, name: str | None = None, since: int | None = None, timeout: float | None = None
    ) -> Watch:
        """Iterates over changes by any process in commit order, without gaps: those after version
        `since` (of an earlier event; 0: all; None: from now on) whose name, or other name, matches
        the pattern. Ends when there was no change for `timeout` seconds. A `since` that is too old
        raises NotFoundError: list the models again."""
        return Watch(self, name, since, timeout)

    def shutdown_server(self) -> None:
        """Asks the server of a served store to stop; DeniedError unless it runs with
        --allow-shutdown."""
        self._core.shutdown_server()

    def get_time_stamps(self, name: str | None = None) -> dict[str, list[int]]:
        """Returns {operation: [begin, end, begin, end, ...]} in ns of a monotonic clock, for find,
        load, save and retire and their phases lookup, read, write, sync and commit."""
        return self._core.time_stamps(name)

    def clear_time_stamps(self, name: str | None = None) -> None:
        """Clears the timestamps of an operation or phase, or all of them."""
        self._core.clear_time_stamps(name)

    # --- maintenance ----------------------------------------------------------------------------

    def check(self, repair: bool = False, *, progress: bool | None = None) -> Report:
        """Reads everything and verifies the checksums; `repair` repairs what can be derived:
        counts, leftover files, a lost index."""
        with Bar("checking", 0, wanted(progress)) as bar:

            def show(done: int, total: int) -> None:
                bar.total = max(total, 1)
                bar.update(done)

            return Report(**self._core.check(repair, show))

    def compact(self) -> Report:
        """Removes leftovers of dead writers and unused packs."""
        return Report(**self._core.compact())


def copy(
    source: Store | str | os.PathLike[str] | Model,
    to: Store | str | os.PathLike[str],
    name: str | None = None,
    *,
    new_name: str | None = None,
    replace: bool = False,
) -> list[str]:
    """Copies a model, or all that match the pattern `name` (None: all), from one store to another;
    returns their names."""
    model = source if isinstance(source, Model) else None
    if isinstance(source, Model):
        name, source = source.name, source._store
    opened: list[Store] = []
    try:
        stores = []
        for given, mode in ((source, "r"), (to, "a")):
            store = given if isinstance(given, Store) else Store(given, mode)
            if store is not given:
                opened.append(store)
            stores.append(store)
        here, there = stores
        names = (
            [name]
            if name is not None and (model is not None or name in here)
            else [one.name for one in here.models(name)]
        )
        if not names and name is not None:
            raise NotFoundError(f"no model matches '{name}' in {here.uri}")
        if new_name is not None and len(names) != 1:
            raise InvalidError(f"new_name requires one model, but {len(names)} match")
        for one in names:
            here._resolve(model or one).copy(there._core, new_name, replace)
        return [new_name] if new_name is not None else names
    finally:
        for store in opened:
            store.close()


def _name_of(model: str | Model) -> str:
    return model.name if isinstance(model, Model) else arguments.name(model)


def _meta_text(meta: Any) -> str | None:
    if meta is None:
        return None
    try:
        return json.dumps(meta, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidError(f"meta cannot be stored as JSON: {error}") from None


__all__ = [
    "Diff",
    "Error",
    "Lineage",
    "Match",
    "Model",
    "Report",
    "Store",
    "TensorInfo",
    "copy",
]
