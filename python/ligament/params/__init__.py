"""The parameter manager: rows of numbers by integer key, distributed over processes. Workers pull
and push them; rows that a worker announces (intent) are relocated or replicated to its node.

    params.setup(num_keys=1000, num_threads=1)
    server = params.Server(64)
    kv = params.Worker(0, server)
    kv.push(keys, values)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from .node import Server, Setup, scheduler, setup
from .rows import Request, Worker

if TYPE_CHECKING:
    from . import torch as torch

__all__ = ["Request", "Server", "Setup", "Worker", "scheduler", "setup", "torch"]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name == "torch":  # imports it
            return importlib.import_module(f"{__name__}.torch")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
