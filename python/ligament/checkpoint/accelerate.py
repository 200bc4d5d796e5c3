"""Accelerate's `save_state` and `load_state` with a store: `register(accelerator, "runs")`.

Models, optimizers and schedulers are saved atomically to the store; Accelerate writes its small
files (step, random state, samplers) to the folder as usual, next to a file that names the model.
"""

from __future__ import annotations

import os
from typing import Any

from .. import _core, tensors
from ..errors import MismatchError, PeerError, UnsupportedError
from ..graph import graphs_of_parts
from ..load import Loader
from ..store import Store
from . import model_link, runs
from .retention import beyond

_LINK = "ligament.txt"
_RUN = "run"


class Hooks:
    """What `register` returns."""

    def __init__(
        self, accelerator: Any, uri: str | os.PathLike[str] | Store, run: str | None = None
    ) -> None:
        self.run = None if run is None else runs.check(run)
        kind = str(accelerator.distributed_type).rpartition(".")[2]
        if kind in ("FSDP", "DEEPSPEED", "MEGATRON_LM"):
            raise UnsupportedError(
                f"Accelerate saves {kind} with its own code and bypasses its hooks (use "
                "ligament.checkpoint.dcp or Checkpointer)"
            )
        self.accelerator = accelerator
        self.store = uri if isinstance(uri, Store) else Store(uri)
        self._lock: _core.Lock | None = None
        self._handles = (
            accelerator.register_save_state_pre_hook(self.save),
            accelerator.register_load_state_pre_hook(self.load),
        )

    def remove(self) -> None:
        """Restores Accelerate's own saving and loading, and releases the run."""
        for handle in self._handles:
            handle.remove()
        self._lock = None

    def save(self, models: list[Any], weights: list[Any], folder: str) -> None:
        """Called by `save_state` in every process; replicas are the same in all of them."""
        failure: BaseException | None = None
        try:
            if self.accelerator.is_main_process:
                self._save(folder)
        except BaseException as error:
            failure = error
        told = self._told(failure)  # a process that continues may load the model
        if failure is not None:
            raise failure
        if told is not None:
            raise PeerError(f"the main process failed to save {folder}: {told}")
        weights.clear()
        self._take_over()

    @staticmethod
    def _told(failure: BaseException | None) -> str | None:
        """Raises an error of the main process in all processes."""
        from accelerate.utils import broadcast_object_list

        mine = None if failure is None else str(failure) or type(failure).__name__
        told: str | None = broadcast_object_list([mine])[0]
        return told

    def _save(self, folder: str) -> None:
        if self.run is not None and self._lock is None:
            self._lock = runs.hold(self.store, self.run)
        name = model_link.name_for(self.store, folder, self.run)
        group = os.path.dirname(os.path.abspath(folder))
        tree = {kind: [tensors.state_of(one) for one in found] for kind, found in self._all()}
        self.store._save(
            name,
            tensors.collect(tree, with_frameworks=True),
            tags={"accelerate": group, **self._tag(), **model_link.tags_for(folder)},
            replace=True,
            progress=False,
            related=(
                graphs_of_parts(
                    {f"{kind}.{i}": one for kind, all_ in self._all() for i, one in enumerate(all_)}
                ),
                None,
            ),
        )
        model_link.write(os.path.join(folder, _LINK), self.store.uri, name)
        self._prune(group)

    def load(self, models: list[Any], folder: str) -> None:
        """Called by `load_state`. Accelerate itself loads a folder that was written without the
        hooks."""
        place = os.path.join(folder, _LINK)
        there = os.path.exists(place)
        name = model_link.read(self.store, place if there else folder, self.run)
        if not there and name not in self.store:
            return
        ref = self.store._core.resolve(name)
        plain = Loader(ref)
        plain.chosen = []
        saved = plain.whole("saved", False, None)
        for kind, found in self._all():
            count = len(saved.get(kind, ()))
            if count != len(found):
                raise MismatchError(
                    f"'{name}' has {count} {kind}, but the accelerator has {len(found)}"
                )
        self._fill(ref)
        models.clear()
        self._take_over()

    def _all(self) -> list[tuple[str, list[Any]]]:
        accelerator = self.accelerator
        return [
            ("models", list(accelerator._models)),
            ("optimizers", list(accelerator._optimizers)),
            ("schedulers", list(accelerator._schedulers)),
        ]

    def _fill(self, ref: _core.Ref) -> None:
        rest = Loader(ref)
        rest.chosen = [one for one in rest.names if not one.startswith("models.")]
        states = rest.whole("saved", False, None)
        for kind, found in self._all():
            for i, one in enumerate(found):
                if kind == "models":
                    prefix = f"models.{i}."
                    loader = Loader(ref)
                    loader.chosen = [n for n in loader.names if n.startswith(prefix)]
                    loader.fill(one, False, False, False, False, prefix)
                else:
                    tensors.set_state(one)(states[kind][i])

    def _take_over(self) -> None:
        """`save_state` and `load_state` continue with the lists that they were given, so these are
        emptied and the accelerator gets copies."""
        for word in ("_optimizers", "_schedulers"):
            theirs = getattr(self.accelerator, word)
            setattr(self.accelerator, word, list(theirs))
            theirs.clear()

    def _tag(self) -> dict[str, str]:
        return {} if self.run is None else {_RUN: self.run}

    def _prune(self, group: str) -> None:
        """Keeps as many checkpoints as Accelerate keeps folders, if Accelerate chooses their
        names."""
        project = self.accelerator.project_configuration
        if not project.automatic_checkpoint_naming or project.total_limit is None:
            return
        found = self.store.models(tags={"accelerate": group, **self._tag()})
        kept = [model for model in found if model.tags.get(_RUN) == self.run]
        for model in beyond(kept, project.total_limit):
            self.store.retire(model)


def register(
    accelerator: Any, uri: str | os.PathLike[str] | Store, *, run: str | None = None
) -> Hooks:
    """Makes `accelerator.save_state` and `load_state` use the store at `uri` for models, optimizers
    and schedulers. With a `run`, the names of the models start with it, and only the main process
    may write to the run until it ends or calls `remove`."""
    return Hooks(accelerator, uri, run)
