"""Snapshots of torch tensors without a copy: copy-on-write clones.

torch copies before it writes to a shared tensor. NumPy and DLPack bypass this through views that
were taken before; the reference counts of the tensor and its storage show whether there may be such
views.
"""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from .. import _core

_SEARCH_BYTES = 64 << 20  # below this a copy costs less than a look at every object


class _Storage:
    """A storage and the tensors that are known to hold it."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self._tensors: dict[int, Any] = {}
        self._views: dict[int, int] = {}  # how many known ones hold this base

    def add(self, tensor: Any) -> bool:
        """Returns False if it was already known."""
        if id(tensor) in self._tensors:
            return False
        self._tensors[id(tensor)] = tensor
        base = tensor._base if tensor._is_view() else None
        if base is not None:
            self._views[id(base)] = self._views.get(id(base), 0) + 1
            self.add(base)
        return True

    def all_known(self) -> bool:
        """Whether only known tensors hold it; Python's storage object is one more."""
        holders: int = sys.modules["torch"]._C._storage_Use_Count(self._storage._cdata)
        return holders == len(self._tensors) + 1

    def exported(self) -> bool:
        """Whether a DLPack capsule may hold one of the tensors. One that requires a gradient is
        also held by autograd, and can only be exported as another tensor, by detach()."""
        return any(
            not tensor.requires_grad and tensor._use_count() > 1 + self._views.get(id(tensor), 0)
            for tensor in self._tensors.values()
        )

    def seen_by_numpy(self) -> bool:
        """Whether a NumPy array has ever viewed it; the array holds a separate tensor."""
        return not self._storage.resizable()

    def bytes(self) -> int:
        return int(self._storage.nbytes())


@functools.cache
def counts_are_known() -> bool:
    """Whether this torch counts references as expected; tested, because the names are private."""
    torch = sys.modules["torch"]
    try:
        with torch.inference_mode(False):
            first, second = torch.zeros(1), torch.zeros(1)
        count = torch._C._storage_Use_Count
        alone = count(first.untyped_storage()._cdata) == 2 and first.untyped_storage().resizable()
        view, capsule = first.numpy(), second.__dlpack__()
        storage = first.untyped_storage()
        seen = count(storage._cdata) == 3 and not storage.resizable()
        held = (first._use_count(), second._use_count()) == (1, 2)
        del view, capsule
        return alone and seen and held and count(storage._cdata) == 2
    except (AttributeError, TypeError, RuntimeError):
        return False


def _live_tensors() -> Iterator[Any]:
    torch = sys.modules["torch"]
    kinds = {id(torch.Tensor), id(torch.nn.Parameter)}
    objects = gc.get_objects()
    return itertools.compress(objects, map(kinds.__contains__, map(id, map(type, objects))))


# What a search has found, so that the next save of the same state_dict needs none; and the sources
# of clones.
_aliases: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def _add(tensors: Iterable[Any], unknown: dict[int, _Storage]) -> list[Any]:
    """Adds those of the tensors that hold one of the storages, and returns them."""
    added = []
    for tensor in tensors:
        try:
            key = tensor.untyped_storage()._cdata
        except (RuntimeError, NotImplementedError):  # sparse, and others without one
            continue
        if key in unknown and unknown[key].add(tensor):
            added.append(tensor)
    return added


def _search(unknown: dict[int, _Storage]) -> None:
    """Finds the Python tensors that hold these storages: the parameters behind a state_dict."""
    known = (ref() for ref in _aliases.valuerefs())
    _add([tensor for tensor in known if tensor is not None], unknown)
    left = {key: one for key, one in unknown.items() if not one.all_known()}
    if sum(one.bytes() for one in left.values()) >= _SEARCH_BYTES:
        _aliases.update((id(tensor), tensor) for tensor in _add(_live_tensors(), left))


def _written_by_torch_alone(values: list[Any]) -> list[bool]:
    """For each tensor, whether only torch can write to its memory."""
    count = sys.modules["torch"]._C._storage_Use_Count
    alone = [False] * len(values)
    keys: dict[int, int] = {}
    storages: dict[int, _Storage] = {}
    for i, value in enumerate(values):
        storage = value.untyped_storage()
        key = storage._cdata
        if count(key) == 2 and (value.requires_grad or value._use_count() == 1):
            alone[i] = True  # the tensor and `storage`: so it is with most, and quick
            continue
        keys[i] = key
        storages.setdefault(key, _Storage(storage)).add(value)
    safe = _safe(storages) if storages else set()
    for i, key in keys.items():
        alone[i] = key in safe
    return alone


def _safe(storages: dict[int, _Storage]) -> set[int]:
    unknown = {
        key: one
        for key, one in storages.items()
        if not (one.all_known() or one.exported() or one.seen_by_numpy())
    }
    if unknown:
        _search(unknown)
    return {key for key, one in storages.items() if one.all_known() and not one.exported()}


# --- clones -------------------------------------------------------------------------------------

# torch counts the storages that share memory. When two leave at the same time, the last one frees
# the counter while the other still uses it, which corrupts memory: a thread must not drop a clone
# while the main thread writes to the tensor. So the main thread releases the memory, whatever
# thread drops the clone.
_dropped: collections.deque[tuple[Any, Any]] = collections.deque()  # (source, storage of the clone)
_release_is_due = False


def release_soon() -> None:
    """Lets the main thread release the memory of dropped clones when it next runs Python code."""
    global _release_is_due
    if _dropped and not _release_is_due:
        _release_is_due = True  # first: the call may end before this one returns
        if not _core.call_on_main_thread(_release):
            _release_is_due = False


def _drop(held: tuple[Any, Any]) -> None:
    _dropped.append(held)
    release_soon()


def _release() -> None:
    """Releases what nothing else holds; a clone that is being dropped still holds its storage.
    Modes of the program, which it interrupts, must not see it: it calls no method of a tensor."""
    global _release_is_due
    _release_is_due = False
    count = sys.modules["torch"]._C._storage_Use_Count
    for _ in range(len(_dropped)):
        try:
            source, storage = _dropped.popleft()
        except IndexError:  # it was interrupted by another call
            return
        if count(storage._cdata) > 1:
            _dropped.append((source, storage))
        del storage  # first: as long as the source is held, no thread that drops the tensor leaves
        del source


def _lazy_clone(value: Any) -> Any:
    source = value.detach()
    clone = sys.modules["torch"]._lazy_clone(source)
    _aliases[id(source)] = source
    weakref.finalize(clone, _drop, (source, clone.untyped_storage())).atexit = False
    return clone


def lazy_clones(values: list[Any]) -> list[Any]:
    """A copy-on-write clone of each tensor in host memory; None for tensors that must be copied:
    those that code other than torch may write to, and memory that torch did not allocate. Outside
    the main thread all must be copied."""
    torch = sys.modules["torch"]
    on_main_thread = threading.get_ident() == threading.main_thread().ident
    if not (on_main_thread and hasattr(torch, "_lazy_clone") and counts_are_known()):
        return [None] * len(values)
    _release()
    clones: list[Any] = []
    with torch.no_grad():
        for value, ours in zip(values, _written_by_torch_alone(values), strict=True):
            try:
                clones.append(_lazy_clone(value) if ours else None)
            except (RuntimeError, NotImplementedError):
                clones.append(None)
    return clones
