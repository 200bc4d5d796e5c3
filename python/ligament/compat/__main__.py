"""python -m ligament.compat script.py args...: runs a script (or -m a module) with our modules
under the originals' names."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pkgutil
import runpy
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType

NAMES = ("tmci", "transfer_methods", "autopipe", "fserver_lib", "adapm")
HERE = os.path.dirname(os.path.abspath(__file__))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Resolves imports of the originals' names to Ligament's modules. Names that these lack are
    searched in a copy of the original on the path, if there is one."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Ligament's module, or None for other names."""
        ours = _ours(name)
        if ours is None:
            return None
        is_package = ours.submodule_search_locations is not None
        found = importlib.machinery.ModuleSpec(
            name, self, origin=ours.origin, is_package=is_package
        )
        found.has_location = True  # `-m` sets __file__
        return found

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Ligament's module, with its own name and location."""
        ours = importlib.import_module(f"ligament.compat.{spec.name}")
        self.kept = (ours.__spec__, ours.__loader__, ours.__package__)
        return ours

    def exec_module(self, module: ModuleType) -> None:
        """The module has already run; restores the attributes that the import overwrote."""
        module.__spec__, module.__loader__, module.__package__ = self.kept
        if hasattr(module, "__path__"):
            name = module.__name__.removeprefix("ligament.compat.")
            module.__path__ = pkgutil.extend_path(module.__path__, name)

    def is_package(self, name: str) -> bool:
        """Whether Ligament's module is a package."""
        ours = _ours(name)
        return ours is not None and ours.submodule_search_locations is not None

    def get_code(self, name: str) -> CodeType | None:
        """The code of Ligament's module, for `-m`."""
        ours = _ours(name)
        loader = ours.loader if ours else None
        assert ours is not None and isinstance(loader, importlib.abc.InspectLoader)
        return loader.get_code(ours.name)

    def get_source(self, name: str) -> str | None:
        """The source of Ligament's module, for tracebacks."""
        ours = _ours(name)
        loader = ours.loader if ours else None
        return (
            loader.get_source(ours.name)
            if isinstance(loader, importlib.abc.InspectLoader) and ours
            else None
        )


def _ours(name: str) -> importlib.machinery.ModuleSpec | None:
    """Ligament's module for an original's name."""
    if name.partition(".")[0] not in NAMES:
        return None
    try:
        found = importlib.util.find_spec(f"ligament.compat.{name}")
    except ModuleNotFoundError:  # below a module that is not a package
        return None
    # A package's path includes the original's: modules found there are not Ligament's.
    return found if found and str(found.origin).startswith(HERE + os.sep) else None


USAGE = f"""usage: python -m ligament.compat script.py [argument...]
       python -m ligament.compat -m module [argument...]

Runs it with Ligament's modules in the place of the originals:
{", ".join(NAMES)}."""


def main() -> None:
    """Runs the script or module as Python would."""
    words = sys.argv[1:]
    if words and words[0] in ("-h", "--help"):
        print(USAGE)
        return
    is_module = bool(words) and words[0] == "-m"
    words = words[1:] if is_module else words
    if not words or words[0].startswith("-"):
        raise SystemExit(_usage_failure(USAGE))
    if not is_module and not os.path.exists(words[0]):
        raise SystemExit(_usage_failure(f"ligament.compat: there is no script {words[0]!r}"))
    sys.argv = words
    sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.abspath(words[0]))
    sys.meta_path.insert(0, _Finder())
    _extend_path()
    if is_module:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(words[0], run_name="__main__")


def _extend_path() -> None:
    """Processes that the script starts have no finder: spawned ones get sys.path, others (`python
    -c "import fserver_lib"`) PYTHONPATH."""
    sys.path.append(HERE)
    inherited = os.environ.get("PYTHONPATH", "")
    if HERE not in inherited.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (inherited, HERE)))


def _usage_failure(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
