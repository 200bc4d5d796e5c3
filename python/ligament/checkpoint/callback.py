"""The callback for models of Keras 2 and 3."""

from __future__ import annotations

import math
import numbers
import os
import re
from collections.abc import Mapping
from typing import Any

from .. import _core, arguments, plugins, tensors
from ..errors import InvalidError, NotFoundError, UnsupportedError
from ..graph import graphs_for
from ..store import Model, Store
from . import retention, runs
from .ranks import job
from .weights import checked_backend, load_weights, save_weights

_NAME = "weights"
_LABEL = re.compile(r"epoch-[0-9]{6,}|batch-[0-9]{9,}|before")  # suffix of the set's name
_Callback: Any = tensors.callback_class()


def _is_count(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


class CheckpointCallback(_Callback):  # type: ignore[misc]
    """Checkpoints a model while it trains: every n epochs, every n batches, or both. `backend` is a
    folder, a store's URI, or the name of a loaded plugin, which gets `config`.

    `keep=n` keeps the last n under separate names (the backend must be a store; `weights` is then
    an alias of the newest). Without `keep` each save replaces the one before. `monitor` saves only
    if that value of the logs has improved on all earlier ones, including those of earlier runs
    ("val_acc": larger is better, otherwise smaller; or ("name", "max")).
    `restore` loads the newest checkpoint when training begins and continues after its epoch. A
    backend without a store holds only weights: there `restore` and `monitor` ignore earlier runs.

    Several runs can share a store: `run="a"` prefixes `name` with `a/`. The first save makes this
    process the writer of the run until training ends; meanwhile a save by another process raises
    BusyError.
    """

    def __init__(
        self,
        backend: str | os.PathLike[str],
        config: str = "",
        frequency: Mapping[str, int] | None = None,
        include_optimizer: bool = True,
        keep: int | None = None,
        monitor: str | tuple[str, str] | None = None,
        restore: bool = False,
        name: str = _NAME,
        *,
        run: str = runs.DEFAULT,
    ) -> None:
        super().__init__()
        runs.check(run)
        backend = checked_backend(backend, config)
        self.every = _frequency({"epoch": 1} if frequency is None else frequency)
        retention.check_keep(keep)
        self.uri = plugins.shared_uri(backend, config)
        if keep is not None and self.uri is None:
            raise UnsupportedError(
                f"keep={keep} needs a backend that is a named store, but '{backend}' is not"
            )
        self.backend, self.config, self.include_optimizer = backend, config, include_optimizer
        self.keep, self.restore, self.set_name = keep, restore, runs.within(run, name)
        self._run = run if name == _NAME else f"{run}/{name}"  # sets are written independently
        self._lock: _core.Lock | None = None
        self.monitor, self.sign = _monitored(monitor)
        if "batch" in self.every and (self.monitor or "").startswith("val_"):
            raise InvalidError(
                f"monitor='{self.monitor}' has no value after a batch: use frequency={{'epoch': n}}"
            )
        self.best: float | None = None
        self.batches = self.epoch = 0
        self.saved: list[str] = []
        self._aliased = False  # the set's name is an alias

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Opens the backend, so that an invalid one fails here and not after the first epoch.
        Restores the newest checkpoint if `restore` is set; `keep` and `monitor` include the
        checkpoints of earlier runs."""
        plugins.instance(self.backend, self.config)  # keeps an in-memory store alive
        if self.uri is not None:
            with Store(self.uri) as store:
                self._look(store)
        if not self.restore:
            return
        try:
            load_weights(
                self.model, self.backend, self.config, self.include_optimizer, self.set_name
            )
        except NotFoundError:
            return
        tensors.start_at(self.model, self.epoch or None)

    def _look(self, store: Store) -> None:
        found = store.models(runs.escaped(self.set_name) + "/*")
        kept = [m for m in found if _LABEL.fullmatch(m.name, len(self.set_name) + 1)]
        newest = store[self.set_name] if self.set_name in store else None
        # An earlier run with `keep` has left an alias: without `keep` its newest is replaced.
        self._aliased = newest is not None and newest.name != self.set_name
        self.saved = [m.name for m in kept if self.keep is not None or m == newest]
        if self.monitor is not None:
            values = [m.metrics.get(self.monitor) for m in (*kept, newest) if m is not None]
            known = [value for value in values if value is not None and value == value]
            if known:
                self.best = max(known, key=lambda value: self.sign * value)
        if self.restore and newest is not None:
            self.epoch, self.batches = _progress(newest)

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Resets the start epoch: the next run may be in another process."""
        self._lock = None
        if self.restore:
            tensors.start_at(self.model, None)

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Records the number of finished epochs."""
        self.epoch = epoch

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Saves after every n-th epoch."""
        self.epoch = epoch + 1
        if "epoch" in self.every and self.epoch % self.every["epoch"] == 0:
            self._save(f"epoch-{epoch + 1:06d}", logs)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Saves after every n-th batch."""
        self.batches += 1
        if "batch" in self.every and self.batches % self.every["batch"] == 0:
            self._save(f"batch-{self.batches:09d}", logs)

    def _save(self, label: str, logs: Mapping[str, Any] | None) -> None:
        if self.monitor is not None:
            value = (logs or {}).get(self.monitor)
            if value is None:
                raise InvalidError(_lacks(self.monitor, sorted(logs or {})))
            least = -math.inf if self.best is None else self.sign * self.best
            if not self.sign * float(value) > least:  # nor is a value that is not a number
                return
            self.best = float(value)
        if self.uri is None:
            save_weights(
                self.model, self.backend, self.config, self.include_optimizer, self.set_name
            )
            return
        with Store(self.uri) as store:
            self._hold(store)
            self._store(store, label, logs)

    def _hold(self, store: Store) -> None:
        found = job()
        if self._lock is None and (found is None or found[1] == 0):  # rank 0 locks for the job
            self._lock = runs.hold(store, self._run)

    def _store(self, store: Store, label: str, logs: Mapping[str, Any] | None) -> None:
        """Saves weights, metrics and training progress with one commit."""
        by_label = self.keep is not None or self._aliased
        one = f"{self.set_name}/{label}" if by_label else self.set_name
        found = tensors.weights(self.model, None, self.include_optimizer, build=False)
        store._save(
            one,
            found,
            metrics=arguments.metrics(logs),
            meta={"epoch": self.epoch, "batches": self.batches},
            replace=True,
            progress=False,
            related=(graphs_for(self.model, None, None, None), None),
        )
        if not by_label:
            return
        if self.set_name in store and store[self.set_name].name == self.set_name:
            store.update(self.set_name, name=f"{self.set_name}/before")  # of a run without `keep`
            self.saved.insert(0, f"{self.set_name}/before")
        store.alias(self.set_name, one)
        self.saved = [name for name in self.saved if name != one] + [one]
        for name in retention.beyond(self.saved, self.keep or 1):
            store.retire(name)
            self.saved.remove(name)


def _frequency(given: Mapping[str, int]) -> dict[str, int]:
    """The validated counts by unit."""
    if not isinstance(given, Mapping):
        raise TypeError(f"frequency should be a dict, not {type(given).__qualname__}")
    if not given or not set(given) <= {"epoch", "batch"} or not all(map(_is_count, given.values())):
        raise InvalidError(
            f"frequency={given!r}: expected {{'epoch': n, 'batch': m}} or one of them"
        )
    if min(given.values()) < 1:
        raise InvalidError(f"frequency={given!r}: the counts must be at least 1")
    return {unit: int(count) for unit, count in given.items()}


def _lacks(monitor: str, logs: list[str]) -> str:
    text = f"monitor='{monitor}' is not among the logs: {logs}"
    if monitor.startswith("val_") and not any(name.startswith("val_") for name in logs):
        text += " (pass validation_data or validation_split to fit; with validation_freq=n, save "
        text += "with frequency={'epoch': n})"
    return text


def _progress(model: Model) -> tuple[int, int]:
    """The number of finished epochs and batches; zeros if another program saved the checkpoint."""
    meta = model.meta if isinstance(model.meta, dict) else {}
    found = [meta.get(word) for word in ("epoch", "batches")]
    epoch, batches = (n if type(n) is int and n >= 0 else 0 for n in found)
    return epoch, batches


def _monitored(monitor: str | tuple[str, str] | None) -> tuple[str | None, float]:
    """The name, and 1 if larger is better, -1 if smaller is."""
    if monitor is None:
        return None, 1.0
    if isinstance(monitor, str):
        larger = any(
            word in monitor for word in ("acc", "auc", "f1", "precision", "recall", "score")
        )
        return monitor, 1.0 if larger else -1.0
    name, mode = monitor
    if mode not in ("min", "max"):
        raise InvalidError(f"monitor={monitor!r}: the mode must be 'min' or 'max'")
    return name, 1.0 if mode == "max" else -1.0
