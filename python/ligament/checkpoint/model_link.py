"""A small text file in place of another library's checkpoint file, which names the model in the
store."""

from __future__ import annotations

import os
import tempfile

from ..store import Store

_LIMIT = 65536
_TAG = "path"


def name_for(store: Store, path: str | os.PathLike[str], run: str | None = None) -> str:
    """The name of the model for a path: the path relative to the current folder, or the absolute
    path if it is elsewhere or if a job in another folder has a model of that name. Models of a run
    are prefixed with its name."""
    text = os.fspath(path)
    if "://" in text:
        return _model(text, run)
    whole = os.path.abspath(text)
    near = os.path.relpath(whole)
    if near.startswith(os.pardir):
        return _model(whole, run)
    name = _model(near, run)
    theirs = store[name].tags.get(_TAG, whole) if name in store else whole
    return name if theirs == whole else _model(whole, run)


def tags_for(path: str | os.PathLike[str]) -> dict[str, str]:
    """Tags that distinguish the model of a path from a model of the same name of another job."""
    text = os.fspath(path)
    return {} if "://" in text else {_TAG: os.path.abspath(text)}


def _model(path: str, run: str | None) -> str:
    name = path if "://" in path else path.strip(os.sep).replace(os.sep, "/")
    return name if run is None else f"{run}/{name}"


def write(path: str | os.PathLike[str], uri: str, name: str) -> None:
    """Writes the file atomically. Does nothing for places that are not paths."""
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


def target(path: str | os.PathLike[str]) -> tuple[str, str] | None:
    """The store and the name of the model that a file refers to; None if it is not such a file."""
    try:
        with open(path, "rb") as file:
            text = file.read(_LIMIT).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    uri, found, name = text.removesuffix("\n").partition("#")
    single = text.endswith("\n") and text.count("\n") == 1
    place = os.path.isabs(uri) or ":" in uri
    return (uri, name) if found and single and place else None


def read(store: Store, path: str | os.PathLike[str], run: str | None = None) -> str:
    """The name of the model that a file refers to, or that a checkpoint at this path would have."""
    try:
        with open(path, "rb") as file:
            line = file.read(_LIMIT).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return name_for(store, path, run)
    _, found, name = line.partition("#")
    return name.rstrip("\n") if found else name_for(store, path, run)


def remove(path: str | os.PathLike[str]) -> None:
    """Removes the file, if it exists."""
    if os.path.isfile(path):
        os.unlink(path)
