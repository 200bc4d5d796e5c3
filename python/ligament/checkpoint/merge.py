"""Merges the structures of a part of which every rank holds a different piece into one tree
(pure)."""

from __future__ import annotations

from functools import reduce
from typing import Any

Node = dict[str, Any]  # as ligament.tree writes it


def merged(pieces: list[Node]) -> Node:
    """Merges the pieces. If several ranks have a value, that of the first is used; the parameter
    groups of optimizers are joined if their hyperparameters are equal."""
    return reduce(_both, pieces)


def _both(one: Node, other: Node) -> Node:
    if _is_optimizer(one) and _is_optimizer(other):
        return {
            "state": {**one["state"], **_new(one["state"], other["state"])},
            "param_groups": _groups(one["param_groups"], other["param_groups"]),
        }
    return {**one, **_new(one, other)}


def _is_optimizer(node: Node) -> bool:
    return set(node) == {"state", "param_groups"} and isinstance(node["param_groups"], list)


def _new(one: Node, other: Node) -> Node:
    return {key: value for key, value in other.items() if key not in one}


def _groups(ours: list[Node], theirs: list[Node]) -> list[Node]:
    found = [dict(group) for group in ours]
    for at, group in enumerate(theirs):
        # The group at the same position first: several may have the same hyperparameters.
        order = sorted(range(len(found)), key=lambda i: i != at)
        same = next((found[i] for i in order if _values(found[i]) == _values(group)), None)
        if same is None:
            found.append(group)
        else:
            known = set(same["params"])
            same["params"] = [*same["params"], *(n for n in group["params"] if n not in known)]
    return found


def _values(group: Node) -> Node:
    return {key: value for key, value in group.items() if key != "params"}
