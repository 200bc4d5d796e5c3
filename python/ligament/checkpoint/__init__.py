"""Checkpoints: weights through any backend by name, and whole training runs in a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .checkpointer import Checkpointer, Restored
from .weights import load_weights, save_weights

if TYPE_CHECKING:
    from .callback import CheckpointCallback as CheckpointCallback

# Without CheckpointCallback: `from ligament.checkpoint import *` would import Keras.
__all__ = ["Checkpointer", "Restored", "load_weights", "save_weights"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "CheckpointCallback"})


def __getattr__(name: str) -> object:
    if name == "CheckpointCallback":  # derives from Keras's class; Keras is imported only on use
        from .callback import CheckpointCallback

        return CheckpointCallback
    raise AttributeError(f"module 'ligament.checkpoint' has no attribute {name!r}")
