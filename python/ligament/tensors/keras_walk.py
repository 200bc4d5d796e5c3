"""The tree of a Keras model's parts, under structural names: those of Keras 3's own
`.weights.h5`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidError

Entry = tuple[str, Any, dict[str, Any]]  # path, part, what it saves itself


@dataclass(frozen=True)
class Parts:
    """Accessors to the parts of a model in one version of Keras."""

    is_part: Callable[[Any], bool]
    is_skipped: Callable[[Any], bool]  # optimizers, metrics, losses
    own: Callable[[Any], dict[str, Any]]
    children: Callable[[Any], Iterable[tuple[str, Any]]]
    snake_case: Callable[[str], str]


def entries(model: Any, parts: Parts) -> Iterator[Entry]:
    """In the order of Keras's own files, without optimizer and metrics."""
    # Kept alive: a list made for the walk must not lend its id to another.
    seen: dict[int, Any] = {}

    def visit(item: Any, path: str) -> Iterator[Entry]:
        if parts.is_part(item):
            yield from part(item, path)
        elif isinstance(item, (list, dict, tuple)) and id(item) not in seen:
            seen[id(item)] = item
            yield from container(
                list(item.values()) if isinstance(item, dict) else list(item), path
            )

    def part(item: Any, path: str) -> Iterator[Entry]:
        if id(item) in seen or parts.is_skipped(item):
            return
        seen[id(item)] = item
        yield path, item, parts.own(item)
        for name, child in parts.children(item):
            yield from visit(child, f"{path}/{name}" if path else name)

    def container(items: list[Any], path: str) -> Iterator[Entry]:
        used: dict[str, int] = {}
        for item in items:
            is_part = parts.is_part(item)
            if not is_part and not isinstance(item, (list, dict, tuple)):
                continue
            name = parts.snake_case(item.__class__.__name__) if is_part else "container"
            number = used.get(name, 0)
            used[name] = number + 1
            yield from visit(item, f"{path}/{name}_{number}" if number else f"{path}/{name}")

    yield from part(model, "")


def named(model: Any, found: Iterable[Entry]) -> dict[str, tuple[Any, Any, str]]:
    """name -> (value, part, key), the model's weights in its own order first."""
    if not model.built:
        raise InvalidError(f"the Keras model '{model.name}' is not built: it has no weights yet")
    values = {
        f"{path}/vars/{key}" if path else f"vars/{key}": (value, item, key)
        for path, item, own in found
        for key, value in own.items()
    }
    order = {id(weight): i for i, weight in enumerate(model.weights)}
    return dict(sorted(values.items(), key=lambda item: order.get(id(item[1][0]), len(order))))


def load_own(found: list[tuple[Any, Any, str]], values: list[Any], which: set[int]) -> None:
    """Passes saved values to the layers that compute what they save."""
    for item in {id(found[i][1]): found[i][1] for i in which}.values():
        item.load_own_variables(
            {key: values[i] for i, (_, other, key) in enumerate(found) if other is item}
        )
