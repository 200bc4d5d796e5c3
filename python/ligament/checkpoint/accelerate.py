"""Accelerate's `save_state` and `load_state` through a store: `register(accelerator, "runs")`.

Models, optimizers and schedulers go into the store, whole or not at all; Accelerate writes its
small files (step, random state, samplers) into the folder as ever, next to one that names the
model."""

from __future__ import annotations

import os
from typing import Any

from .. import tensors
from ..errors import MismatchError, UnsupportedError
from ..load import Loader
from ..store import Store
from . import pointer

_POINTER = "ligament.txt"


class Hooks:
    """What `register` returns."""

    def __init__(self, accelerator: Any, uri: str | os.PathLike[str] | Store) -> None:
        kind = str(accelerator.distributed_type).rpartition(".")[2]
        if kind in ("FSDP", "DEEPSPEED", "MEGATRON_LM"):
            raise UnsupportedError(
                f"Accelerate saves {kind} with code of its own, past its hooks; "
                "use ligament.checkpoint.dcp or Checkpointer"
            )
        self.accelerator = accelerator
        self.store = uri if isinstance(uri, Store) else Store(uri)
        self._handles = (
            accelerator.register_save_state_pre_hook(self.save),
            accelerator.register_load_state_pre_hook(self.load),
        )

    def remove(self) -> None:
        """Accelerate saves and loads by itself again."""
        for handle in self._handles:
            handle.remove()

    def save(self, models: list[Any], weights: list[Any], folder: str) -> None:
        """Called by `save_state`, in every process; replicas are the same in all of them."""
        try:
            if self.accelerator.is_main_process:
                self._save(folder)
        finally:
            self.accelerator.wait_for_everyone()  # who goes on may load it
        weights.clear()
        self._take_over()

    def _save(self, folder: str) -> None:
        name = pointer.name_for(folder)
        tree = {kind: [tensors.state_of(one) for one in found] for kind, found in self._all()}
        self.store._save(
            name,
            tensors.collect(tree, with_frameworks=True),
            tags={"accelerate": os.path.dirname(name) or "."},
            replace=True,
            progress=False,
        )
        pointer.write(os.path.join(folder, _POINTER), self.store.uri, name)
        self._prune(name)

    def load(self, models: list[Any], folder: str) -> None:
        """Called by `load_state`. A folder that was written without the hooks is Accelerate's to
        load."""
        place = os.path.join(folder, _POINTER)
        if not os.path.exists(place) and pointer.name_for(folder) not in self.store:
            return
        name = pointer.read(place) if os.path.exists(place) else pointer.name_for(folder)
        saved = self.store.load(name, tensors=[])
        for kind, found in self._all():
            count = len(saved.get(kind, ()))
            if count != len(found):
                raise MismatchError(
                    f"'{name}' has {count} {kind}, the accelerator was given {len(found)}"
                )
        self._fill(name)
        models.clear()
        self._take_over()

    def _all(self) -> list[tuple[str, list[Any]]]:
        accelerator = self.accelerator
        return [
            ("models", list(accelerator._models)),
            ("optimizers", list(accelerator._optimizers)),
            ("schedulers", list(accelerator._schedulers)),
        ]

    def _fill(self, name: str) -> None:
        rest = Loader(self.store._core, name)
        rest.chosen = [one for one in rest.names if not one.startswith("models.")]
        states = rest.whole("saved", False, None)
        for kind, found in self._all():
            for i, one in enumerate(found):
                if kind == "models":
                    prefix = f"models.{i}."
                    loader = Loader(self.store._core, name)
                    loader.chosen = [n for n in loader.names if n.startswith(prefix)]
                    loader.fill(one, False, False, False, False, prefix)
                else:
                    tensors.set_state(one)(states[kind][i])

    def _take_over(self) -> None:
        """`save_state` and `load_state` go on with the very lists that the accelerator holds: they
        find them empty, and the accelerator keeps copies."""
        for word in ("_optimizers", "_schedulers"):
            theirs = getattr(self.accelerator, word)
            setattr(self.accelerator, word, list(theirs))
            theirs.clear()

    def _prune(self, name: str) -> None:
        """As many stay as Accelerate keeps folders, where it names them itself."""
        project = self.accelerator.project_configuration
        if not project.automatic_checkpoint_naming or project.total_limit is None:
            return
        kept = self.store.models(tags={"accelerate": os.path.dirname(name) or "."})
        for model in kept[: max(len(kept) - project.total_limit, 0)]:
            self.store.retire(model)


def register(accelerator: Any, uri: str | os.PathLike[str] | Store) -> Hooks:
    """From now on `accelerator.save_state` and `load_state` keep models, optimizers and schedulers
    in the store at `uri`."""
    return Hooks(accelerator, uri)
