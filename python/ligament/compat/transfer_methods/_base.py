"""The base class of transfer methods."""

from __future__ import annotations

import abc
import importlib
from collections.abc import Iterable
from typing import Any

from ..tmci.plugins import place_of


class TransferMethod(abc.ABC):
    """A repository of models that share weights."""

    @staticmethod
    def startup_server(ds_colocated: bool = False, **_: Any) -> tuple[Any, list[str]]:
        """The communicator of the workers and the addresses for `hosts`. A store needs no server:
        all processes are workers, and the address is that of LIGAMENT_STORE."""
        return _communicator(), place_of(None)

    @abc.abstractmethod
    def teardown_server(self, workcomm: Any = None) -> None:
        """Waits for the other workers."""
        (workcomm if workcomm is not None else _communicator()).Barrier()

    @abc.abstractmethod
    def transfer(self, *args: Any, **kwargs: Any) -> tuple[list[str], Any]:
        """Fills the layers that a stored model shares; returns their names and that model's id."""

    @abc.abstractmethod
    def store(self, id: Any, model: Any, prefix: Iterable[Any] | None = None) -> bool:
        """Stores a model."""

    @abc.abstractmethod
    def retire_model(self, id: Any) -> bool:
        """Removes a model; weights used by others are kept."""

    @abc.abstractmethod
    def retain(self, parent: Any, child: Any) -> None:
        """Keeps a model."""

    def _best_match(self, model: Any) -> tuple[Any, list[str]]:
        """The stored model that shares the most layers, and their names."""
        raise NotImplementedError


class _Alone:
    """The communicator of a single process, without MPI."""

    rank, size = 0, 1

    def Get_rank(self) -> int:
        """The number of this process."""
        return 0

    def Get_size(self) -> int:
        """The number of processes."""
        return 1

    def Barrier(self) -> None:
        """Nothing to wait for."""


def _communicator() -> Any:
    try:
        return importlib.import_module("mpi4py.MPI").COMM_WORLD
    except (ImportError, RuntimeError):  # not installed, or without a library of MPI's
        return _Alone()
