"""tmci.plugins."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

from ligament import plugins
from ligament.errors import Error, InvalidError

from . import evostore

_EVOSTORE = "libdummy.so"  # what EvoStore calls its library


def load(filename: str | os.PathLike[str]) -> ctypes.CDLL:
    """Loads a plugin and returns the library. Where there is no file `libdummy.so`, that name means
    EvoStore's client library over a Ligament store."""
    name = os.fspath(filename)
    found = _find(name)
    if found is None and os.path.basename(name) == _EVOSTORE:
        return dummy()
    return _library(found or name)


def _find(name: str) -> str | None:
    """The file, or the one of that name in the folders that the loader searches."""
    if os.path.exists(name):
        return os.path.abspath(name)
    if os.sep in name:
        return None
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    paths = (os.path.join(folder, name) for folder in folders if folder)
    return next((path for path in paths if os.path.exists(path)), None)


@cache
def _library(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    if hasattr(library, "lig_plugin_entry"):
        plugins.load(path)
    return library


@cache
def dummy() -> evostore.Library:
    """EvoStore's library; until `set_servers` is called its store is LIGAMENT_STORE."""
    if not Path(evostore.PATH).exists():
        raise Error(f"{evostore.PATH} is missing: build or install Ligament again")
    library = evostore.Library()
    if place := os.environ.get("LIGAMENT_STORE"):
        library.open([place])
    return library


def place_of(hosts: object) -> list[str]:
    """The stores that `hosts` names: paths or URIs; LIGAMENT_STORE for None."""
    given = [hosts] if isinstance(hosts, (str, os.PathLike)) else list(hosts or ())  # type: ignore[call-overload]
    places = [os.fspath(one) for one in given] or [os.environ.get("LIGAMENT_STORE", "")]
    if not all(places):
        raise InvalidError(
            "no store is named: pass hosts=['PATH'] or set the environment variable LIGAMENT_STORE"
        )
    return places


__all__ = ["load"]
