"""python -m ligament.compat script.py args...: runs a script (or -m a module) with our modules
under the originals' names."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType

_MODULES = {
    "tmci": "ligament.compat.tmci",
    "tmci.plugins": "ligament.compat.tmci.plugins",
    "tmci.checkpoint": "ligament.compat.tmci.checkpoint",
    "transfer_methods": "ligament.compat.transfer_methods",
    "transfer_methods._base": "ligament.compat.transfer_methods._base",
    "transfer_methods._common": "ligament.compat.transfer_methods._common",
    "transfer_methods._datastates": "ligament.compat.transfer_methods._datastates",
    "autopipe": "ligament.compat.autopipe",
    "fserver_lib": "ligament.compat.fserver_lib",
    "adapm": "ligament.compat.adapm",
}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers imports of the originals' names with our modules, when they are asked for."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Ours, or None for what is not."""
        if name not in _MODULES or importlib.util.find_spec(_MODULES[name]) is None:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package="." not in name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """The module of ours: it has its own name and place."""
        ours = importlib.import_module(_MODULES[spec.name])
        self.kept = (ours.__spec__, ours.__loader__, ours.__package__)
        return ours

    def exec_module(self, module: ModuleType) -> None:
        """It has run; what the import has written over is put back."""
        module.__spec__, module.__loader__, module.__package__ = self.kept


USAGE = f"""usage: python -m ligament.compat script.py [argument...]
       python -m ligament.compat -m module [argument...]

Runs it with Ligament's modules in the place of the originals:
{", ".join(name for name in _MODULES if "." not in name)}."""


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
    # Processes that are spawned get the path and no finder.
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    if is_module:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(words[0], run_name="__main__")


def _usage_failure(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
