"""Blocks are timed as a step meets them: in passes over a window of them."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from ligament.pipe import profile, trace
from ligament.pipe.costs import timing
from ligament.pipe.costs.timing import WARM_UP, Piece, Times, Window
from pipe_models import mlp
from torch.multiprocessing.reductions import StorageWeakRef

ITERATIONS = 3


def clock(work: Callable[[], Any]) -> tuple[Any, float]:
    return work(), 1.0


def counting(works: int) -> Callable[[Callable[[], Any]], tuple[Any, float]]:
    """Each work of a pass, which has so many, takes longer than the one before."""
    spent = itertools.cycle(range(1, works + 1))
    return lambda work: (work(), float(next(spent)))


def run(window: Window, iterations: int = ITERATIONS) -> dict[str, Times]:
    return window.run(iterations, lambda: None)


def test_gradients_go_back_as_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through every reader of a value, and added up over the passes with a whole backward."""
    monkeypatch.setattr(timing.torch, "randn_like", torch.ones_like)
    x = torch.randn(4, 8)
    first, left, right = (torch.randn(8, 8, requires_grad=True) for _ in range(3))
    pieces = [
        Piece("first", lambda x: (torch.tanh(x @ first),), ["x"], ["h"], [first], ["x"]),
        Piece("left", lambda h: (h @ left,), ["h"], ["l"], [left], []),
        Piece("right", lambda h: (h @ right,), ["h"], ["r"], [right], ["h"]),
        Piece("sum", lambda a, b: (a * b,), ["l", "r"], ["out"], [], ["l", "r", "out"]),
    ]
    window = Window(pieces, {"x": x}, {"h", "l", "r", "out"}, clock)
    times = run(window)
    h = torch.tanh(x @ first)
    wanted = torch.autograd.grad(((h @ left) * (h @ right)).sum(), [first, left, right])
    for weight, gradient in zip((first, left, right), wanted, strict=True):
        torch.testing.assert_close(window._sums[weight], (WARM_UP + ITERATIONS) * gradient)
        assert weight.grad is None
    assert list(times) == ["first", "left", "right", "sum"]
    assert [len(t.backward) for t in times.values()] == [ITERATIONS] * 4
    assert [len(t.inner) for t in times.values()] == [2] * 4


def test_backward_runs_in_the_opposite_order_and_warming_up_does_not_count() -> None:
    x = torch.randn(2, 2, requires_grad=True)
    pieces = [
        Piece("a", lambda v: (v * 2,), ["x"], ["y"], [], ["x"]),
        Piece("b", lambda v: (v * 3,), ["y"], ["z"], [], ["y", "z"]),
    ]
    window = Window(pieces, {"x": x.detach()}, {"x", "y", "z"}, counting(6))
    found = run(window, 1)
    # With the empty piece in the middle a pass is six ticks, and two of them are for warming up.
    # What stays is the distance to the empty piece, which follows `a` forward, and `b` backward.
    assert found["a"].forward == [0.0, 0.0] and found["b"].forward == [1.0, 1.0]
    assert found["b"].backward == [0.0] and found["a"].backward == [1.0]
    assert timing.passes(1) == WARM_UP + 2


def test_what_the_clock_costs_is_taken_away() -> None:
    pieces = [Piece("a", lambda v: (v + 1,), ["x"], ["y"], [], ["x", "y"])]
    found = run(Window(pieces, {"x": torch.zeros(2)}, {"x", "y"}, clock))
    assert found["a"].medians() == (0.0, 0.0, 0.0)


def test_a_moment_in_the_empty_piece_hides_nothing() -> None:
    """The machine stands still whenever the empty piece runs, except for warming up."""
    weight = torch.randn(2, 2, requires_grad=True)
    pieces = [Piece("a", lambda x: (x @ weight,), ["x"], ["y"], [weight], ["x", "y"])]
    ticks = itertools.count()

    def stalling(work: Callable[[], Any]) -> tuple[Any, float]:
        turn, place = divmod(next(ticks), 4)  # the empty piece comes first and goes back last
        if place in (1, 2):
            return work(), 3.0
        return work(), 1.0 if turn < WARM_UP else 800.0

    found = run(Window(pieces, {"x": torch.zeros(2, 2)}, {"x", "y"}, stalling), 1)
    assert found["a"].medians() == (2.0, 2.0, 2.0)


def test_what_no_operation_keeps_is_freed_before_the_backward() -> None:
    """As in a step: memory that is used again is warmer than fresh memory."""
    made: list[StorageWeakRef] = []
    gone: list[bool] = []

    def first(x: torch.Tensor) -> tuple[torch.Tensor]:
        y = x + 1
        made.append(StorageWeakRef(y.untyped_storage()))
        return (y,)

    def third(z: torch.Tensor) -> tuple[torch.Tensor]:
        gone.append(made[-1].expired())
        return (z + 1,)

    pieces = [
        Piece("first", first, ["x"], ["y"], [], ["x"]),
        Piece("second", lambda y: (y + 1,), ["y"], ["z"], [], ["y"]),
        Piece("third", third, ["z"], ["out"], [], ["z", "out"]),
    ]
    run(Window(pieces, {"x": torch.zeros(2)}, {"x", "y", "z", "out"}, clock))
    assert gone and all(gone)


def test_a_block_without_a_backward_does_not_end_it() -> None:
    class Refuses(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x + 1

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            raise RuntimeError("only in training mode")

    weight = torch.randn(2, 2, requires_grad=True)
    pieces = [
        Piece("a", lambda x: (x @ weight,), ["x"], ["y"], [weight], ["x"]),
        Piece("b", lambda y: (Refuses.apply(y),), ["y"], ["z"], [], ["y", "z"]),
    ]
    found = run(Window(pieces, {"x": torch.randn(2, 2)}, {"y", "z"}, counting(5)))
    assert found["b"].backward == [0.0] * ITERATIONS
    assert min(found["a"].backward) > 0


def test_a_window_of_known_blocks_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The layers of a deep model are alike: one window of them is enough."""
    ran: list[int] = []
    whole = Window.run

    def count(self: Window, *rest: Any) -> Any:
        ran.append(len(self._pieces) - 1)
        return whole(self, *rest)

    monkeypatch.setattr(Window, "run", count)
    case = mlp(width=8, depth=12)
    profile(trace(*case), iterations=1)
    blocks = ran.pop()
    assert not ran
    weights = sum(p.numel() * p.element_size() for p in case.model.parameters())
    monkeypatch.setattr(sys.modules["ligament.pipe.costs.profile"], "WINDOW_BYTES", weights / 3)
    graph = profile(trace(*case), iterations=1).graph
    assert len(ran) == 1 and ran[0] < blocks / 2
    assert all(node.forward_memory > 0 for node in graph.nodes if node.kind == "layer")
