"""The repository over EvoStore's C functions: models, layers and tensors are numbers."""

from __future__ import annotations

import ctypes
import hashlib
import math
import time
import warnings
from collections.abc import Iterable
from typing import Any

from ligament import tensors
from ligament.errors import DeniedError, InvalidError, NotFoundError
from ligament.tensors.dtypes import BYTES

from ..tmci import checkpoint
from ..tmci.evostore import number, numbers
from ..tmci.plugins import dummy, place_of
from ._base import TransferMethod
from ._config import inputs_of

_MASK = (1 << 64) - 1
_FUNCTIONS = (
    "get_composition",
    "get_prefix",
    "read_layers",
    "store_layers",
    "store_meta",
    "update_ref_counter",
)


class DataStatesModelRepo(TransferMethod):
    """Layers are equal when their names and those of all layers before them are: see
    `standardize_names`. Takes models of Keras 2 and 3."""

    def __init__(
        self,
        hosts: Any = None,
        store_weights: bool = False,
        allow_partial_stores: bool = False,
        **_: Any,
    ) -> None:
        self.store_weights = store_weights
        self.allow_partial_stores = allow_partial_stores
        self.lib = dummy()
        self.lib.open(place_of(hosts))
        self.ancestors: dict[int, dict[int, tuple[int, int]]] = {}
        self.to_hash: dict[str, int] = {}
        self.to_name: dict[int, str] = {}
        self._reads: dict[tuple[int, int], list[float]] = {}

    @staticmethod
    def hash(s: str) -> int:
        """The number of a model that is named by a string."""
        return int.from_bytes(hashlib.md5(s.encode()).digest()[:8], "big")

    # --- numbers --------------------------------------------------------------------------------

    def _id(self, id: Any) -> int:
        return self.hash(id) if isinstance(id, str) else number(id)

    def _layer(self, name: str) -> int:
        if name not in self.to_hash:
            made = int.from_bytes(hashlib.md5(name.encode()).digest()[8:], "big")
            self.to_hash[name], self.to_name[made] = made, name
        return self.to_hash[name]

    def _edges(self, model_cfg: dict[str, Any]) -> list[int]:
        """Pairs of layers. A model of a single layer gets an additional root before it."""
        inputs = inputs_of(model_cfg)
        edges: list[int] = []
        for name, sources in inputs.items():
            layer = self._layer(name)
            for source in sources:
                edges += (self._layer(source), layer)
        return edges or [word for name in inputs for word in (0, self._layer(name))]

    def _tensors(self, model: Any, names: Iterable[str]) -> tuple[list[int], list[int]]:
        """Numbers and sizes of the weights of these layers, in the model's order."""
        wanted = set(names)
        lids: list[int] = []
        sizes: list[int] = []
        for layer in model.layers:
            if layer.name in wanted:
                first = self._layer(layer.name)
                lids += ((first + i) & _MASK for i in range(len(layer.weights)))
                sizes += map(_bytes, layer.weights)
        return lids, sizes

    # --- search and transfer --------------------------------------------------------------------

    def get_prefix(self, model_cfg: dict[str, Any]) -> tuple[ctypes.c_uint64, list[str]]:
        """The stored model that shares the most layers with a configuration, and those layers."""
        edges = numbers(self._edges(model_cfg))
        cid, result = ctypes.c_uint64(), (ctypes.c_uint64 * len(edges))()
        count = self.lib.get_prefix(edges, len(edges), ctypes.byref(cid), result)
        names = [self.to_name[layer] for layer in result[:count] if layer in self.to_name]
        return cid, names

    def _best_match(self, model: Any) -> tuple[ctypes.c_uint64, list[str]]:
        return self.get_prefix(model.get_config())

    def get_composition(self, id: Any, lids: Iterable[Any]) -> list[int]:
        """The ids of the models that wrote these tensors; 0 for one that the model lacks."""
        asked = numbers(list(lids))
        owners = (ctypes.c_uint64 * len(asked))()
        self.lib.get_composition(self._id(id), asked, owners, len(asked))
        return list(owners)

    def transfer(self, *args: Any, **kwargs: Any) -> tuple[list[str], ctypes.c_uint64 | None]:
        """`transfer(model, id, hint=None)` or `transfer(id, model, hint=None)`: fills the layers
        shared with the best stored model; returns their names and its id, or ([], None)."""
        model, id = _model_and_id(args, kwargs)
        cid, prefix = self._best_match(model)
        if not prefix:
            lids, _ = self._tensors(model, (layer.name for layer in model.layers))
            self.ancestors[id] = dict.fromkeys(lids, (id, 0))
            return [], None
        lids, sizes = self._tensors(model, prefix)
        owners = self.get_composition(cid, lids)
        begin = time.perf_counter()
        checkpoint.load_layers(model, prefix, owners, cid, lids)
        took = time.perf_counter() - begin
        for lid, owner in zip(lids, owners, strict=True):
            self._reads.setdefault((owner, lid), []).append(took)
        self.ancestors[id] = dict(zip(lids, zip(owners, sizes, strict=True), strict=True))
        return prefix, cid

    # --- store ----------------------------------------------------------------------------------

    def store(
        self, id: Any, model: Any, prefix: Iterable[Any] | None = None, val_acc: Any = None
    ) -> bool:
        """With `val_acc`, `prefix` contains the layers that `transfer` returned, which are not
        written; without `val_acc`, as in older scripts, it contains the layers to write (none:
        all), always with weights. Returns False if there is nothing to write."""
        if tensors.is_model(id):
            id, model = model, id
        _check_model(model, id)
        names = [layer.name for layer in model.layers]
        given = {getattr(layer, "name", layer) for layer in prefix or ()}
        if val_acc is None:
            written = [name for name in names if name in given] if given else names
        else:
            written = [name for name in names if name not in given]
        if not written:
            return False
        own = self._id(id)
        lids, sizes = self._tensors(model, written)
        composition = self._inherited(own, len(written) < len(names))
        if self.store_weights or val_acc is None:
            checkpoint.save_layers(model, written, own, lids)
        composition.update(zip(lids, ((own, size) for size in sizes), strict=True))
        if not composition:
            raise InvalidError(
                f"model {own}: '{model.name}' has no weights to store (build it first)"
            )
        self._publish(own, model.get_config(), composition, val_acc)
        return True

    def _inherited(self, id: int, partial: bool) -> dict[int, tuple[int, int]]:
        if not partial or self.allow_partial_stores:
            return {}
        if id not in self.ancestors:
            raise InvalidError(f"model {id}: cannot store partial model without ancestor")
        return dict(self.ancestors[id])

    def _publish(
        self,
        id: int,
        model_cfg: dict[str, Any],
        composition: dict[int, tuple[int, int]],
        val_acc: Any = None,
    ) -> bool:
        edges = numbers(self._edges(model_cfg))
        owners = numbers([owner for owner, _ in composition.values()])
        sizes = numbers([size for _, size in composition.values()])
        lids = numbers(list(composition))
        quality = () if val_acc is None else (float(val_acc),)
        return self.lib.store_meta(id, edges, len(edges), lids, owners, sizes, len(lids), *quality)

    def store_meta(self, id: Any, model_cfg: dict[str, Any]) -> bool:
        """Announces a model by its configuration, without weights."""
        own = self._id(id)
        return self._publish(
            own, model_cfg, {self._layer(name): (own, 0) for name in inputs_of(model_cfg)}
        )

    # --- the rest -------------------------------------------------------------------------------

    def retire_model(self, id: Any) -> bool:
        """Removes a model; weights used by others are kept. Returns False if there is no such
        model."""
        own = self._id(id)
        self.ancestors.pop(own, None)
        return bool(self.lib.update_ref_counter(own, -1))

    retire = retire_model

    def retain(self, parent: Any, child: Any) -> None:
        """Nothing to do: a child's weights live as long as the child."""

    def get_time_stamps(self, key: str | None = None) -> list[int]:
        """[begin, end, ...] in microseconds for a function, or for all in the order of their names;
        for served stores, as measured by the servers."""
        if key is not None and key not in _FUNCTIONS:
            raise NotFoundError(f"no timestamps of {key!r}; known are {', '.join(_FUNCTIONS)}")
        if key is None:
            out = (ctypes.c_uint64 * self.lib.get_num_time_stamps())()
            self.lib.get_time_stamps(out)
            return list(out)
        out = (ctypes.c_uint64 * max(self.lib.get_num_time_stamps_by_key(key), 0))()
        self.lib.get_time_stamps_by_key(out, key)
        return list(out)

    def clear_time_stamps(self, key: str | None = None) -> None:
        """Clears the timestamps of a function, or all of them."""
        if key is None:
            self.lib.clear_time_stamps()
        else:
            self.lib.clear_time_stamps_by_key(key)

    def get_tensor_access_statistics(
        self,
    ) -> tuple[list[int], list[int], list[int], list[list[float]]]:
        """For the tensors that this object read: owners, numbers, counts, and the seconds that each
        transfer took."""
        models, lids = [owner for owner, _ in self._reads], [lid for _, lid in self._reads]
        times = list(self._reads.values())
        return models, lids, [len(one) for one in times], times

    def teardown_server(self, workcomm: Any = None) -> None:
        """Waits for the other workers, ends the server of a served store and closes the store.
        A server that does not allow this keeps running; a warning is logged."""
        super().teardown_server(workcomm)
        try:
            self.lib.shutdown()
        except DeniedError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)


def _bytes(weight: Any) -> int:
    code = tensors.code_of(getattr(weight.dtype, "name", weight.dtype))
    return int(math.prod(weight.shape)) * BYTES[code]


def _check_model(model: Any, id: Any) -> None:
    if not tensors.is_model(model):
        raise TypeError(f"neither {model!r} nor {id!r} is a Keras model")


def _model_and_id(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, int]:
    given = dict(kwargs)
    given.pop("hint", None)
    values = [*args[:2], *(given.pop(key) for key in ("model", "id") if key in given)]
    if len(args) > 3 or given or len(values) != 2:
        raise TypeError("transfer takes a model, an id and hint=None")
    model, id = values if tensors.is_model(values[0]) else reversed(values)
    _check_model(model, id)
    return model, DataStatesModelRepo.hash(id) if isinstance(id, str) else number(id)
