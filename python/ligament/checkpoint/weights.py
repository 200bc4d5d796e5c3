"""save_weights and load_weights."""

from __future__ import annotations

from typing import Any

from .. import _core, plugins, tensors
from ..tensors import Fresh


def save_weights(
    model: Any,
    backend: str,
    config: str = "",
    include_optimizer: bool = True,
    name: str = "weights",
    *,
    optimizer: Any = None,
) -> None:
    """Saves a model's weights, then its optimizer's, under `name`; what was there is replaced.
    `backend` is a plugin's name or a store's URI; torch's optimizers are given as `optimizer`."""
    found = tensors.weights(model, optimizer, include_optimizer, build=False)
    plugins.instance(backend, config).save(name, _core.Batch(found.names, found.values))


def load_weights(
    model: Any,
    backend: str,
    config: str = "",
    include_optimizer: bool = True,
    name: str = "weights",
    *,
    optimizer: Any = None,
) -> None:
    """Fills a model, and its optimizer, from what `save_weights` wrote. An optimizer without state
    is built first."""
    instance = plugins.instance(backend, config)
    stored = instance.names(name) if plugins.has_volume(backend) else None
    target = tensors.weights(model, optimizer, include_optimizer, build=True, stored=stored)
    items = list(target.values)
    takers = tensors.takers(target.names, items, list(range(len(items))))
    for i, taker in takers.items():
        items[i] = Fresh(taker.code, taker.shape)
    batch = _core.Batch(target.names, items, True)
    if not plugins.has_volume(backend):
        _prefill(target, takers, items)
    # Without the optimizer in the target its state in the checkpoint is passed over.
    whole = any(one.startswith("optimizer") for one in target.names)
    instance.load(name, batch, not whole)
    for i, taker in takers.items():
        taker.take(items[i])
    target.done(list(range(len(items))), takers)


def _prefill(target: tensors.Target, takers: dict[int, Any], items: list[Any]) -> None:
    """A backend without a store may leave tensors as they are: what takes over memory starts with
    the values of now."""
    mine = [i for i in takers if not takers[i].mapped]
    names = [target.names[i] for i in mine]
    now = _core.Batch(names, [target.values[i] for i in mine])
    now.copy_to(_core.Batch(names, [items[i] for i in mine], True))
