"""Checkpoints of a training run: everything that has a state, by step."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, SupportsFloat, overload

from .. import _core, tensors
from ..async_saves import Snapshot
from ..errors import BusyError, InvalidError, NotFoundError
from ..graph import graphs_of_parts
from ..load import Loader
from ..store import Model, Store
from ..ticket import Ticket
from ..tree import decode
from . import metric_history, preemption, runs
from .collective_save import CollectiveSave, State, own_parts
from .ranks import Alone, Ranks, job
from .retention import Retention

_log = logging.getLogger("ligament")
_OWN = ("rng", "extra", "ranks")  # parts of a checkpoint that are not the caller's objects
_TIMEOUT_S = 600.0
_TRIES = 100  # as often as the core resolves a name


@dataclass(frozen=True)
class Restored:
    """The position of training after `restore`."""

    step: int
    extra: Any = None
    metrics: dict[str, float] = field(default_factory=dict)
    run: str = runs.DEFAULT


class Checkpointer:
    """Saves and restores a run. `keep`: how many of the latest checkpoints to keep;
    `best=("val_loss", "min")`: the best one is kept too.

    Several runs can share a store if each has a name (`run="resnet-a"`): a run sees and removes
    only its own checkpoints. The first `save` makes this process the writer of the run until
    `close` or until the process ends; meanwhile a save by another process raises BusyError.

    Under torch.distributed every rank creates one and calls `save` and `restore` in the same order:
    each rank writes the tensors it holds (replicated tensors are distributed among them), the
    checkpoint becomes visible when all ranks are done, and an error on one rank is raised on all.
    No rank waits longer than `timeout` seconds for another. `distributed=False`: this process
    alone.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str] | Store,
        keep: int | None = None,
        best: tuple[str, str] | None = None,
        *,
        run: str = runs.DEFAULT,
        distributed: bool | None = None,
        timeout: float = _TIMEOUT_S,
    ) -> None:
        self.run = runs.check(run)
        self._retention = Retention(keep, best)
        if not timeout > 0:
            raise InvalidError(f"timeout={timeout}: expected a positive number of seconds")
        found = None if distributed is False else job()
        if distributed and found is None:
            raise InvalidError("distributed=True: call torch.distributed.init_process_group first")
        ranks = Ranks(timeout, found) if found is not None and found[2] > 1 else None
        try:
            self.store = uri if isinstance(uri, Store) else Store(uri)
        except Exception as error:
            if ranks is not None:
                ranks.arrive(error)
            raise
        if ranks is not None:
            ranks.arrive(None)
        self._collective = CollectiveSave(self.store, ranks) if ranks is not None else None
        self._alone = distributed is False
        self._owned = not isinstance(uri, Store)
        self._timeout = timeout
        self._lock: _core.Lock | None = None
        self._warned = False
        self._preemption: preemption.Preemption | None = None
        self._collective_flag: preemption.CollectiveFlag | None = None

    def _job(self) -> CollectiveSave | None:
        """The connection to the other processes of the job, which may have started after this
        Checkpointer was created; None: a single process."""
        if self._collective is None and not self._alone:
            found = job()
            if found is not None and found[2] > 1:
                ranks = Ranks(self._timeout, found)
                ranks.arrive(None)
                self._collective = CollectiveSave(self.store, ranks)
        return self._collective

    # --- save and restore -----------------------------------------------------------------------

    @overload
    def save(
        self,
        step: int,
        *,
        rng: bool = True,
        extra: Any = None,
        metrics: Mapping[str, SupportsFloat] | None = None,
        wait: Literal[True] = True,
        snapshot: str | None = None,
        snapshot_bytes: int = ...,
        gpu_reserve: float = ...,
        progress: bool | None = None,
        **parts: Any,
    ) -> Model: ...
    @overload
    def save(
        self,
        step: int,
        *,
        rng: bool = True,
        extra: Any = None,
        metrics: Mapping[str, SupportsFloat] | None = None,
        wait: Literal[False],
        snapshot: str | None = None,
        snapshot_bytes: int = ...,
        gpu_reserve: float = ...,
        progress: bool | None = None,
        **parts: Any,
    ) -> Ticket[Model]: ...
    @overload
    def save(
        self,
        step: int,
        *,
        rng: bool = True,
        extra: Any = None,
        metrics: Mapping[str, SupportsFloat] | None = None,
        wait: bool,
        snapshot: str | None = None,
        snapshot_bytes: int = ...,
        gpu_reserve: float = ...,
        progress: bool | None = None,
        **parts: Any,
    ) -> Model | Ticket[Model]: ...
    def save(
        self,
        step: int,
        *,
        rng: bool = True,
        extra: Any = None,
        metrics: Mapping[str, SupportsFloat] | None = None,
        wait: bool = True,
        snapshot: str | None = None,
        snapshot_bytes: int = Snapshot.room,
        gpu_reserve: float = Snapshot.gpu_reserve,
        progress: bool | None = None,
        **parts: Any,
    ) -> Model | Ticket[Model]:
        """Saves the current state of `parts` (models, optimizers, anything with a state_dict,
        trees) under the step, and with `rng` the random states of Python, NumPy and the imported
        frameworks, so that a restored run continues bit for bit. With several ranks, random states
        and parts without tensors are saved for each rank, and so are parts that are neither models
        nor optimizers and have less than 64 KiB of whole tensors, such as the state of a data
        loader. The other plain values and `extra` are those of rank 0; so are buffers of models,
        and small tensors that are not parameters. A metric is that of the lowest rank that passes
        it. Pipeline stages, or lists of them, are saved as one model under the original's names,
        with the states of their optimizers by parameter name: every rank passes its own."""
        kept = Snapshot(snapshot, snapshot_bytes, gpu_reserve)
        collective = self._job()
        rank = collective.ranks.rank if collective else 0
        graphs = graphs_of_parts(parts) if rank == 0 else ()
        state = None if collective else self._state(step, rng, extra, parts, rank)
        if state is not None and any(map(tensors.is_distributed, tensors.leaves(state.tree))):
            collective = CollectiveSave(self.store, Alone(self._timeout))
        if collective is not None:
            return collective.save(
                self._name(step) if type(step) is int else f"step {step!r}",
                # An error on one rank is reported to all ranks.
                lambda: state or self._state(step, rng, extra, parts, rank),
                metrics=dict(metrics or {}),
                wait=wait,
                snapshot=kept,
                after=lambda: self._prune(step),
                graphs=graphs,
            )
        assert state is not None
        result: Model | Ticket[Model] = self.store._save(
            self._name(step),
            tensors.collect({**state.tree, **state.own}, with_frameworks=True),
            metrics=metrics,
            meta=state.meta,
            replace=True,
            wait=wait,
            snapshot=kept,
            progress=progress,
            after=lambda: self._prune(step),
            related=(graphs, None),
        )
        return result

    def _state(self, step: int, rng: bool, extra: Any, parts: dict[str, Any], rank: int) -> State:
        """The tree to save, after the previous save has ended."""
        if type(step) is not int or step < 0:
            raise InvalidError(f"step={step!r}: expected a non-negative int")
        reserved = [name for name in parts if name in _OWN]
        if reserved:
            raise InvalidError(f"{reserved[0]!r} cannot be the name of a part (use another name)")
        if rank == 0 and self._lock is None:  # rank 0 commits for all
            self._lock = runs.hold(self.store, self.run)
            self._warn_of_later_steps(step)
        self.wait()
        given = {name: part for name, part in parts.items() if part is not None}
        pieces = tensors.pieces(given)
        tree = {n: pieces[n] if n in pieces else _state_of(n, given[n]) for n in given}
        if not tree and extra is None:
            raise InvalidError(f"step {step} has nothing to save: pass model=, optimizer=, ...")
        if extra is not None:
            tree["extra"] = extra
        own = {"rng": tensors.rng_state()} if rng else {}
        if rank > 0:  # those of rank 0 are used by all
            shared = [n for n in given if n not in pieces and _is_own(given[n])]
            own |= own_parts(tree, shared)
        meta = self._history_before(step) if rank == 0 else None
        samples = tensors.samples(given, tree) if self._collective is not None else {}
        return State(tree, own, set(pieces), meta, samples)

    def _history_before(self, step: int) -> dict[str, Any] | None:
        """The history that the checkpoint of the step stores: that of earlier checkpoints, which
        may be removed."""
        if self._retention.keep is None:
            return None
        return metric_history.carried(self._saved(self.run), step)

    def _warn_of_later_steps(self, step: int) -> None:
        """Warns if another process may have continued the run since this one restored it."""
        later = [one for one in self._steps(self.run) if one > step]
        if later and not self._warned:
            self._warned = True
            text = "run %r has steps up to %d, beyond step %d that is saved now: restore again, "
            text += "or save another run"
            _log.warning(text, self.run, max(later), step)

    def restore(
        self,
        *,
        step: int | None = None,
        from_run: str | None = None,
        rng: bool = True,
        **parts: Any,
    ) -> Restored | None:
        """Fills `parts` (models, optimizers, anything with a load_state_dict, trees in place) from
        the newest step, or from `step`, and restores the random states. `from_run` uses the step of
        another run, which must have one. If a model, tree or optimizer does not match, nothing is
        filled; each rank checks its own parts. Returns None if there is no checkpoint yet. Of
        distributed tensors only the local part is read; the step may have been saved by any number
        of ranks. A rank that the step contains gets its own random state, and, with the same number
        of ranks, also the parts that `save` saves for each rank. With a different number of ranks a
        warning is logged: the run does not continue bit for bit."""
        run = self.run if from_run is None else runs.check(from_run)
        collective = self._job()
        if collective is None:
            self.wait()
            return self._restore(run, self._version(run, step), rng, parts, 0, 1)
        call = f"restore(run={run!r}, step={step})"
        held: list[_core.Ref | None] = []  # rank 0's ref, which holds the bytes for all

        def choose() -> int | None:
            held.append(self._version(run, step))
            return None if held[0] is None else held[0].model.id

        number, chosen = collective.choose(call, self.wait, choose)
        ranks = collective.ranks
        failure: Exception | None = None
        restored = None
        try:
            ref = None if chosen is None else self.store._core.resolve(chosen)
            restored = self._restore(run, ref, rng, parts, ranks.rank, ranks.size)
        except Exception as error:
            failure = error
        except BaseException as error:
            collective.interrupted(number, error)
            raise
        collective.all_done(number, failure)
        return restored

    def _source(self, run: str) -> int | None:
        """The newest step of a run; None if this run has none yet."""
        found = self._steps(run)
        if not found and run != self.run:
            raise NotFoundError(
                f"run {run!r} has no checkpoint in {self.store.uri} (existing runs: "
                f"{runs.names(self.store)})"
            )
        return max(found, default=None)

    def _version(self, run: str, step: int | None) -> _core.Ref | None:
        """The checkpoint of a step, or the newest one; None if there is none yet. A process that
        writes to the run may remove the newest (`keep`) before it is resolved."""
        for _ in range(_TRIES):
            chosen = self._source(run) if step is None else step
            if chosen is None:
                return None
            try:
                if step is None or step in self._steps(run):
                    return self.store._core.resolve(runs.name_of(run, chosen))
            except NotFoundError:
                pass
            if step is not None:
                raise NotFoundError(
                    f"there is no step {step} of run {run!r} in {self.store.uri}; "
                    f"there are {self._steps(run)}"
                )
        raise BusyError(f"the checkpoints of run {run!r} are replaced faster than they can be read")

    def _restore(
        self,
        run: str,
        ref: _core.Ref | None,
        rng: bool,
        parts: dict[str, Any],
        rank: int,
        size: int,
    ) -> Restored | None:
        if ref is None:
            if rank == 0:
                _log.info("run %r has no checkpoint in %s yet", run, self.store.uri)
            return None
        model = ref.model.name
        step = runs.step_of(run, model)
        assert step is not None, model  # _version resolved that name
        given = {name: part for name, part in parts.items() if part is not None}
        models = {name for name, part in given.items() if _in_place(part)}
        loader = Loader(ref)
        rest = self._rest(loader, models, given, rank, size)
        lacking = [name for name in given if name not in rest]
        if lacking:
            raise NotFoundError(
                f"step {step} has no {', '.join(map(repr, lacking))}; it has {sorted(set(rest))}"
            )
        takers = {
            name: self._taker(model, name, part)
            for name, part in given.items()
            if name not in models
        }
        ranks = decode(loader.model.structure, {}).get("ranks", {})
        if rank == 0 and rng and "rng" in rest:
            _warn_of_other_ranks(step, max(len(ranks), 1), size)
        own = ranks.get(str(rank), {}) if len(ranks) == size else {}
        places = {name: f"ranks.{rank}.{name}." if name in own else f"{name}." for name in models}
        for name in models:
            self._check(ref, given[name], places[name])
        for name in takers:
            tensors.check_state(given[name], rest[name])
        for name in models:
            self._fill(ref, given[name], places[name])
        for name, take in takers.items():
            take(rest[name])
        if rng and "rng" in rest:
            tensors.set_rng_state(rest["rng"])
        if rank == 0:
            age = time.time() - loader.model.created_ns / 1e9
            text = "restored run %r from step %d, saved %s ago (%s)"
            _log.info(text, run, step, _duration(age), self.store.uri)
        return Restored(step, rest.get("extra"), loader.model.metrics, run)

    def _taker(self, model: str, name: str, part: Any) -> Callable[[Any], None]:
        try:
            take = tensors.set_state(part)
        except InvalidError as error:
            raise InvalidError(
                f"{name!r} cannot be filled: {error}; take it from store.load({model!r})[{name!r}]"
            ) from None
        return _and_iterator(part, take) if _is_loader(part) else take

    def _rest(
        self, loader: Loader, models: set[str], given: dict[str, Any], rank: int, size: int
    ) -> dict[str, Any]:
        """The tree with only those tensors that are passed to an object and not filled in place,
        and that belong to this rank."""
        wanted = tuple(
            f"{place}{name}."
            for place in ("", f"ranks.{rank}.")
            for name in (*(given.keys() - models), "rng", "extra")
        )
        loader.chosen = [name for name in loader.names if f"{name}.".startswith(wanted)]
        named = decode(
            loader.model.structure, {name: tensors.Named(name) for name in loader.chosen}
        )
        for name, part in given.items():
            if name in named:
                wanted_state = tensors.for_optimizer(part, named[name], given)
                loader.layouts.update(tensors.sharded_like(part, wanted_state))
                _leave_out(loader, f"{name}.", wanted_state)
        tree: dict[str, Any] = loader.whole("saved", False, None)
        ranks = tree.pop("ranks", {})
        own = ranks.get(str(rank), {})
        if ranks or (size > 1 and rank > 0):  # the state of one generator is not for all ranks
            tree.pop("rng", None)
        if "rng" in own:
            tree["rng"] = own["rng"]
        if len(ranks) == size:
            tree.update(own)
        for name, part in given.items():
            if name in tree:
                tree[name] = tensors.for_optimizer(part, tree[name], given)
        return tree

    def _fill(self, ref: _core.Ref, part: Any, prefix: str) -> None:
        stages = tensors.stages(part)
        for one in stages or [part]:
            self._part_of(ref, prefix).fill(one, False, bool(stages), False, False, prefix)

    def _check(self, ref: _core.Ref, part: Any, prefix: str) -> None:
        stages = tensors.stages(part)
        try:
            for one in stages or [part]:
                self._part_of(ref, prefix).check(one, prefix, bool(stages))
        except InvalidError as error:  # for example a JAX array
            way = f"store.load({ref.model.name!r})[{prefix[:-1]!r}] creates a new one"
            raise InvalidError(f"{error}; {way}") from None

    def _part_of(self, ref: _core.Ref, prefix: str) -> Loader:
        loader = Loader(ref)
        loader.chosen = [name for name in loader.names if name.startswith(prefix)]
        part = prefix.rstrip(".")
        way = f"(restore fills only what was saved: see store.load({loader.name!r})[{part!r}])"
        loader.advice = (way, way)
        return loader

    # --- contents -------------------------------------------------------------------------------

    def steps(self) -> list[int]:
        """The saved steps of this run, in order."""
        return self._steps(self.run)

    def runs(self) -> list[str]:
        """The runs that have a checkpoint in the store."""
        return runs.names(self.store)

    def _steps(self, run: str) -> list[int]:
        return sorted(step for step, _ in self._saved(run))

    def latest(self) -> int | None:
        """The newest step, or None."""
        return max(self.steps(), default=None)

    def best(self) -> int | None:
        """The step with the best value of the metric given as `best`; NaN is ignored."""
        if self._retention.best is None:
            raise InvalidError(
                "no metric for best(): use Checkpointer(..., best=('val_loss', 'min'))"
            )
        return self._retention.best_step(self._saved(self.run))

    def history(self) -> list[metric_history.Point]:
        """The metrics of this run by step (`.step`, `.metrics`), including checkpoints that `keep`
        has removed. A long run is thinned out evenly."""
        return metric_history.points(self._saved(self.run))

    def _saved(self, run: str) -> list[tuple[int, Model]]:
        return runs.saved(self.store, run)

    def _name(self, step: int) -> str:
        return runs.name_of(self.run, step)

    def wait(self) -> None:
        """Waits for a save in the background and raises its error."""
        self.store._settle()

    def close(self) -> None:
        """Waits, then releases the run and closes the store if it opened it."""
        if self._collective_flag is not None:
            self._collective_flag.settle()
        try:
            if self._owned:
                self.store.close()
            else:
                self.wait()
        finally:
            lock, self._lock = self._lock, None
            if lock is not None:
                lock.release()

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        policy = f"run={self.run!r}, keep={self._retention.keep!r}, best={self._retention.best!r}"
        return f"ligament.checkpoint.Checkpointer({self.store.uri!r}, {policy})"

    def _prune(self, step: int) -> None:
        """Removes old checkpoints after the commit of a step."""
        if self._retention.keep is None:
            return
        for model in self._retention.removable(self._saved(self.run), step):
            self.store.retire(model.name)

    # --- preemption -----------------------------------------------------------------------------

    def preempted(self) -> bool:
        """Whether SIGTERM or SIGUSR1 has been received. The first call installs the handlers; from
        then on these signals do not end the process, and previously installed handlers are still
        called. Under torch.distributed every rank calls it once per step, and all get True at the
        same call, regardless of which rank received the signal."""
        if self._preemption is None:
            self._preemption = preemption.Preemption()
        here = self._preemption.here()
        if self._job() is None:
            return here
        if self._collective_flag is None:
            self._collective_flag = preemption.CollectiveFlag(self._timeout)
        return self._collective_flag.any(here)


def _in_place(part: Any) -> bool:
    """Whether the tensors of the part are filled in place."""
    if tensors.has_state(part):
        return False
    return (
        tensors.is_model(part)
        or bool(tensors.stages(part))
        or isinstance(part, (dict, list, tuple))
    )


def _state_of(name: str, part: Any) -> Any:
    if tensors.is_loader_without_state(part):
        raise InvalidError(
            f"{name!r} is a torch DataLoader, which has no state_dict (use "
            "torchdata.stateful_dataloader.StatefulDataLoader)"
        )
    return tensors.state_of(part)


def _is_own(part: Any) -> bool:
    """Whether ranks may have different values of the part: trained parameters are the same on all
    ranks."""
    return not tensors.is_model(part) and not tensors.is_optimizer(part)


def _is_loader(part: Any) -> bool:
    """Whether it is a data loader: iterable and with a state."""
    return hasattr(part, "__iter__") and hasattr(part, "state_dict") and _is_own(part)


def _and_iterator(loader: Any, take: Callable[[Any], None]) -> Callable[[Any], None]:
    """A loader creates the iterator that continues the epoch when it is next asked for one or for
    its state, and then draws its seeds from the global generator. That must happen before the
    random states are restored, because the interrupted run already had its iterator."""

    def restore(state: Any) -> None:
        take(state)
        loader.state_dict()

    return restore


def _warn_of_other_ranks(step: int, saved: int, now: int) -> None:
    if saved != now:
        text = "step %d was saved by %d ranks and is restored by %d: random states and data "
        text += "loaders do not continue exactly where they were"
        _log.warning(text, step, saved, now)


def _leave_out(loader: Loader, prefix: str, state: Any) -> None:
    """Reads below the prefix only the tensors of this state: an optimizer of a pipeline stage needs
    only the states of its own parameters."""
    wanted = {one.name for one in tensors.leaves(state) if isinstance(one, tensors.Named)}
    chosen = loader.chosen or []
    loader.chosen = [name for name in chosen if name in wanted or not name.startswith(prefix)]


def _duration(seconds: float) -> str:
    for length, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
