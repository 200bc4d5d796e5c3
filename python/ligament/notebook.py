"""Small HTML tables for notebooks. Everything that comes from a store is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from .plural import count
from .progress import bytes_text

if TYPE_CHECKING:
    from .description import Model
    from .match import Match
    from .store import Store

_ROWS = 20


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], hidden: int = 0) -> str:
    """Rows under their headings; `hidden` is the number of rows not shown."""
    cells = "".join(f"<th style='text-align:left'>{escape(word)}</th>" for word in head)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{_cell(one)}</td>" for one in row) + "</tr>"
        for row in rows
    )
    more = f"<tr><td colspan={len(head)}>and {hidden} more</td></tr>" if hidden > 0 else ""
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}{more}</tbody></table>"


def store(of: Store) -> str:
    """Its location, its size and its newest models."""
    stats = of.stats()
    models = of.models(order="-created", limit=_ROWS)
    rows = [
        (m.name, m.parent or "", _when(m), bytes_text(m.bytes), m.metrics, m.tags) for m in models
    ]
    head = ("model", "parent", "created", "size", "metrics", "tags")
    sizes = f"{count(stats['models'], 'model')}, {bytes_text(stats['stored_bytes'])} stored"
    hidden = stats["models"] - len(models)
    return f"<b>Store</b> {escape(of.uri)} ({sizes}){table(head, rows, hidden)}"


def model(of: Model) -> str:
    """The output of `ligament show` as a table."""
    about: list[tuple[str, Any]] = [("created", _when(of))]
    about += [("parent", of.parent)] if of.parent else []
    about += [(word, one) for word in ("metrics", "tags", "meta") if (one := getattr(of, word))]
    tensors = list(of.tensors.values())
    rows = [(t.name, t.dtype, list(t.shape), bytes_text(t.bytes)) for t in tensors[:_ROWS]]
    sizes = f"{count(len(tensors), 'tensor')}, {bytes_text(of.bytes)}"
    return (
        f"<b>Model</b> {escape(of.name)} ({sizes}){table(('', ''), about)}"
        f"{table(('tensor', 'dtype', 'shape', 'size'), rows, len(tensors) - len(rows))}"
    )


def match(of: Match, layers: int) -> str:
    """The stored model, and the common layers with the sizes of their tensors."""
    head = f"{of.length} of {count(layers, 'layer')}, {bytes_text(of.bytes)}"
    rows = [(one,) for one in of.layers[:_ROWS]]
    return (
        f"<b>Match</b> with {escape(of.model.name)} ({head})"
        f"{table(('layer',), rows, of.length - len(rows))}"
    )


def _when(of: Model) -> str:
    return of.created.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        return "<br>".join(f"{escape(str(k))} = {escape(_text(v))}" for k, v in value.items())
    return escape(_text(value))


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
