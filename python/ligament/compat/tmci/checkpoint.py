"""tmci.checkpoint, also as the fork has it: a subset of layers, a model's number, and numbers and
owners of its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ligament
from ligament import checkpoint, tensors
from ligament.checkpoint import CheckpointCallback
from ligament.transfer import LayerStore

_stores: dict[str, LayerStore] = {}


def _store(backend: str, config: str) -> LayerStore:
    place = config or backend
    if place not in _stores:
        _stores[place] = LayerStore(ligament.Store(place))
    return _stores[place]


def _numbers(values: Sequence[int], count: int) -> list[int]:
    """64-bit numbers, or pairs of 32-bit halves, the low one first."""
    numbers = [int(value) for value in values]
    if len(numbers) == count:
        return numbers
    if len(numbers) != 2 * count:
        raise ligament.InvalidError(f"{len(numbers)} numbers for {count} tensors")
    mask = (1 << 32) - 1
    halves = zip(numbers[::2], numbers[1::2], strict=True)
    return [(low & mask) | (high & mask) << 32 for low, high in halves]


def _weights(model: Any, layers: Sequence[Any] | None) -> list[Any]:
    parts = [model] if layers is None else layers
    return [value for part in parts for value in tensors.collect(part).values]


def save_weights(
    model: Any,
    backend: str,
    config: str = "",
    include_optimizer: bool = True,
    *,
    layers: Sequence[Any] | None = None,
    model_id: int | None = None,
    tensor_ids: Sequence[int] | None = None,
) -> None:
    """Without a model's number as tmci; with it the tensors wait for `store_meta`."""
    if model_id is None or tensor_ids is None:
        checkpoint.save_weights(model, backend, config, include_optimizer)
        return
    values = _weights(model, layers)
    _store(backend, config).store_layers(values, model_id, _numbers(tensor_ids, len(values)))


def load_weights(
    model: Any,
    backend: str,
    config: str = "",
    include_optimizer: bool = True,
    *,
    layers: Sequence[Any] | None = None,
    model_id: int | None = None,
    tensor_ids: Sequence[int] | None = None,
    owners: Sequence[int] | None = None,
) -> None:
    """Without tensors' numbers as tmci; with them each is read from its owner, or from the
    model."""
    if tensor_ids is None:
        checkpoint.load_weights(model, backend, config, include_optimizer)
        return
    values = _weights(model, layers)
    lids = _numbers(tensor_ids, len(values))
    named = [model_id or 0] * len(values) if owners is None else _numbers(owners, len(values))
    _store(backend, config).read_layers(values, lids, named)


__all__ = ["CheckpointCallback", "load_weights", "save_weights"]
