"""transfer_methods: the store's place is the first argument that is one, or LIGAMENT_STORE."""

from __future__ import annotations

import os
from typing import Any

from ligament.errors import InvalidError
from ligament.transfer import LayerStore
from ligament.transfer import TransferMethods as _TransferMethods


def _place(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    given = [*args, *(kwargs.get(key) for key in ("store", "hosts", "config", "bulk_storage_path"))]
    for one in [one for item in given for one in (item if isinstance(item, list) else [item])]:
        if isinstance(one, (str, os.PathLike)) and os.fspath(one):
            return os.fspath(one)
    place = os.environ.get("LIGAMENT_STORE")
    if not place:
        raise InvalidError("say where the store is: TransferMethods('PATH'), or LIGAMENT_STORE")
    return place


class TransferMethods(_TransferMethods):
    """As the original makes it; what a served store needed besides is passed over. `lib` has the
    calls of its C library."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(_place(args, kwargs))
        self.lib = LayerStore(self.models)
        for name in ("get_prefix", "read_layers", "store_layers", "store_meta"):
            setattr(self, name, getattr(self.lib, name))

    retire_model = _TransferMethods.retire

    def shutdown(self) -> None:
        """Closes the store."""
        self.close()

    teardown_server = shutdown


__all__ = ["LayerStore", "TransferMethods"]
