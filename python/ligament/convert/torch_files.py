"""Reads and writes files of torch.save with the `weights_only` reader: tensors and plain values."""

from __future__ import annotations

import re
from typing import Any

from ..errors import CorruptError, UnsupportedError
from . import Found
from .memory_budget import Budget


def weights_only(source: Any, name: str, mapped: bool = False) -> Any:
    """Loads a file with torch without executing anything in it."""
    import torch

    try:
        return torch.load(source, map_location="cpu", weights_only=True, mmap=mapped or None)
    except Exception as error:  # a hostile file may raise anything
        said = str(error).strip() or repr(error)
        if "weights only" in said.lower() or "weights_only" in said.lower():
            word = re.search(r"GLOBAL ([\w.]+)", said)
            raise UnsupportedError(
                f"'{name}' contains objects other than tensors and plain values"
                + (f" ({word.group(1)})" if word else "")
                + ", which are not unpickled (save the state_dict() instead)"
            ) from None
        first = said.splitlines()[0][:300]
        if isinstance(error, KeyError | IndexError | EOFError):  # of its unpickler
            first = "it is damaged, or is not a file of torch.save"
        raise CorruptError(f"torch cannot read '{name}': {first}") from None


def read_torch(path: str, budget: Budget) -> Found:
    """Reads a file; tensors of the new format are mapped, those of the old format are read."""
    import torch

    budget.check(budget.size, "the file")
    zipped = torch.serialization._is_zipfile
    with open(path, "rb") as file:
        mapped = zipped(file)
    return Found(_plain_dict(weights_only(path, path, mapped)))


def _plain_dict(tree: Any) -> Any:
    return dict(tree) if isinstance(tree, dict) else tree


def write_torch(tree: Any, path: str) -> None:
    """Writes a file for torch.load, also with weights_only."""
    import torch

    torch.save(tree, path)


def write_folder(tree: Any, path: str) -> None:
    """Writes a folder for torch.distributed.checkpoint.load."""
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    if not isinstance(tree, dict):
        raise UnsupportedError("torch.distributed.checkpoint can only save dicts")
    save(tree, storage_writer=FileSystemWriter(path), no_dist=True)
