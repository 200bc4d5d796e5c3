"""A backward pass in two halves, for zero-bubble schedules: gradients of a stage's inputs first,
those of its parameters later.

torch's own split loses or doubles gradients of parameters that are not between a stage's inputs
and outputs (an embedding in a middle stage, a bias shared by layers). Here a parameter is
deferred only in the simple case: exactly one chain leads to it, from a node that is executed for
the inputs anyway. All others are finished in the first half.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge


class Waiting(NamedTuple):
    """Parameters whose gradients follow from what arrived at one node."""

    node: Node
    arrived: list[torch.Tensor | None]
    parameters: list[nn.Parameter]


def first_half(
    outputs: Iterable[torch.Tensor],
    grads: Iterable[torch.Tensor | None] | None,
    inputs: list[Any],
    parameters: Iterable[nn.Parameter],
) -> tuple[tuple[torch.Tensor | None, ...], list[Waiting]]:
    """Gradients of `inputs` (None where there is none), and what the second half needs."""
    roots = list(outputs)
    above = [None] * len(roots) if grads is None else list(grads)
    pairs = [
        (o, torch.ones_like(o) if grads is None else g)
        for o, g in zip(roots, above, strict=True)
        if o.requires_grad
    ]
    pairs = [(o, g) for o, g in pairs if g is not None]
    leaves = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    trained = list(dict.fromkeys(p for p in parameters if p.requires_grad))
    if not pairs:
        return tuple(None for _ in inputs), []
    waiting, now = _sort(pairs, leaves, trained)
    handles = [w.node.register_prehook(_keep(w.arrived)) for w in waiting]
    try:
        found = (
            torch.autograd.grad(
                [o for o, _ in pairs],
                [*leaves, *now],
                [g for _, g in pairs],
                retain_graph=bool(waiting),
                allow_unused=True,
            )
            if leaves or now
            else ()
        )
    finally:
        for handle in handles:
            handle.remove()
    for parameter, gradient in zip(now, found[len(leaves) :], strict=True):
        _add(parameter, gradient)
    back = iter(found)
    return tuple(
        next(back) if isinstance(t, torch.Tensor) and t.requires_grad else None for t in inputs
    ), waiting


def second_half(waiting: list[Waiting]) -> None:
    """Adds the gradients of the deferred parameters."""
    for item in waiting:
        edges = [
            (GradientEdge(item.node, i), g) for i, g in enumerate(item.arrived) if g is not None
        ]
        if not edges:
            continue
        found = torch.autograd.grad(
            [e for e, _ in edges],
            item.parameters,
            [g for _, g in edges],
            retain_graph=True,
            allow_unused=True,
        )
        for parameter, gradient in zip(item.parameters, found, strict=True):
            _add(parameter, gradient)


def _add(parameter: nn.Parameter, gradient: torch.Tensor | None) -> None:
    if gradient is None:
        return
    if parameter.grad is None:
        parameter.grad = gradient.detach()
    else:
        parameter.grad = parameter.grad + gradient


def _keep(arrived: list[torch.Tensor | None]) -> Any:
    def hook(grads: tuple[torch.Tensor | None, ...]) -> None:
        arrived[:] = grads

    return hook


def _sort(
    pairs: list[tuple[torch.Tensor, Any]], leaves: list[torch.Tensor], trained: list[nn.Parameter]
) -> tuple[list[Waiting], list[nn.Parameter]]:
    """Which parameters can be deferred, and at which node; and which cannot."""
    parents = _parents([get_gradient_edge(o).node for o, _ in pairs])
    through = _ancestors([get_gradient_edge(t).node for t in leaves], parents)
    at: dict[Node, Waiting] = {}
    now: list[nn.Parameter] = []
    for parameter in trained:
        node = _single_source(get_gradient_edge(parameter).node, parents, through)
        if node is None:
            now.append(parameter)
        else:
            at.setdefault(node, Waiting(node, [], [])).parameters.append(parameter)
    return list(at.values()), now


def _single_source(node: Node, parents: dict[Node, list[Node]], through: set[Node]) -> Node | None:
    """Follows the only chain that leads to `node`, up to the first node that the inputs need
    too."""
    while node not in through:
        above = parents.get(node, [])
        if len(above) != 1:
            return None
        node = above[0]
    return node


def _parents(roots: list[Node]) -> dict[Node, list[Node]]:
    """node -> nodes with an edge to it, as often as they have one."""
    found: dict[Node, list[Node]] = {}
    seen = set(roots)
    queue = list(seen)
    while queue:
        node = queue.pop()
        for child, _ in node.next_functions:
            if child is None:
                continue
            found.setdefault(child, []).append(node)
            if child not in seen:
                seen.add(child)
                queue.append(child)
    return found


def _ancestors(nodes: list[Node], parents: dict[Node, list[Node]]) -> set[Node]:
    """Every node from which one of `nodes` is reached, these not included."""
    found: set[Node] = set()
    queue = list(nodes)
    while queue:
        for parent in parents.get(queue.pop(), ()):
            if parent not in found:
                found.add(parent)
                queue.append(parent)
    return found
