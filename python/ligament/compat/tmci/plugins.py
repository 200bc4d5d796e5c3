"""tmci.plugins."""

from __future__ import annotations

import ctypes
import importlib
import os
import re
from functools import cache
from pathlib import Path

from ligament import plugins
from ligament.errors import Error, InvalidError, NotFoundError

from . import evostore

_EVOSTORE = "libdummy.so"  # what EvoStore calls its library


def load(filename: str | os.PathLike[str]) -> ctypes.CDLL:
    """Loads a plugin and returns the library. If there is no file `libdummy.so`, that bare name
    refers to EvoStore's client library over a Ligament store; a path, which scripts of TMCI use,
    refers to a plugin that was not built."""
    name = os.fspath(filename)
    found = _find(name)
    is_ours = found is None and name == _EVOSTORE
    libraries[name] = dummy() if is_ours else _library(found or name)
    return libraries[name]


libraries: dict[str, ctypes.CDLL] = {}
load.libraries = libraries  # type: ignore[attr-defined]


def _find(name: str) -> str | None:
    """The file itself, or the file of that name in the folders that the loader searches."""
    if os.path.exists(name):
        return os.path.abspath(name)
    if os.sep in name:
        return None
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    paths = (os.path.join(folder, name) for folder in folders if folder)
    return next((path for path in paths if os.path.exists(path)), None)


@cache
def _library(path: str) -> ctypes.CDLL:
    library = _opened(path)
    if hasattr(library, "lig_plugin_entry") or hasattr(library, "lig_plugin_at"):
        plugins.load(path)
    return library


def _opened(path: str) -> ctypes.CDLL:
    """A plugin that was compiled with TensorFlow's headers may not depend on TensorFlow's libraries
    explicitly, because TMCI's own library loaded them. This loads them."""
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        if not any(word in str(error) for word in ("tensorflow", "absl", "tsl")):
            raise
        failure = error
    for library in _tensorflow():
        ctypes.CDLL(os.fspath(library), ctypes.RTLD_GLOBAL)
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            failure = error
    raise failure


def _tensorflow() -> list[Path]:
    """TensorFlow's libraries, the small one first; they are loaded by its own import."""
    try:
        folder = Path(importlib.import_module("tensorflow").__file__ or "").parent
    except ImportError:
        return []
    found = folder.glob("libtensorflow_*.so.*")
    return sorted(found, key=lambda path: (path.stat().st_size, path))


@cache
def dummy() -> evostore.Library:
    """EvoStore's library; until `set_servers` is called its store is LIGAMENT_STORE."""
    if not Path(evostore.PATH).exists():
        raise Error(f"{evostore.PATH} is missing: build or install Ligament again")
    library = evostore.Library()
    if place := os.environ.get("LIGAMENT_STORE"):
        library.open([place])
    return library


def refuse_unknown(backend: object) -> None:
    """TMCI's backends are plugins: a string that is not the name of one is an error; in Ligament's
    own calls it would be a folder."""
    known = plugins.names()
    if isinstance(backend, str) and backend not in known and not re.search("[:/.]", backend):
        raise NotFoundError(
            f"no backend '{backend}' (known: {', '.join(known)}; load its plugin with "
            f"tmci.plugins.load, or write a folder as a path, './{backend}')"
        )


def place_of(hosts: object) -> list[str]:
    """The stores that `hosts` names: paths or URIs; LIGAMENT_STORE for None."""
    given = [hosts] if isinstance(hosts, (str, os.PathLike)) else list(hosts or ())  # type: ignore[call-overload]
    places = [os.fspath(one) for one in given] or [os.environ.get("LIGAMENT_STORE", "")]
    if not all(places):
        raise InvalidError(
            "no store given: pass hosts=['PATH'] or set the environment variable LIGAMENT_STORE"
        )
    return places


__all__ = ["load"]
