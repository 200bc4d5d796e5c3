"""tmci.checkpoint, and the calls of EvoStore's fork of it: a subset of layers, a model's number,
numbers of its tensors and of their owners."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ligament import _core, checkpoint, plugins, tensors
from ligament.checkpoint.weights import fill
from ligament.errors import InvalidError, UnsupportedError
from ligament.tensors.allocate import groups
from ligament.tensors.dtypes import BYTES

from .evostore import BACKEND, number
from .failures import operation
from .plugins import dummy, refuse_unknown

_GROUP_BYTES = 32 << 20  # memory that waits to be taken over


def save_weights(model: Any, *args: Any, **kwargs: Any) -> None:
    """`save_weights(model, backend, config="", include_optimizer=True)` as TMCI;
    `save_weights(model, layers, backend, model_ids, lids, config="", include_optimizer=True)` as
    the fork: the tensors of a model that `store_meta` publishes."""
    if not _is_fork(args, kwargs):
        operation(_save_weights)(model, *args, **kwargs)
        return
    save_layers(model, **_arguments(("prefix", "backend", "model_ids", "lids"), args, kwargs))


def load_weights(model: Any, *args: Any, **kwargs: Any) -> None:
    """`load_weights(model, backend, config="", include_optimizer=True)` as TMCI;
    `load_weights(model, layers, backend, lowners, model_ids, lids, config="",
    include_optimizer=True)` as the fork: each tensor from the model that owns it."""
    if not _is_fork(args, kwargs):
        operation(_load_weights)(model, *args, **kwargs)
        return
    names = ("prefix", "backend", "lowners", "model_ids", "lids")
    load_layers(model, **_arguments(names, args, kwargs))


def _save_weights(model: Any, backend: str, *args: Any, **kwargs: Any) -> None:
    refuse_unknown(backend)
    checkpoint.save_weights(model, backend, *args, **kwargs)


def _load_weights(model: Any, backend: str, *args: Any, **kwargs: Any) -> None:
    refuse_unknown(backend)
    checkpoint.load_weights(model, backend, *args, **kwargs)


class CheckpointCallback(checkpoint.CheckpointCallback):
    """Ligament's callback, which raises the exceptions of TMCI's operations."""

    @operation
    def on_train_begin(self, logs: Any = None) -> None:
        """Rejects a backend that is not loaded, before anything is created."""
        refuse_unknown(self.backend)
        super().on_train_begin(logs)

    on_epoch_end = operation(checkpoint.CheckpointCallback.on_epoch_end)
    on_train_batch_end = operation(checkpoint.CheckpointCallback.on_train_batch_end)


def _is_fork(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """In TMCI the second argument is the backend's name, in the fork a list of layers."""
    if args:
        layers = isinstance(args[0], Iterable) and not isinstance(args[0], (str, bytes))
        return layers or args[0] is None
    return not kwargs.keys().isdisjoint(("prefix", "layers", "model_ids", "lids"))


def _arguments(
    names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    known = (*names, "config", "include_optimizer")
    given = dict(zip(known, args, strict=False)) | kwargs
    if "layers" in given:
        given["prefix"] = given.pop("layers")
    missing = [name for name in names if name not in given]
    unknown = [name for name in given if name not in known]
    if missing or unknown or len(args) > len(known):
        wrong = f"lacks {', '.join(missing)}" if missing else f"got {', '.join(unknown) or args}"
        raise TypeError(f"a call with a list of layers {wrong}: expected {', '.join(known)}")
    backend = given.pop("backend")
    if not isinstance(backend, str) or not isinstance(given.pop("config", ""), str):
        raise TypeError("backend and config should be strings")
    if backend not in ("dummy", BACKEND):
        raise UnsupportedError(f"backend {backend!r}: layers are saved by number through 'dummy'")
    given.pop("include_optimizer", None)  # the fork always omits it
    return given


def weights_of(model: Any, layers: Iterable[Any] | None) -> list[Any]:
    """The weights of the named layers, in the model's order; of all layers if none is named."""
    wanted = {getattr(layer, "name", layer) for layer in layers or ()}
    return [
        weight
        for layer in model.layers
        if not wanted or layer.name in wanted
        for weight in layer.weights
    ]


def _paired(values: list[Any], ids: Sequence[Any], what: str) -> list[int]:
    if len(ids) != len(values):
        raise InvalidError(f"{len(ids)} {what} for {len(values)} weights of the layers named")
    return [number(one) for one in ids]


def save_layers(model: Any, prefix: Iterable[Any] | None, model_ids: Any, lids: Any) -> None:
    """Writes the layers' weights as tensors `lids` of model `model_ids`."""
    values = weights_of(model, prefix)
    names = [str(lid) for lid in _paired(values, lids, "lids")]
    if values:
        dummy()
        batch = _core.Batch(names, values)
        plugins.instance(BACKEND, "").save(str(number(model_ids)), batch)


def load_layers(
    model: Any, prefix: Iterable[Any] | None, lowners: Any, model_ids: Any, lids: Any
) -> None:
    """Fills the layers' weights. Those that were never saved are unchanged."""
    values = weights_of(model, prefix)
    ids, owners = _paired(values, lids, "lids"), _paired(values, lowners, "lowners")
    stored = dummy().stored(model_ids, ids, owners)
    places = [i for i, there in enumerate(stored) if there]
    names = [f"{lid}@{owner}" for lid, owner in zip(ids, owners, strict=True)]
    takers = tensors.takers(names, values, places)
    for group in _groups(places, takers):
        _load(names, values, group, str(number(model_ids)))


def _groups(places: list[int], takers: dict[int, Any]) -> Iterator[list[int]]:
    """Groups of limited size, so that little memory waits to be taken over."""

    def size_of(place: int) -> int:
        taker = takers.get(place)
        return 0 if taker is None else math.prod(taker.shape) * BYTES[taker.code]

    return groups(places, size_of, _GROUP_BYTES)


def _load(names: list[str], values: list[Any], group: list[int], model: str) -> None:
    """Large variables of TensorFlow are filled in place, others take over memory."""
    target = tensors.Collected([names[i] for i in group], [values[i] for i in group])
    takers = fill(BACKEND, "", model, target, part=False)
    tensors.filled([one.value for i, one in enumerate(target.values) if i not in takers])


__all__ = ["CheckpointCallback", "load_weights", "save_weights"]
