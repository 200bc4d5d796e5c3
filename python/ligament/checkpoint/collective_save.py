"""One checkpoint from all processes of a job: each writes its part, rank 0 joins them."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from .. import _core, arguments, tensors
from ..async_saves import Snapshot
from ..errors import Error, MismatchError, TimeoutError
from ..store import Model, Store
from ..ticket import Ticket, release_all
from . import replicas
from .merge import merged
from .ranks import Ranks, packed
from .write_assignment import Written, assign, check

_REPLACE = 1
_SMALL_BYTES = 64 << 10
_GRACE_S = 5.0  # how much longer the others wait for rank 0 than it waits for them


class Saving(Ticket[Model]):
    """A save of all ranks that runs in the background."""

    def __init__(self, run: Callable[[], Model], inner: _core.Ticket) -> None:
        self._run, self._inner = run, inner
        self._model: Model | None = None
        self._error: BaseException | None = None
        self._heard = False
        # Not a daemon: a process that exits waits for its save.
        self._thread = threading.Thread(target=self._work, name="ligament-save")
        self._thread.start()

    def _work(self) -> None:
        try:
            self._model = self._run()
        except BaseException as error:  # raised in the thread that waits
            self._error = error

    def done(self) -> bool:
        """Whether it has ended, successfully or not."""
        return not self._thread.is_alive()

    def result(self, timeout: float | None = None) -> Model:
        """Waits (seconds; None: no limit) and returns the result of the call; raises the error of
        any rank."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the save has not ended within {timeout} s")
        if self._error is not None:
            self._heard = True
            raise self._error
        assert self._model is not None
        return self._model

    def _settle(self) -> None:
        self._thread.join()
        if self._error is not None and not self._heard:
            self._heard = True
            raise self._error

    def cancel(self) -> None:
        """Asks it to stop; it then fails on all ranks, unless this rank's part was already
        written."""
        self._inner.cancel()

    def __repr__(self) -> str:
        return f"<ligament.Ticket of all ranks, {'done' if self.done() else 'running'}>"


@dataclass(frozen=True)
class State:
    """What a rank saves: a tree by part, additional data of this rank, the parts of which other
    ranks hold different pieces, the meta of the model (rank 0's is used), and a few values of its
    parameters."""

    tree: dict[str, Any]
    own: dict[str, Any]
    pieces: set[str]
    meta: dict[str, Any] | None = None
    samples: dict[str, list[float]] = field(default_factory=dict)


class _Held:
    """What this rank has of a tree: names, local tensors and their boxes."""

    def __init__(self, state: State, rank: int) -> None:
        own, self.pieces, self.meta = state.own, state.pieces, state.meta
        self.samples = state.samples
        found = tensors.collect(state.tree, with_frameworks=True)
        self.node = _node(found)
        self.names, self.values = found.names, []
        self.said: list[list[Any]] = []
        self.starts: list[tuple[Any, Any]] = []
        first: dict[tuple[Any, ...], int] = {}
        trained = {
            _part(name)
            for name, value in zip(found.names, found.values, strict=True)
            if tensors.is_parameter(value)
        }
        for number, (name, value) in enumerate(zip(found.names, found.values, strict=True)):
            shard = tensors.shard(value, name)
            local = value if shard is None else shard.local
            self.values.append(local)
            tied = first.setdefault(tensors.identity(local), number)
            box: list[Any] | None = None
            if shard is not None:
                box = [] if shard.outside else [list(shard.start), list(shard.shape)]
            whole = list(value.shape)
            size = 0 if box == [] else _bytes(local)
            tie = tied if tied < number else -1
            # Buffers differ between ranks, so those of one rank are kept together.
            lead = not tensors.is_parameter(value) and (
                _part(name) in trained or _part(name) == "extra" or size < _SMALL_BYTES
            )
            piece = _part(name) in self.pieces
            self.said.append([name, str(value.dtype), whole, box, size, tie, lead, piece])
            self.starts.append((None, None) if shard is None else (shard.whole, shard.start))
        private = tensors.collect({"ranks": {str(rank): own}}, with_frameworks=True)
        self.own = _node(private)["ranks"][str(rank)] if own else {}
        self.own_names, self.own_values = (private.names, private.values) if own else ([], [])

    def plain(self) -> dict[str, Any]:
        """The parts without tensors: these may differ between ranks."""
        parts = {*map(_part, self.names), *self.pieces}
        return {key: node for key, node in self.node.items() if key not in parts}

    def piece_nodes(self) -> dict[str, Any]:
        """The parts of which other ranks hold different pieces."""
        return {key: node for key, node in self.node.items() if key in self.pieces}

    def written(self, written: Written) -> tuple[list[str], list[Any], _core.Part]:
        """What this rank writes: names, values and where they belong."""
        numbers = [number for number, _ in written.tensors]
        boxes = [(*self.starts[number], place) for number, place in written.tensors]
        boxes += [(None, None, written.count + i) for i in range(len(self.own_names))]
        names = [self.names[number] for number in numbers] + self.own_names
        values = [self.values[number] for number in numbers] + self.own_values
        return names, values, _core.Part(boxes)


def own_parts(tree: dict[str, Any], parts: list[str]) -> dict[str, Any]:
    """The parts that contain only whole tensors that are small together and not parameters, such as
    the state of a data loader: each rank saves its own, at little cost."""
    found = {}
    for part in parts:
        values = tensors.collect({part: tree[part]}, with_frameworks=True).values
        whole = not any(tensors.is_distributed(v) or tensors.is_parameter(v) for v in values)
        if values and whole and sum(map(_bytes, values)) < _SMALL_BYTES:
            found[part] = tree[part]
    return found


def _part(name: str) -> str:
    return name.split(".", 1)[0]


def _bytes(value: Any) -> int:
    size = getattr(value, "nbytes", None)
    return int(size) if size is not None else 0


def _node(found: tensors.Collected) -> dict[str, Any]:
    if found.structure:
        node: dict[str, Any] = json.loads(found.structure)["tree"]
        return node
    return {
        name: {"$tensor": [name, tensors.framework_of(value)]}
        for name, value in zip(found.names, found.values, strict=True)
    }


_Plan = tuple[int, list[list[Any]], Written]  # the call it was created for, held, written


class CollectiveSave:
    """The collective saves and restores of one Checkpointer."""

    def __init__(self, store: Store, ranks: Ranks) -> None:
        self.store, self.ranks = store, ranks
        self._calls = 0
        self._all_here = False
        self._held: list[list[list[Any]]] = []  # at rank 0: of all, when they last agreed
        self._plan: _Plan | None = None

    def _next(self) -> int:
        self._calls += 1
        return self._calls

    def _meet(self) -> None:
        """Raises the error that kept a rank from opening the store; rank 0 raises it where all
        ranks are notified."""
        if not self._all_here:
            self.ranks.all_here()
            self._all_here = True

    def _tell(self, number: int, message: dict[str, Any]) -> None:
        if self.ranks.rank != 0:
            self._meet()
        self.ranks.tell(number, "have", message)

    # --- save -----------------------------------------------------------------------------------

    def save(
        self,
        name: str,
        state: Callable[[], State],
        *,
        metrics: dict[str, Any],
        wait: bool,
        snapshot: Snapshot,
        after: Callable[[], None],
        graphs: tuple[_core.Graph, ...] = (),
    ) -> Model | Ticket[Model]:
        """Saves what all ranks hold as one model; `state` gives what this one does. The graphs are
        those of rank 0."""
        number, call = self._next(), f"save '{name}'"
        try:
            held = _Held(state(), self.ranks.rank)
        except BaseException as error:
            self._plan = None
            self._give_up(number, call, error)
            raise
        # Not before the background save has ended, which leaves one. There is none until it is
        # known that all ranks still use it.
        plan, self._plan = self._plan, None
        known = plan is not None and plan[1] == held.said
        if not known or plan is None:
            with self._leaving(number):
                plan = (number, held.said, self._agree(number, call, held.said))
        work = _Save(self, number, call, name, held, metrics, after)
        work.graphs = graphs
        work.plan, work.known = plan, plan[0] if known else None
        saves = self.store._saves
        with saves.turn():
            try:
                saves.settle()  # another thread's
                inner, batch = work.start(plan[2], wait, snapshot)
            except BaseException as error:
                work.lead_in_failure(error)
                raise
            if not wait:
                saving = Saving(lambda: work.finish(inner, batch), inner)
                saves.add(saving, work.arena)
                return saving
        return work.finish(inner, batch)

    def _agree(self, number: int, call: str, said: list[list[Any]]) -> Written:
        """Determines what this rank writes; called by all ranks or by none."""
        ranks = self.ranks
        self._tell(number, {"call": call, "held": said})
        if ranks.rank == 0:
            self._answer_plan(number, call)
        plan = ranks.heard(number, "plan", f"answer ({call})", _GRACE_S)
        return Written([(number, place) for number, place in plan["write"]], plan["count"])

    def _answer_plan(self, number: int, call: str) -> None:
        ranks = self.ranks

        def make() -> list[Any]:
            have = self.gather(number, call)
            if any("same" in one for one in have):
                raise self.changed(have)
            self._held = [one["held"] for one in have]
            return [{"write": one.tensors, "count": one.count} for one in assign(self._held)]

        failure = ranks.answer(number, "plan", make)
        if failure is not None:
            ranks.answer_all(number, "done", failure)

    def gather(self, number: int, call: str) -> list[Any]:
        """At rank 0: gathers what all ranks hold; raises unless all make the same call."""
        self._meet()
        have = self.ranks.gather(number, "have", call)
        for rank, one in enumerate(have):
            if one["call"] != call:
                raise MismatchError(f"rank 0 calls {call}, rank {rank} calls {one['call']}")
        return have

    def changed(self, have: list[Any]) -> MismatchError:
        """At rank 0: the error to raise if only some ranks hold the same as at the previous
        save."""
        held = [
            one["held"] if "held" in one else before
            for one, before in zip(have, self._held, strict=True)
        ]
        try:
            check(held)
        except MismatchError as error:
            return error
        same = next(rank for rank, one in enumerate(have) if "same" in one)
        other = next((rank for rank, one in enumerate(have) if "same" not in one), 0)
        return MismatchError(
            f"rank {same} holds the same parts of the tensors as at the previous save, "
            f"but rank {other} holds different ones (save again: the ranks will then agree on "
            "a new assignment)"
        )

    def _give_up(self, number: int, call: str, error: BaseException) -> None:
        """Notifies all ranks that this rank cannot report what it holds."""
        ranks = self.ranks
        self._tell(number, {"call": call, **packed(error)})
        if ranks.rank == 0:
            ranks.answer_all(number, "plan", packed(error))
            ranks.answer_all(number, "done", packed(error))
        ranks.leave(number)

    @contextmanager
    def _leaving(self, number: int) -> Iterator[None]:
        """Ends a call that fails here."""
        try:
            yield
        except Exception:
            self.ranks.leave(number)
            raise
        except BaseException as error:
            self.interrupted(number, error)
            raise

    def interrupted(self, number: int, error: BaseException) -> None:
        """This rank leaves a call early: notifies all ranks, whatever they wait for."""
        ranks = self.ranks
        for word in ("have", "part"):
            ranks.tell(number, word, packed(error))
        for word in ("plan", "done") if ranks.rank == 0 else ():
            ranks.answer_all(number, word, packed(error))
        ranks.leave(number)

    # --- restore --------------------------------------------------------------------------------

    def choose(
        self, call: str, settle: Callable[[], None], version: Callable[[], int | None]
    ) -> tuple[int, int | None]:
        """The number of this call, and the version (a model's id) that rank 0 chose for all, after
        previous saves have ended."""
        number, ranks = self._next(), self.ranks
        try:
            settle()
        except Exception as error:
            self._give_up(number, call, error)
            raise

        def make() -> list[Any]:
            self.gather(number, call)
            return [{"version": version()}] * ranks.size

        with self._leaving(number):
            self._tell(number, {"call": call})
            if ranks.rank == 0:
                ranks.answer(number, "plan", make)
            plan = ranks.heard(number, "plan", f"answer ({call})", _GRACE_S)
        chosen: int | None = plan["version"]
        return number, chosen

    def all_done(self, number: int, error: BaseException | None) -> None:
        """After every rank has read its part: raises if one failed."""
        ranks = self.ranks
        ranks.tell(number, "part", {} if error is None else packed(error))
        if ranks.rank == 0:
            done = ranks.answer(number, "done", lambda: _nothing(ranks, number))
            ranks.forget(number, "have", "part")
            if done is None:
                ranks.forget(number - 1, "plan", "done")
        try:
            if error is not None:
                raise error
            ranks.heard(number, "done", "report the results of the others", _GRACE_S)
        finally:
            ranks.leave(number)


def _nothing(ranks: Ranks, number: int) -> list[Any]:
    ranks.gather(number, "part", "restore its part")
    return [{}] * ranks.size


class _Save:
    """One save: its part, and what rank 0 does with all of them."""

    def __init__(
        self,
        owner: CollectiveSave,
        number: int,
        call: str,
        name: str,
        held: _Held,
        metrics: dict[str, Any],
        after: Callable[[], None],
    ) -> None:
        self.owner, self.ranks, self.core = owner, owner.ranks, owner.store._core
        self.number, self.call, self.name = number, call, name
        self.held, self.metrics, self.after = held, metrics, after
        self.known: int | None = None  # the call whose plan is used again
        self.plan: _Plan | None = None
        self.graphs: tuple[_core.Graph, ...] = ()
        self.arena: _core.Memory | None = None
        self.joined: _core.Model | None = None  # at rank 0

    def start(
        self, written: Written, wait: bool, snapshot: Snapshot
    ) -> tuple[_core.Ticket, _core.Batch]:
        """Begins to write this rank's part; what is written is the state at this moment."""
        snapshot.check()
        names, values, self.part = self.held.written(written)
        options = (_REPLACE, None, None, None, None, None, (), None, self.part)
        if wait:
            batch = _core.Batch(names, tensors.lend(values))
            return self.core.save_start(self.name, batch, options), batch
        saves = self.owner.store._saves
        started = saves.start(self.core, self.name, (names, values), options, snapshot)
        inner, batch, self.arena = started
        return inner, batch

    def finish(self, inner: _core.Ticket, batch: _core.Batch) -> Model:
        """Waits for this part and all others; every rank returns or raises."""
        try:
            model = self._finish(inner, batch)
        except Exception:
            self._close()
            raise
        except BaseException as error:
            inner.cancel()
            self.owner.interrupted(self.number, error)
            with suppress(Error):
                inner.wait()
            self.part.close(self.core)
            raise
        self._close()
        return model

    def _close(self) -> None:
        self.part.close(self.core)
        self.ranks.leave(self.number)

    def _finish(self, inner: _core.Ticket, batch: _core.Batch) -> Model:
        failure: Exception | None = None
        try:
            if self.known is not None:
                self.ranks.tell(self.number, "have", {"call": self.call, "same": self.known})
            release_all(inner, batch, lambda: None)
            inner.wait()
            message = {
                "part": base64.b64encode(self.part.bytes()).decode("ascii"),
                "plain": self.held.plain(),
                "own": self.held.own,
                "pieces": self.held.piece_nodes(),
                "samples": self.held.samples,
                "metrics": arguments.metrics(self.metrics),
            }
        except Exception as error:
            failure, message = error, packed(error)
        self.ranks.tell(self.number, "part", message)
        if self.ranks.rank == 0:
            self._lead()
        if failure is not None:
            raise failure
        self._hear()
        self.owner._plan = self.plan
        return Model(self.owner.store, self.joined or self.core.model(self.name))

    def _hear(self) -> None:
        try:
            self.ranks.heard(self.number, "done", f"commit '{self.name}'", _GRACE_S)
        except TimeoutError as error:
            # This rank has failed: rank 0 must not commit if it looks for the part.
            self.ranks.tell(self.number, "part", packed(error))
            raise

    def lead_in_failure(self, error: BaseException) -> None:
        """Reports that the part could not be started."""
        ranks = self.ranks
        if self.known is not None:
            ranks.tell(self.number, "have", {"call": self.call, "same": self.known})
        ranks.tell(self.number, "part", packed(error))
        if ranks.rank == 0:
            self._lead()
        ranks.leave(self.number)

    def _lead(self) -> None:
        """At rank 0: joins all parts into the model and reports the result to all ranks."""
        ranks, number = self.ranks, self.number

        def make() -> list[Any]:
            if self.known is not None:
                have = self.owner.gather(number, self.call)
                if any(one.get("same") != self.known for one in have):
                    raise self.owner.changed(have)
            parts = ranks.gather(number, "part", f"write its part of '{self.name}'")
            self._join(parts)
            return [{}] * ranks.size

        failure = ranks.answer(number, "done", make)
        if failure is not None and self.known is not None:
            ranks.answer_all(number, "plan", failure)  # for ranks whose plan was another
        ranks.forget(number, "have", "part")
        if failure is None:
            ranks.forget(number - 1, "plan", "done")

    def _join(self, parts: list[Any]) -> None:
        replicas.check([part["samples"] for part in parts])
        node = dict(self.held.node)
        ranks = {}
        for rank, part in enumerate(parts):
            differ = {key: one for key, one in part["plain"].items() if node.get(key) != one}
            ranks[str(rank)] = {**differ, **part["own"]}
        for key in dict.fromkeys(key for part in parts for key in part["pieces"]):
            node[key] = merged([part["pieces"][key] for part in parts if key in part["pieces"]])
        if any(ranks.values()):
            node["ranks"] = ranks
        structure = json.dumps({"tree": node}, separators=(",", ":"), allow_nan=False)
        try:
            blobs = tuple(base64.b64decode(part["part"], validate=True) for part in parts)
        except (ValueError, KeyError, TypeError) as error:
            raise Error(f"a rank sent an invalid part: {error}") from None
        meta = None if self.held.meta is None else json.dumps(self.held.meta, allow_nan=False)
        metrics: dict[str, float] = {}
        for part in parts:  # the loss of a pipeline is known to the rank of the last stage only
            metrics = metrics | part["metrics"] | metrics
        options = (_REPLACE, None, metrics or None, None, meta, structure, self.graphs, None, None)
        self.joined = self.core.join(self.name, blobs, options)
        self.after()
