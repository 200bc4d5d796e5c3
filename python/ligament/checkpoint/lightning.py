"""Lightning stores its checkpoints in a store: `Trainer(plugins=[CheckpointIO("runs")])`.

In place of each checkpoint file there is a small file that names the model. After this module was
imported, `LightningModule.load_from_checkpoint` also accepts such a file. Works with `lightning`
and `pytorch_lightning`, whichever is imported.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from .. import _core, tensors
from ..errors import MissingPackageError, NotFoundError
from ..graph import graphs_of_parts
from ..load import Loader
from ..store import Store
from . import model_link, runs

_Path = str | os.PathLike[str]


def _bases() -> tuple[type, ...]:
    """The interfaces of those that are imported; if none is, that of the first that can be
    imported."""
    packages = ("lightning.fabric", "lightning_fabric")
    loaded = [name for name in packages if name in sys.modules]
    found = []
    for name in loaded or packages:
        try:
            found.append(importlib.import_module(f"{name}.plugins").CheckpointIO)
        except ImportError:
            continue
        if not loaded:
            break
    if not found:
        raise MissingPackageError("ligament.checkpoint.lightning", "lightning")
    return tuple(found)


class CheckpointIO(*_bases()):  # type: ignore[misc]
    """Saves checkpoints of a Trainer as models of the store at `uri`. `wait=False` saves in the
    background; the next save and the end of training wait for it. With a `run`, the names of its
    models start with it, and only the process that saves may write to the run until training ends.
    With `model`, the module that is trained, `Store.find` finds its checkpoints."""

    def __init__(
        self,
        uri: _Path | Store,
        wait: bool = True,
        *,
        run: str | None = None,
        model: Any = None,
    ) -> None:
        super().__init__()
        self._model = model
        self.run = None if run is None else runs.check(run)
        self._lock: _core.Lock | None = None
        self.store = uri if isinstance(uri, Store) else Store(uri)
        self.wait = wait

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: _Path, storage_options: Any | None = None
    ) -> None:
        """Saves the state that Lightning has gathered; objects that need pickle are refused, with
        their path."""
        if storage_options is not None:
            raise TypeError("storage_options are not supported: put options into the store's URI")
        if self.run is not None and self._lock is None:
            self._lock = runs.hold(self.store, self.run)
        name = model_link.name_for(self.store, path, self.run)
        self.store._save(
            name,
            tensors.collect(checkpoint, with_frameworks=True),
            metrics=_metrics(checkpoint),
            tags=model_link.tags_for(path),
            replace=True,
            wait=self.wait,
            progress=False,
            related=(graphs_of_parts({"state_dict": self._model}), None),
            after=lambda: model_link.write(path, self.store.uri, name),
        )

    def load_checkpoint(
        self, path: _Path, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Returns the saved state; tensors are in host memory, or on `map_location` if that is a
        device. Nothing is unpickled, regardless of `weights_only`."""
        self.store.wait()
        try:
            name = model_link.read(self.store, path, self.run)
            loader = Loader(self.store._core.resolve(name))
        except NotFoundError as error:
            hint = "; `python -m ligament.convert` imports that file into the store"
            raise FileNotFoundError(
                f"checkpoint not found: {path}: {error}{hint if os.path.isfile(path) else ''}"
            ) from None
        return _tree(loader, map_location)

    def remove_checkpoint(self, path: _Path) -> None:
        """Retires the model, if it exists."""
        self.store.wait()
        try:
            self.store.retire(model_link.read(self.store, path, self.run))
        except NotFoundError:
            pass
        model_link.remove(path)

    def teardown(self) -> None:
        """Waits for a save in the background and releases the run."""
        try:
            self.store.wait()
        finally:
            self._lock = None


def _tree(loader: Loader, map_location: Any) -> dict[str, Any]:
    tree: dict[str, Any] = loader.whole("saved", False, None)
    device = map_location if not callable(map_location) else None
    return tree if device is None else _moved(tree, device)


def _wrap_pl_load() -> None:
    """Wraps the function with which `load_from_checkpoint` reads files, bypassing all plugins: it
    first checks whether the file is a link to a model."""
    pairs = (("lightning.fabric", "lightning.pytorch"), ("lightning_fabric", "pytorch_lightning"))
    for package in (pytorch for fabric, pytorch in pairs if fabric in sys.modules):
        try:
            saving: Any = importlib.import_module(f"{package}.core.saving")
        except ImportError:  # only Fabric is installed
            continue
        saving.pl_load = _taking_links(saving.pl_load)


def _taking_links(load: Any) -> Any:
    @functools.wraps(load)
    def loaded(path: Any, *args: Any, **options: Any) -> Any:
        link = model_link.target(path) if isinstance(path, (str, os.PathLike)) else None
        if link is None:
            return load(path, *args, **options)
        with Store(link[0], "r") as store:
            return _tree(Loader(store._core.resolve(link[1])), options.get("map_location"))

    return loaded


def _moved(tree: Any, device: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _moved(item, device) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_moved(item, device) for item in tree)
    if not hasattr(tree, "device") or not hasattr(tree, "to"):
        return tree
    where = device.get(str(tree.device)) if isinstance(device, Mapping) else device
    return tree if where is None else tree.to(where)


def _metrics(checkpoint: Mapping[str, Any]) -> dict[str, float]:
    """The values that callbacks monitor."""
    found = {}
    for state in (checkpoint.get("callbacks") or {}).values():
        if not isinstance(state, Mapping):
            continue
        watched, value = state.get("monitor"), state.get("current_score")
        if isinstance(watched, str) and value is not None:
            found[watched] = float(value)
    return found


_wrap_pl_load()
