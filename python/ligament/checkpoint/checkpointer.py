"""Checkpoints of a training run: everything that has a state, by step."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from .. import tensors
from ..errors import InvalidError, NotFoundError
from ..load import Loader
from ..store import Model, Store
from ..ticket import Ticket

_PREFIX = "step-"
_OWN = ("rng", "extra")  # parts of a checkpoint that are not the caller's objects


@dataclass(frozen=True)
class Restored:
    """Where training stands after `restore`."""

    step: int
    extra: Any = None
    metrics: dict[str, float] = field(default_factory=dict)


class Checkpointer:
    """Saves and restores a run. `keep`: how many steps stay; `best=("val_loss", "min")`: the best
    one stays besides."""

    def __init__(
        self,
        uri: str | os.PathLike[str] | Store,
        keep: int | None = None,
        best: tuple[str, str] | None = None,
    ) -> None:
        if keep is not None and keep < 1:
            raise InvalidError("keep is at least 1, or None to keep all")
        if best is not None and (len(best) != 2 or best[1] not in ("min", "max")):
            raise InvalidError(f"best={best!r}: it is (metric, 'min' or 'max')")
        self.store = uri if isinstance(uri, Store) else Store(uri)
        self._owned = not isinstance(uri, Store)
        self._keep, self._best = keep, best
        self._signalled: threading.Event | None = None

    # --- save and restore -----------------------------------------------------------------------

    def save(
        self,
        step: int,
        *,
        rng: bool = False,
        extra: Any = None,
        metrics: Mapping[str, float] | None = None,
        wait: bool = True,
        snapshot: str | None = None,
        snapshot_bytes: int = 256 << 20,
        progress: bool | None = None,
        **parts: Any,
    ) -> Model | Ticket[Model]:
        """Saves `parts` (models, optimizers, whatever has a state_dict, trees) as they are now
        under the step."""
        if type(step) is not int or step < 0:
            raise InvalidError(f"step={step!r}: a number that is not negative")
        self.wait()
        tree = {name: tensors.state_of(part) for name, part in parts.items() if part is not None}
        if rng:
            tree["rng"] = tensors.rng_state()
        if extra is not None:
            tree["extra"] = extra
        result: Model | Ticket[Model] = self.store._save(
            _name(step),
            tensors.collect(tree, with_frameworks=True),
            metrics=metrics,
            replace=True,
            wait=wait,
            snapshot=snapshot,
            snapshot_bytes=snapshot_bytes,
            progress=progress,
            after=self._prune,
        )
        return result

    def restore(
        self, *, step: int | None = None, rng: bool = True, **parts: Any
    ) -> Restored | None:
        """Fills `parts` from the newest step, or from `step`, and puts the random generators back
        where they were. None when there is nothing yet."""
        self.wait()
        if step is None:
            step = self.latest()
            if step is None:
                return None
        elif step not in self.steps():
            raise NotFoundError(
                f"there is no step {step} in {self.store.uri}; there are {self.steps()}"
            )
        given = {name: part for name, part in parts.items() if part is not None}
        models = {name for name, part in given.items() if tensors.is_model(part)}
        loader = Loader(self.store._core, _name(step))
        rest = self._rest(loader, models)
        lacking = [name for name in given if name not in rest]
        if lacking:
            raise NotFoundError(
                f"step {step} has no {', '.join(map(repr, lacking))}; it has {sorted(set(rest))}"
            )
        for name in models:
            self._fill(_name(step), given[name], name)
        for name, part in given.items():
            if name not in models:
                tensors.set_state(part)(rest[name])
        if rng and "rng" in rest:
            tensors.set_rng_state(rest["rng"])
        return Restored(step, rest.get("extra"), loader.model.metrics)

    def _rest(self, loader: Loader, models: set[str]) -> dict[str, Any]:
        """Everything but the tensors of models, which are filled in place."""
        prefixes = tuple(f"{name}." for name in models)
        loader.chosen = [
            name for name in loader.names if not (prefixes and name.startswith(prefixes))
        ]
        tree: dict[str, Any] = loader.whole("saved", False, None)
        return tree

    def _fill(self, model: str, part: Any, prefix: str) -> None:
        loader = Loader(self.store._core, model)
        loader.chosen = [name for name in loader.names if name.startswith(f"{prefix}.")]
        loader.fill(part, False, False, False, False, f"{prefix}.")

    # --- what is there --------------------------------------------------------------------------

    def steps(self) -> list[int]:
        """The steps that are saved, in order."""
        found = self.store.models(_PREFIX + "*")
        return sorted(
            int(m.name[len(_PREFIX) :]) for m in found if m.name[len(_PREFIX) :].isdigit()
        )

    def latest(self) -> int | None:
        """The newest step, None when there is none."""
        return max(self.steps(), default=None)

    def best(self) -> int | None:
        """The step with the best value of the metric that was given as `best`."""
        if self._best is None:
            raise InvalidError(
                "say which metric is best: Checkpointer(..., best=('val_loss', 'min'))"
            )
        metric, mode = self._best
        found = [m for m in self.store.models(_PREFIX + "*") if metric in m.metrics]
        if not found:
            return None
        sign = 1 if mode == "max" else -1
        return int(
            max(found, key=lambda m: (sign * m.metrics[metric], m.name)).name[len(_PREFIX) :]
        )

    def wait(self) -> None:
        """Waits for a save in the background and raises what went wrong with it."""
        self.store._settle()

    def close(self) -> None:
        """Waits, then lets go of the store."""
        if self._owned:
            self.store.close()
        else:
            self.wait()

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        policy = f"keep={self._keep!r}, best={self._best!r}"
        return f"ligament.checkpoint.Checkpointer({self.store.uri!r}, {policy})"

    def _prune(self) -> None:
        """After a commit: the newest `keep` stay, and the best."""
        if self._keep is None:
            return
        kept = set(self.steps()[-self._keep :])
        best = self.best() if self._best is not None else None
        if best is not None:
            kept.add(best)
        for step in self.steps():
            if step not in kept:
                self.store.retire(_name(step))

    # --- being told to stop ---------------------------------------------------------------------

    def preempted(self) -> bool:
        """Whether SIGTERM or SIGUSR1 has come. The first call starts listening, and from then on
        these signals end nothing."""
        if self._signalled is None:
            self._signalled = threading.Event()
            for number in (signal.SIGTERM, signal.SIGUSR1):
                self._listen(number, self._signalled)
        return self._signalled.is_set()

    def _listen(self, number: signal.Signals, seen: threading.Event) -> None:
        before = signal.getsignal(number)

        def handler(signum: int, frame: FrameType | None) -> None:
            seen.set()
            if callable(before):
                before(signum, frame)

        signal.signal(number, handler)


def _name(step: int) -> str:
    return f"{_PREFIX}{step:012d}"
