"""transfer_methods, as EvoStore's scripts import it."""

from ._base import TransferMethod
from ._datastates import DataStatesModelRepo

_METHODS: dict[str, type[TransferMethod]] = {"datastates": DataStatesModelRepo}


def transfer_methods() -> list[str]:
    """The names that `make_transfer_method` knows."""
    return list(_METHODS)


def make_transfer_method(method: str) -> type[TransferMethod]:
    """The class of that name."""
    return _METHODS[method]


__all__ = ["DataStatesModelRepo", "TransferMethod", "make_transfer_method", "transfer_methods"]
