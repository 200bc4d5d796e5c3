"""Times blocks under the conditions of a training step.

A block that runs repeatedly in isolation finds its weights, inputs and output memory in the cache;
in a step, all other blocks of a stage have run in between. Therefore a window of blocks, larger
than the caches, runs as a whole: forward one after the other, each on the results of the previous
ones, then backward in reverse order, and each block is timed on the way.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

WARM_UP = 2
Clock = Callable[[Callable[[], Any]], tuple[Any, float]]


class Piece(NamedTuple):
    """A block that can run. Pieces with one `key` do the same work and share their times. `done`
    names the values that no later piece reads."""

    key: str
    call: Callable[..., Any]
    inputs: list[str]
    outputs: list[str]
    trained: list[torch.Tensor]
    done: list[str]


NOTHING = ""
EMPTY = Piece(NOTHING, lambda value: (value,), [NOTHING], [NOTHING], [], [])


@dataclass(slots=True)
class Times:
    """Milliseconds, one element per run: forward, the whole backward, and the gradients of the
    inputs only."""

    forward: list[float] = field(default_factory=list)
    backward: list[float] = field(default_factory=list)
    inner: list[float] = field(default_factory=list)

    def medians(self) -> tuple[float, float, float]:
        """Of the three times, in this order."""
        return (
            statistics.median(self.forward),
            statistics.median(self.backward),
            statistics.median(self.inner),
        )

    def lower(self, floor: Times) -> None:
        """Subtracts the minimum time of an empty block: a step calls autograd once per stage, not
        once per block. An empty block has no weights, so both its backward times are the
        same."""
        back = min(floor.backward + floor.inner)
        for mine, least in (
            (self.forward, min(floor.forward)),
            (self.backward, back),
            (self.inner, back),
        ):
            mine[:] = [max(0.0, spent - least) for spent in mine]


class _Source(torch.autograd.Function):
    """A value that needs a gradient but is not kept alive for it, unlike a leaf: a step frees
    values that no operation has saved."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise AssertionError("gradients end here")


class _Input(NamedTuple):
    """Where the gradient of an input arrives."""

    name: str
    edge: GradientEdge


class _Root(NamedTuple):
    """An output that has a gradient; `like` has its shape and strides, and no memory."""

    name: str
    edge: GradientEdge
    like: torch.Tensor
    place: torch.device


class _Run(NamedTuple):
    """A piece between its forward and its backward."""

    piece: Piece
    sources: list[_Input]
    roots: list[_Root]


def passes(iterations: int) -> int:
    """How many passes a window makes: some for warm-up, `iterations` with a whole backward, half as
    many with gradients of inputs only."""
    return WARM_UP + iterations + (iterations + 1) // 2


class Window:
    """Pieces in the order of the model. `values` are borrowed: the values that the pieces read but
    do not compute. `grads` names the values that need a gradient."""

    def __init__(
        self, pieces: list[Piece], values: dict[str, Any], grads: set[str], clock: Clock
    ) -> None:
        middle = len(pieces) // 2
        self._pieces = [*pieces[:middle], EMPTY, *pieces[middle:]]
        self._values = values | {NOTHING: torch.zeros(())}
        self._grads = grads | {NOTHING}
        self._clock = clock
        self._token = torch.zeros((), requires_grad=True)
        self._sums = {p: torch.zeros_like(p) for piece in pieces for p in piece.trained}
        self._gradients: dict[str, torch.Tensor] = {}
        self._times: dict[str, Times] = {}

    def run(self, iterations: int, step: Callable[[], None]) -> dict[str, Times]:
        """Calls `step` after each of `passes(iterations)` passes; returns the times by key."""
        # The minimum is used for the empty piece, including warm-up runs: with few runs, a short
        # stall of the machine would hide the time of all other pieces.
        floor = Times()
        for turn in range(passes(iterations)):
            if turn <= WARM_UP:
                self._times = {piece.key: Times() for piece in self._pieces} | {NOTHING: floor}
            self._pass(whole=turn < WARM_UP + iterations)
            step()
        del self._times[NOTHING]
        for times in self._times.values():
            times.lower(floor)
        return self._times

    def _pass(self, whole: bool) -> None:
        made: dict[str, Any] = {}
        runs = [self._forward(piece, made) for piece in self._pieces]
        made.clear()
        while runs:
            self._backward(runs.pop(), whole)
        self._gradients.clear()

    def _given(self, piece: Piece, made: dict[str, Any]) -> tuple[list[Any], list[_Input]]:
        """A piece's arguments, and where the gradients of those that need one are collected."""
        given: list[Any] = []
        sources: list[_Input] = []
        for name in piece.inputs:
            value = made[name] if name in made else self._values[name]
            if isinstance(value, torch.Tensor) and name in self._grads:
                value = _Source.apply(value, self._token)  # type: ignore[no-untyped-call]
                sources.append(_Input(name, get_gradient_edge(value)))
            given.append(value)
        return given, sources

    def _forward(self, piece: Piece, made: dict[str, Any]) -> _Run:
        given, sources = self._given(piece, made)

        def work() -> Any:
            outputs = piece.call(*given)
            given.clear()
            for name in piece.done:  # a step frees memory here too, at the same cost
                made.pop(name, None)
            return outputs

        outputs, spent = self._clock(work)
        self._times[piece.key].forward.append(spent)
        roots = []
        for name, value in zip(piece.outputs, outputs, strict=True):
            made[name] = value
            if isinstance(value, torch.Tensor) and value.requires_grad:
                like = torch.empty_like(value, device="meta")
                roots.append(_Root(name, get_gradient_edge(value), like, value.device))
                made[name] = value.detach()
        return _Run(piece, sources, roots)

    def _backward(self, run: _Run, whole: bool) -> None:
        trained = run.piece.trained if whole else []
        pairs = [(root.edge, self._gradient(root)) for root in run.roots]
        spent = 0.0
        if pairs and (run.sources or trained):
            try:
                _, spent = self._clock(lambda: self._differentiate(pairs, run.sources, trained))
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:
                spent = 0.0  # no backward pass: cuDNN's recurrent layers in eval mode
        times = self._times[run.piece.key]
        (times.backward if whole else times.inner).append(spent)

    def _gradient(self, root: _Root) -> torch.Tensor:
        """The gradients computed by the readers of the value; arbitrary numbers if there are
        none."""
        found = self._gradients.pop(root.name, None)
        return torch.randn_like(root.like, device=root.place) if found is None else found

    def _differentiate(
        self,
        pairs: list[tuple[GradientEdge, torch.Tensor]],
        sources: list[_Input],
        trained: list[torch.Tensor],
    ) -> None:
        """Weights' gradients are added to those of the micro-batches before, as in training: for a
        small micro-batch this is a large part of the time."""
        wanted: list[Any] = [*(source.edge for source in sources), *trained]
        roots, above = [e for e, _ in pairs], [g for _, g in pairs]
        found = torch.autograd.grad(roots, wanted, above, allow_unused=True)
        for source, gradient in zip(sources, found, strict=False):
            if gradient is not None:
                before = self._gradients.get(source.name)
                self._gradients[source.name] = gradient if before is None else before + gradient
        for parameter, gradient in zip(trained, found[len(sources) :], strict=True):
            if gradient is not None:
                self._sums[parameter] += gradient
        pairs.clear()
