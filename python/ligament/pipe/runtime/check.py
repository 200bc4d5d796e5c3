"""Checks that a plan computes the same results as the model, bit for bit, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from ligament.errors import MismatchError, UnsupportedError
from ligament.pipe.generate import stage_modules
from ligament.pipe.graph import flatten_arguments
from ligament.pipe.graph.capture import Restored

if TYPE_CHECKING:
    from ligament.pipe.plan import Plan

ULPS = 4
TRACED_EPSILONS = 4096  # other kernels for the same sums

Tensors = list[torch.Tensor]
Gradients = dict[str, torch.Tensor | None]


@dataclass(slots=True)
class Check:
    """The result: how many `outputs` and `gradients` were compared, and those gradients that differ
    in the last bits because a stage boundary changes the order of a sum (`close`: name ->
    largest difference in units in the last place).

    `traced` is not 0 when the model's own code takes a different path while it is traced (for
    example attention masks that are created only for export): the plan then equals the traced
    model bit for bit, and the eager one to this relative difference. `rounded` has the gradients
    that differ from the eager model's although the outputs are equal (name -> units in the
    last place): they are summed in a different order while the model is traced, and are
    accepted only with `exact=False`. `why_no_gradients` is set if the
    original itself has no backward pass."""

    outputs: int
    gradients: int
    close: dict[str, float] = field(default_factory=dict)
    rounded: dict[str, float] = field(default_factory=dict)
    traced: float = 0.0
    why_no_gradients: str = ""

    def __bool__(self) -> bool:
        return True


def check(plan: Plan, seed: int, exact: bool = True) -> Check:
    """Compares the stages, in one autograd graph and with detached stage boundaries, with the
    original. Without `exact`, gradients may differ by rounding in one autograd graph too."""
    program = plan.program
    held = [s.tensor for s in program.states.values()]
    if any(t.is_meta for t in (*held, *plan.trace.sample)):  # type: ignore[union-attr]
        raise UnsupportedError("a model on the meta device cannot be checked: it has no values")
    runner = _Runner(plan, seed)
    try:
        wanted, wanted_grads = runner.original()
    except RuntimeError as error:
        # The original itself may have no backward pass (recurrent layers of cuDNN in eval mode).
        return _outputs_alone(plan, seed, str(error))
    result = Check(len(wanted), len(wanted_grads))
    outputs, grads = runner.joined()
    exported = plan.trace.exported is not None  # type: ignore[union-attr]
    if _first_difference(wanted, outputs) is not None and exported:
        eager, exported = wanted, False
        wanted, wanted_grads = runner.traced()
        result.traced = _distance(eager, wanted)
    _same_outputs(wanted, outputs, "in one autograd graph")
    differing = {n: g for n, g in wanted_grads.items() if not _equal(g, grads[n])}
    if differing:
        result.rounded = _rounding(differing, grads, runner.traced()[1] if exported else None)
        if exact:
            raise MismatchError(_rounded(result.rounded))
        wanted_grads = grads
    outputs, grads = runner.detached()
    _same_outputs(wanted, outputs, "with detached stage boundaries")
    for name, gradient in wanted_grads.items():
        if not _equal(gradient, grads[name]):
            result.close[name] = _ulps(
                name, gradient, grads[name], "with detached stage boundaries", ULPS
            )
    return result


def _rounding(wanted: Gradients, found: Gradients, traced: Gradients | None) -> dict[str, float]:
    """The difference of gradients from the original's in one autograd graph, if it is rounding. The
    model's own code may take a different path while it is traced: gradients that equal those of the
    traced model bit for bit then differ from the eager ones only because of the other
    kernels."""
    same = traced is not None and all(_equal(traced[name], found[name]) for name in wanted)
    limit = TRACED_EPSILONS if same else ULPS
    how = "in one autograd graph"
    return {n: _ulps(n, gradient, found[n], how, limit) for n, gradient in wanted.items()}


def _rounded(apart: dict[str, float]) -> str:
    worst = max(apart, key=lambda name: apart[name])
    more = f", as do {len(apart) - 1} more by less" if len(apart) > 1 else ""
    return (
        f"the gradient of {worst} differs from the original's in one autograd graph by "
        f"{apart[worst]:.1f} units in the last place{more}: its terms are summed in a "
        "different order (plan.check(exact=False) accepts differences of rounding)"
    )


def _distance(eager: Tensors, traced: Tensors) -> float:
    """The difference between the traced and the eager model; an error if it is more than
    rounding."""
    worst = 0.0
    for index, (a, b) in enumerate(zip(eager, traced, strict=True)):
        if a.shape != b.shape or not a.dtype.is_floating_point:
            if not _equal(a, b):
                raise MismatchError(f"output {index} differs from the original's")
            continue
        largest = float(a.abs().max()) if a.numel() else 0.0
        apart = float((a - b).abs().max()) / largest if largest else 0.0
        if not apart <= TRACED_EPSILONS * torch.finfo(a.dtype).eps:
            raise MismatchError(f"output {index} differs from the original's, relative {apart:.1e}")
        worst = max(worst, apart)
    return worst


def _outputs_alone(plan: Plan, seed: int, why: str) -> Check:
    with torch.no_grad():
        runner = _Runner(plan, seed)
        wanted, _ = runner.original()
        found, _ = runner.joined()
    _same_outputs(wanted, found, "in one autograd graph")
    return Check(len(wanted), 0, why_no_gradients=why)


class _Runner:
    """Runs the sample three ways from the same random state and buffers."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan = plan
        self.seed = seed
        self.model = plan.program.model
        self.names = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        self.sample: Tensors = list(plan.trace.sample)  # type: ignore[union-attr]
        self.grads: Tensors = []

    def original(self) -> tuple[Tensors, Gradients]:
        with self._start():
            args, kwargs = flatten_arguments.unflatten(
                self.plan.program.input_shape, self._inputs()
            )
            result = flatten_arguments.flatten(
                self.model(*args, **kwargs), "output", objects=True
            ).tensors
            generator = torch.Generator().manual_seed(self.seed)
            for tensor in result:
                noise = torch.randn(tensor.shape, generator=generator)
                self.grads.append(noise.to(tensor.device, tensor.dtype))
            return _detached(result), self._gradients(result)

    def traced(self) -> tuple[Tensors, Gradients]:
        """The complete program that torch.export recorded."""
        with self._start():
            result = list(self.plan.trace.exported.module()(*self._inputs()))  # type: ignore[union-attr]
            return _detached(result), self._gradients(result)

    def joined(self) -> tuple[Tensors, Gradients]:
        with self._start():
            values = dict(zip(self.plan.program.inputs, self._inputs(), strict=True))
            result = list(stage_modules.run(self.plan.stages, values))
            return _detached(result), self._gradients(result)

    def detached(self) -> tuple[Tensors, Gradients]:
        """As in a pipeline: each stage has a separate graph, and gradients are passed back between
        them."""
        with self._start():
            taken, made = self._forward()
            return _detached(made[-1]), self._backward(taken, made)

    def _start(self) -> Restored:
        """The same random numbers and buffers for every run; gradients are read before buffers are
        restored."""
        state = Restored(self.model)
        torch.manual_seed(self.seed)
        return state

    def _forward(self) -> tuple[list[Tensors], list[Tensors]]:
        needs = self.plan.layout.grads
        values = dict(zip(self.plan.program.inputs, self._inputs(), strict=True))
        taken, made = [], []
        for stage in self.plan.stages:
            inputs = []
            for name in stage.INPUTS:
                first = name in self.plan.program.inputs
                leaf = values[name] if first else values[name].detach().requires_grad_(needs[name])
                inputs.append(leaf)
            outputs = list(stage(*inputs))
            values = dict(zip(stage.OUTPUTS, outputs, strict=True))
            taken.append(inputs)
            made.append(outputs)
        return taken, made

    def _backward(self, taken: list[Tensors], made: list[Tensors]) -> Gradients:
        found: Gradients = dict.fromkeys(self.names)
        above: dict[str, torch.Tensor | None] = {}
        plan_stages = self.plan.stages
        for index in range(len(plan_stages) - 1, -1, -1):
            stage = plan_stages[index]
            last = index == len(plan_stages) - 1
            grads = self.grads if last else [above.get(name) for name in stage.OUTPUTS]
            roots = [
                (o, g)
                for o, g in zip(made[index], grads, strict=True)
                if o.requires_grad and g is not None
            ]
            own = {n: p for n, p in self.names.items() if any(p is q for q in stage.parameters())}
            leaves = [t for t in taken[index] if t.requires_grad]
            wanted = [*leaves, *own.values()]
            gained: tuple[torch.Tensor | None, ...] = (None,) * len(wanted)
            if roots and wanted:
                gained = torch.autograd.grad(
                    [o for o, _ in roots], wanted, [g for _, g in roots], allow_unused=True
                )
            back = iter(gained)
            above = {
                n: next(back) if t.requires_grad else None
                for n, t in zip(stage.INPUTS, taken[index], strict=True)
            }
            for name, gradient in zip(own, back, strict=True):
                before = found[name]
                if gradient is not None:
                    found[name] = gradient if before is None else before + gradient
        return found

    def _inputs(self) -> Tensors:
        """Copies, because a model may write to its arguments."""
        return [t.detach().clone().requires_grad_(t.requires_grad) for t in self.sample]

    def _gradients(self, result: Tensors) -> Gradients:
        roots = [(o, g) for o, g in zip(result, self.grads, strict=True) if o.requires_grad]
        if not roots or not self.names:
            return dict.fromkeys(self.names)
        found = torch.autograd.grad(
            [o for o, _ in roots],
            list(self.names.values()),
            [g for _, g in roots],
            allow_unused=True,
        )
        return dict(zip(self.names, found, strict=True))


def _detached(tensors: Tensors) -> Tensors:
    return [t.detach().clone() for t in tensors]


def _first_difference(wanted: Tensors, found: Tensors) -> int | None:
    for index, (a, b) in enumerate(zip(wanted, found, strict=True)):
        if not _equal(a, b):
            return index
    return None


def _same_outputs(wanted: Tensors, found: Tensors, how: str) -> None:
    index = _first_difference(wanted, found)
    if index is not None:
        raise MismatchError(f"output {index} differs from the original's {how}")


def _equal(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) and torch.equal(
        a.isnan(), b.isnan()
    )


def _ulps(
    name: str, wanted: torch.Tensor | None, found: torch.Tensor | None, how: str, limit: int
) -> float:
    """The difference in units in the last place of the largest element; an error above the
    limit."""
    if wanted is None or found is None:
        raise MismatchError(f"only one side has a gradient of {name}, {how}")
    unit = float(wanted.abs().max()) * torch.finfo(wanted.dtype).eps
    distance = float((wanted - found).abs().max()) / unit if unit else float("inf")
    if not distance <= limit:
        raise MismatchError(
            f"the gradient of {name} differs from the original's {how} by {distance:.1f} units in "
            "the last place"
        )
    return distance
