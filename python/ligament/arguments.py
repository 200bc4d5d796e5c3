"""Early checks for common argument errors, and the keyword arguments of a store's calls for type
checkers."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex, TypedDict

from .errors import InvalidError

if TYPE_CHECKING:
    from .description import Model
    from .graph import Graph
    from .match import Match

_UNITS = {"ms": 10**6, "us": 10**3}
_LONGEST_NS = 2**62

Tag = str | int | float  # a value of a tag, as callers write it


def name(value: Any, what: str = "the name of a model") -> str:
    """Returns the value if it is a string."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {_kind(value)} ({value!r:.80})")
    return value


def metrics(value: Any) -> dict[str, float] | None:
    """Numbers by name; None means none."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError(
            f"metrics must be a dict of numbers, such as {{'val_loss': 0.5}}, not {_kind(value)}"
        )
    return {name(key, "the name of a metric"): _number(key, one) for key, one in value.items()}


def tags(value: Any, removable: bool = False) -> dict[str, Any] | None:
    """Strings by name; None means none. A number is stored as a string: 0.1 as "0.1", True as
    "true". `removable`: a value may be None."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError(
            f"tags must be a dict of strings, such as {{'run': 'a'}}, not {_kind(value)}"
        )
    return {
        name(key, "the name of a tag"): None if removable and one is None else _tag(key, one)
        for key, one in value.items()
    }


def _tag(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return repr(float(value))
    if value is None:
        raise TypeError(
            f"the tag {key!r} must be a str or a number, not None (to remove a tag, use "
            f"update(model, tags={{{key!r}: None}}))"
        )
    if not isinstance(value, str):
        raise TypeError(
            f"the tag {key!r} must be a str or a number, not {_kind(value)} ({value!r:.80})"
        )
    return value


def nanoseconds(value: Any, what: str, least: float = 0, forever: bool = False) -> int:
    """Converts an argument whose name ends in its unit, at least `least`. `forever`: None becomes
    -1, no limit."""
    if forever and value is None:
        return -1
    unit = what.rpartition("_")[2]
    more = ", or None" if forever else ""
    if isinstance(value, bool) or not isinstance(value, (SupportsFloat, SupportsIndex)):
        raise TypeError(f"{what} must be a number{more}, not {_kind(value)} ({value!r:.80})")
    number = float(value)
    if not least <= number <= _LONGEST_NS // _UNITS[unit]:
        raise InvalidError(f"invalid {what}={value!r}: expected at least {least} {unit}{more}")
    return int(number * _UNITS[unit])


def _number(key: str, value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError(f"metric {key!r} must be a number, not {_kind(value)} ({value!r:.80})")
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"metric {key!r} must be a number, not {_kind(value)}: {str(error):.200}"
        ) from None


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__qualname__


# What save, load and find return depends on one argument; the others are the same in each form.


class SaveOptions(TypedDict, total=False):
    """The keyword arguments of `Store.save`, without `wait`."""

    parent: str | Model | None
    match: Match | None
    metrics: Mapping[str, SupportsFloat] | None
    tags: Mapping[str, Tag] | None
    meta: Any
    graph: Graph | Sequence[Graph] | None
    args: tuple[Any, ...] | None
    kwargs: dict[str, Any] | None
    replace: bool
    snapshot: str | None
    snapshot_bytes: int
    gpu_reserve: float
    progress: bool | None


class LoadOptions(TypedDict, total=False):
    """The keyword arguments of `Store.load`, without `into`."""

    like: Any
    tensors: Sequence[str] | Mapping[str, Any] | str | None
    framework: str | None
    map: bool
    missing: str
    extra: str
    cast: bool
    device: Any
    verify: bool
    progress: bool | None


class FindOptions(TypedDict, total=False):
    """The keyword arguments of `Store.find`, without `k`."""

    tags: Mapping[str, Tag] | None
    exclude: Iterable[str | Model]
    prefer: str | None
    lease_s: float
