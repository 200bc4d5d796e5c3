"""Ligament: stores, checkpoints, meshes, parameter servers and pipelines for tensors."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from . import _core, plugins
from .errors import (
    BusyError,
    ClosedError,
    CorruptError,
    DeniedError,
    Error,
    ExistsError,
    InvalidError,
    LimitError,
    MismatchError,
    NoMemoryError,
    NotFoundError,
    PeerError,
    StorageError,
    TimeoutError,
    UnsupportedError,
)
from .graph import Graph
from .history import Diff, Lineage
from .load import Result
from .match import Match
from .store import Model, Report, Store, TensorInfo, copy
from .ticket import Ticket
from .watch import Event, Watch

if TYPE_CHECKING:  # imported at first use: they are large, or need a framework
    from . import checkpoint, convert, mesh, params, pipe, transfer
    from .mesh import Mesh

__version__ = _core.version()

__all__ = [
    "BusyError",
    "ClosedError",
    "CorruptError",
    "DeniedError",
    "Diff",
    "Error",
    "Event",
    "ExistsError",
    "Graph",
    "InvalidError",
    "LimitError",
    "Lineage",
    "Match",
    "Mesh",
    "MismatchError",
    "Model",
    "NoMemoryError",
    "NotFoundError",
    "PeerError",
    "Report",
    "Result",
    "StorageError",
    "Store",
    "TensorInfo",
    "Ticket",
    "TimeoutError",
    "UnsupportedError",
    "Watch",
    "__version__",
    "checkpoint",
    "convert",
    "copy",
    "mesh",
    "params",
    "pipe",
    "plugins",
    "transfer",
]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name == "Mesh":
            from .mesh import Mesh

            return Mesh
        if name in ("checkpoint", "convert", "mesh", "params", "pipe", "transfer"):
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
