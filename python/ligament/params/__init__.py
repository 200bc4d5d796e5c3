"""The parameter manager: rows of numbers by integer key, spread over processes. Workers pull and
push them; rows that a worker says it will use (intent) move, or are copied, to where it is.

    params.setup(num_keys=1000, num_threads=1)
    server = params.Server(64)
    kv = params.Worker(0, server)
    kv.push(keys, values)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .node import Server, Setup, scheduler, setup
from .rows import Request, Worker

if TYPE_CHECKING:
    from . import torch as torch

__all__ = ["Request", "Server", "Setup", "Worker", "scheduler", "setup", "torch"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name == "torch":
        import importlib

        return importlib.import_module("ligament.params.torch")
    raise AttributeError(f"module 'ligament.params' has no attribute {name!r}")
