"""A small text file that stands where another library looks for a checkpoint, and names the model
that is one."""

from __future__ import annotations

import os
import tempfile

_LIMIT = 65536


def name_for(path: str | os.PathLike[str]) -> str:
    """What the model at a path is called: the path from the current folder, or the whole path where
    it lies elsewhere."""
    text = os.fspath(path)
    if "://" in text:
        return text
    whole = os.path.abspath(text)
    near = os.path.relpath(whole)
    return (whole if near.startswith(os.pardir) else near).strip(os.sep).replace(os.sep, "/")


def write(path: str | os.PathLike[str], uri: str, name: str) -> None:
    """The file appears whole or not at all. Places that are no paths have none."""
    text = os.fspath(path)
    if "://" in text:
        return
    folder = os.path.dirname(os.path.abspath(text))
    os.makedirs(folder, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".ligament-", dir=folder, text=True)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(f"{uri}#{name}\n")
        os.replace(temporary, text)
    except BaseException:
        os.unlink(temporary)
        raise


def read(path: str | os.PathLike[str]) -> str:
    """The name of the model that a file names, or that a checkpoint at this path would have."""
    try:
        with open(path, "rb") as file:
            line = file.read(_LIMIT).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return name_for(path)
    _, found, name = line.partition("#")
    return name.rstrip("\n") if found else name_for(path)


def remove(path: str | os.PathLike[str]) -> None:
    """Removes the file, if there is one."""
    if os.path.isfile(path):
        os.unlink(path)
