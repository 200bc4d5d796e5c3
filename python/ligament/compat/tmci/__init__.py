"""The drop-in replacement for tmci. The modules are imported at first use: `import tmci` alone, as
in the CMake files of plugins, needs no framework."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

_LIBRARY = "libligament.so.0"
_MODULES = ("checkpoint", "ops", "plugins")

__all__ = ["checkpoint", "get_include_dir", "get_library", "get_library_dir", "ops", "plugins"]


def get_library_dir() -> str:
    """The folder of the library that a plugin may link with."""
    return str(Path(__file__).resolve().parents[2] / "lib")


def get_library() -> str:
    """The file name of that library."""
    return _LIBRARY


def get_include_dir() -> str:
    """The include folder with `tmci/backend.hpp`: next to the library, or in a source tree."""
    library = Path(get_library_dir())
    folders = (library.parent / "include", library.parents[2] / "include")
    found = [folder for folder in folders if (folder / "tmci" / "backend.hpp").exists()]
    if not found:
        raise FileNotFoundError(
            f"tmci/backend.hpp is missing next to {library} (reinstall Ligament)"
        )
    return str(found[0])


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'tmci' has no attribute {name!r}")
