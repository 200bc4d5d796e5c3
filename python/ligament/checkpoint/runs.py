"""The training runs of a store: the names of their checkpoints, and their locks.

The checkpoints of run "default" are the models `step-000000000010`, those of any other run
`RUN/step-000000000010`.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from .. import _core, arguments
from ..errors import InvalidError, UnsupportedError
from ..store import Model, Store

DEFAULT = "default"
_STEP = "step-"
_LONGEST_BYTES = 1024


def check(run: Any) -> str:
    """Returns the name of a run, or raises an error that says what is wrong with it."""
    arguments.name(run, "the name of a run")
    if not run:
        raise InvalidError("run='': the name of a run must not be empty")
    odd = [char for char in run if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")]
    if odd:
        raise InvalidError(f"run={run!r}: the name of a run must not contain {odd[0]!r}")
    if len(run.encode()) > _LONGEST_BYTES:
        raise InvalidError(f"run={run[:40]!r}...: the name has more than {_LONGEST_BYTES} bytes")
    name: str = run
    return name


def within(run: str, name: str) -> str:
    """The name of a model that belongs to a run."""
    return name if run == DEFAULT else f"{run}/{name}"


def name_of(run: str, step: int) -> str:
    """The name of a checkpoint."""
    return within(run, f"{_STEP}{step:012d}")


def step_of(run: str, name: str) -> int | None:
    """The step of the run's checkpoint with that name; None for any other name."""
    digits = name.rpartition(_STEP)[2]
    there = digits.isdecimal() and digits.isascii() and name == name_of(run, int(digits))
    return int(digits) if there else None


def pattern(run: str) -> str:
    """A pattern that matches all checkpoints of the run, and few other models."""
    return escaped(within(run, _STEP)) + "*"


def escaped(text: str) -> str:
    """A pattern that matches only this text."""
    return re.sub(r"[*?[]", r"[\g<0>]", text)


def names(store: Store) -> list[str]:
    """The runs that have a checkpoint in the store."""
    found = set()
    for model in store.models(f"*{_STEP}*"):
        run = model.name.rpartition(_STEP)[0].removesuffix("/") or DEFAULT
        if step_of(run, model.name) is not None:
            found.add(run)
    return sorted(found)


def saved(store: Store, run: str) -> list[tuple[int, Model]]:
    """The checkpoints of a run. A store may also contain models of others, such as `step-10`."""
    found = store.models(pattern(run))
    return [(step, m) for m in found if (step := step_of(run, m.name)) is not None]


def hold(store: Store, run: str) -> _core.Lock | None:
    """Makes this process the writer of the run until the lock is released; BusyError names the
    current writer. None: the store's backend has no locks."""
    try:
        return _core.Lock(store._core, run)
    except UnsupportedError:
        return None
