"""Checkpoints: weights through any backend by name, and whole training runs in a store."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from .checkpointer import Checkpointer, Restored
from .weights import load_weights, save_weights

if TYPE_CHECKING:
    from . import accelerate as accelerate
    from . import dcp as dcp
    from . import lightning as lightning
    from . import transformers as transformers
    from .callback import CheckpointCallback as CheckpointCallback

# Without CheckpointCallback: `from ligament.checkpoint import *` would import Keras.
__all__ = ["Checkpointer", "Restored", "load_weights", "save_weights"]

# Imported only on use: they need their framework.
_INTEGRATIONS = ("accelerate", "dcp", "lightning", "transformers")


def __dir__() -> list[str]:
    return sorted([*__all__, "CheckpointCallback", *_INTEGRATIONS])


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name == "CheckpointCallback":  # derives from Keras's class
            from .callback import CheckpointCallback

            return CheckpointCallback
        if name in _INTEGRATIONS:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
