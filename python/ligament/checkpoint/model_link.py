"""A small text file that stands where another library looks for a checkpoint, and names the model
that is one."""

from __future__ import annotations

import os
import tempfile

from ..store import Store

_LIMIT = 65536
_TAG = "path"


def name_for(store: Store, path: str | os.PathLike[str], run: str | None = None) -> str:
    """What the model at a path is called: the path from the current folder, or the whole path where
    it lies elsewhere, or where a job in another folder has a model of that name. Models of a run
    have its name in front."""
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
    """What tells the model at a path from that of another job that is called the same."""
    text = os.fspath(path)
    return {} if "://" in text else {_TAG: os.path.abspath(text)}


def _model(path: str, run: str | None) -> str:
    name = path if "://" in path else path.strip(os.sep).replace(os.sep, "/")
    return name if run is None else f"{run}/{name}"


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


def target(path: str | os.PathLike[str]) -> tuple[str, str] | None:
    """The store and the name of the model that a file names; None: it is no such file."""
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
    """The name of the model that a file names, or that a checkpoint at this path would have."""
    try:
        with open(path, "rb") as file:
            line = file.read(_LIMIT).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return name_for(store, path, run)
    _, found, name = line.partition("#")
    return name.rstrip("\n") if found else name_for(store, path, run)


def remove(path: str | os.PathLike[str]) -> None:
    """Removes the file, if there is one."""
    if os.path.isfile(path):
        os.unlink(path)
