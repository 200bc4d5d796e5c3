"""The Keras callback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import plugins, tensors
from ..errors import InvalidError, NotFoundError, UnsupportedError
from ..store import Store
from .weights import load_weights, save_weights

_Callback: Any = tensors.callback_class()


class CheckpointCallback(_Callback):  # type: ignore[misc]
    """Checkpoints a model while it trains: every n epochs, or every n batches.

    `keep=n` keeps the last n under names of their own (the backend needs a store; `weights` then
    names the newest), `monitor` saves only when that value of the logs is better than before
    ("val_acc": larger, else smaller; or ("name", "max")), `restore` loads what is there when
    training begins."""

    def __init__(
        self,
        backend: str,
        config: str = "",
        frequency: Mapping[str, int] | None = None,
        include_optimizer: bool = True,
        keep: int | None = None,
        monitor: str | tuple[str, str] | None = None,
        restore: bool = False,
        name: str = "weights",
    ) -> None:
        super().__init__()
        frequency = {"epoch": 1} if frequency is None else dict(frequency)
        if len(frequency) != 1 or not set(frequency) <= {"epoch", "batch"}:
            raise InvalidError(f"frequency={frequency!r}: it is {{'epoch': n}} or {{'batch': n}}")
        ((self.unit, self.every),) = frequency.items()
        if self.every < 1 or (keep is not None and keep < 1):
            raise InvalidError("frequency and keep are at least 1")
        if keep is not None and not plugins.has_volume(backend):
            raise UnsupportedError(
                f"keep={keep} needs a backend with a store; '{backend}' has none"
            )
        self.backend, self.config, self.include_optimizer = backend, config, include_optimizer
        self.keep, self.restore, self.set_name = keep, restore, name
        self.monitor, self.sign = _monitored(monitor)
        self.best: float | None = None
        self.batches = 0
        self.saved: list[str] = []

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Loads what is there, when told to; what an earlier run kept counts for `keep`."""
        if self.keep is not None:
            with Store(plugins.store_uri(self.backend, self.config)) as store:
                self.saved = [model.name for model in store.models(f"{self.set_name}/*")]
        if not self.restore:
            return
        try:
            load_weights(
                self.model, self.backend, self.config, self.include_optimizer, self.set_name
            )
        except NotFoundError:
            return

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Saves after every n-th epoch."""
        if self.unit == "epoch" and (epoch + 1) % self.every == 0:
            self._save(f"epoch-{epoch + 1:06d}", logs)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Saves after every n-th batch."""
        self.batches += 1
        if self.unit == "batch" and self.batches % self.every == 0:
            self._save(f"batch-{self.batches:09d}", logs)

    def _save(self, label: str, logs: Mapping[str, Any] | None) -> None:
        if self.monitor is not None:
            value = (logs or {}).get(self.monitor)
            if value is None:
                raise InvalidError(
                    f"monitor='{self.monitor}' is not among the logs: {sorted(logs or {})}"
                )
            if self.best is not None and not self.sign * float(value) > self.sign * self.best:
                return
            self.best = float(value)
        if self.keep is None:
            save_weights(
                self.model, self.backend, self.config, self.include_optimizer, self.set_name
            )
            return
        one = f"{self.set_name}/{label}"
        save_weights(self.model, self.backend, self.config, self.include_optimizer, one)
        with Store(plugins.store_uri(self.backend, self.config)) as store:
            store.alias(self.set_name, one)
            self.saved = [name for name in self.saved if name != one] + [one]
            while len(self.saved) > self.keep:
                store.retire(self.saved.pop(0))


def _monitored(monitor: str | tuple[str, str] | None) -> tuple[str | None, float]:
    """The name, and 1 when larger is better, -1 when smaller is."""
    if monitor is None:
        return None, 1.0
    if isinstance(monitor, str):
        larger = any(
            word in monitor for word in ("acc", "auc", "f1", "precision", "recall", "score")
        )
        return monitor, 1.0 if larger else -1.0
    name, mode = monitor
    if mode not in ("min", "max"):
        raise InvalidError(f"monitor={monitor!r}: the mode is 'min' or 'max'")
    return name, 1.0 if mode == "max" else -1.0
