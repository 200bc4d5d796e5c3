"""save_weights and load_weights."""

from __future__ import annotations

import os
from typing import Any

from .. import _core, plugins, tensors
from ..tensors import Fresh


def save_weights(
    model: Any,
    backend: str | os.PathLike[str],
    config: str = "",
    include_optimizer: bool = True,
    name: str = "weights",
    *,
    optimizer: Any = None,
) -> None:
    """Saves a model's weights, then its optimizer's, under `name`; replaces an existing set.
    `backend` is a folder, a store's URI, or the name of a loaded plugin, which gets `config`; pass
    torch optimizers as `optimizer`."""
    backend = checked_backend(backend, config)
    found = tensors.weights(model, optimizer, include_optimizer, build=False)
    plugins.instance(backend, config).save(
        name, _core.Batch(found.names, tensors.lend(found.values))
    )


def load_weights(
    model: Any,
    backend: str | os.PathLike[str],
    config: str = "",
    include_optimizer: bool = True,
    name: str = "weights",
    *,
    optimizer: Any = None,
) -> None:
    """Fills a model and its optimizer from a set written by `save_weights`. An optimizer without
    state is built first."""
    backend = checked_backend(backend, config)
    plugins.check_exists(backend, config)
    instance = plugins.instance(backend, config)
    stored = instance.names(name) if plugins.has_volume(backend) else None
    target = tensors.weights(model, optimizer, include_optimizer, build=True, stored=stored)
    # Without an optimizer in the target, its state in the checkpoint is skipped.
    whole = any(one.startswith("optimizer") for one in target.names)
    takers = fill(backend, config, name, target, not whole)
    target.done(list(range(len(target.values))), takers)


def checked_backend(backend: Any, config: Any) -> str:
    """The backend as a string; a path object is a folder, even if a plugin has its name. Raises
    TypeError, as TMCI does."""
    if isinstance(backend, os.PathLike):
        backend = os.path.abspath(os.fspath(backend))
    for word, value in (("backend", backend), ("config", config)):
        if not isinstance(value, str):
            raise TypeError(f"{word} should be a string, not {type(value).__qualname__}")
    return str(backend)


def fill(
    backend: str, config: str, name: str, target: tensors.Collected, part: bool
) -> dict[int, Any]:
    """Fills tensors, or memory for a Batch, from a set; with `part` the set may contain more.
    Returns the takers of tensors that the core does not fill itself."""
    items = list(target.values)
    places = [i for i, item in enumerate(items) if type(item) is not tuple]
    takers = tensors.takers(target.names, items, places)
    seen: set[Any] = set()
    for i, taker in takers.items():
        whose = tensors.identity(items[i])
        place = None
        if whose not in seen:
            place = tensors.device_place(taker) or tensors.place(taker)
        seen.add(whose)
        items[i] = Fresh(taker.code, taker.shape) if place is None else place
    later = [i for i in takers if isinstance(items[i], Fresh)]
    batch = _core.Batch(target.names, items, True)
    if not plugins.has_volume(backend):
        _prefill(target, [i for i in later if not takers[i].mapped], items)
    plugins.instance(backend, config).load(name, batch, part)
    for i in later:
        takers[i].take(items[i])
    return takers


def _prefill(target: tensors.Collected, mine: list[int], items: list[Any]) -> None:
    """A backend without a store may leave tensors unchanged: memory that is taken over starts with
    the current values."""
    names = [target.names[i] for i in mine]
    now = _core.Batch(names, [target.values[i] for i in mine])
    now.copy_to(_core.Batch(names, [items[i] for i in mine], True))
