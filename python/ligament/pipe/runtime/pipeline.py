"""Running a plan on torch.distributed.pipelining.

torch's runtime executes the order of work that was simulated, so any arrangement of stages on
devices can run. Shapes, dtypes and gradients of values that cross a stage boundary are known from
the trace: nothing is negotiated at run time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    _Action,
    _ComputationType,
    _PipelineScheduleRuntime,
)
from torch.utils.checkpoint import checkpoint

from ligament.errors import InvalidError, MismatchError, UnsupportedError
from ligament.pipe.generate.stage_base import Stage
from ligament.pipe.graph import flatten_arguments
from ligament.pipe.graph.ir import Meta
from ligament.pipe.report.report import Event
from ligament.pipe.runtime import split_backward
from ligament.plural import count

if TYPE_CHECKING:
    from ligament.pipe.plan import Plan

TORCH, TORCH_PLAIN = (2, 11), (2, 13)  # the latter if values without gradients cross
RECEIVES = (_ComputationType.RECV_F, _ComputationType.RECV_B)
FORWARD_ONLY = (_ComputationType.FORWARD, _ComputationType.SEND_F, _ComputationType.RECV_F)
Loss = Callable[..., torch.Tensor]


def pipeline(
    plan: Plan,
    group: Any,
    loss_fn: Loss | None,
    device: Any,
    microbatches: int | None = None,
    schedule: str | None = None,
    scale_grads: bool = True,
) -> PlannedSchedule:
    """A schedule with the stages of this rank. Collective: every rank of `group` calls it."""
    _check_torch(plan, torch.__version__)
    if not dist.is_available() or not dist.is_initialized():
        raise UnsupportedError("a pipeline needs torch.distributed: call init_process_group first")
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if size != plan.device_count:
        raise InvalidError(
            f"the plan is for {count(plan.device_count, 'device')}, but the group has "
            f"{count(size, 'rank')}"
        )
    place = (
        torch.device(device) if device is not None else plan.program.device or torch.device("cpu")
    )
    line = plan.simulate(schedule, microbatches)
    _agree(plan, line.events, group, size)
    wire = wire_device(place, dist.get_backend_config(group))
    mine = [
        _torch_stage(plan, stage, index, place, wire, group)
        for index, stage in enumerate(plan.stages)
        if plan.answer["stage_device"][index] == rank
    ]
    ties = _tie_groups(plan, group, rank)
    return PlannedSchedule(plan, mine, line.microbatches, line.events, loss_fn, ties, scale_grads)


def _check_torch(plan: Plan, version: str) -> None:
    """Before 2.13, torch assumes that every value that crosses a stage boundary needs a
    gradient."""
    found = tuple(int(n) for n in version.split(".")[:2])
    plain = [n for stage in plan.stages[1:] for n in stage.INPUTS if not plan.layout.grads[n]]
    least = TORCH_PLAIN if plain else TORCH
    if found < least:
        why = f" ({plain[0]} crosses a stage boundary without a gradient)" if plain else ""
        raise UnsupportedError(
            f"a pipeline needs torch {least[0]}.{least[1]} or later{why}: this is {version}"
        )


def wire_device(place: torch.device, backends: str) -> torch.device:
    """Where values are sent from and received: gloo sends host memory only. `backends` is
    "cpu:gloo,cuda:nccl" or the like."""
    found = dict(pair.split(":", 1) for pair in backends.split(",") if ":" in pair)
    return torch.device("cpu") if found.get(place.type) == "gloo" else place


def _agree(plan: Plan, events: list[Event], group: Any, size: int) -> None:
    """Ranks that planned independently may have different stages; nothing else would detect it,
    since the shapes at stage boundaries are often the same."""
    order = [tuple(e)[:4] for e in sorted(events, key=lambda e: e.device)]
    mine = repr((list(plan.answer["stage"]), list(plan.answer["stage_device"]), order))
    found: list[Any] = [None] * size
    dist.all_gather_object(found, hashlib.sha256(mine.encode()).hexdigest(), group=group)
    others = [rank for rank in range(size) if found[rank] != found[0]]
    if others:
        raise MismatchError(
            f"rank {others[0]} has a different plan from rank 0: call pipe_model on every rank of "
            "the group without distributed=False, or plan.save on one rank and Plan.load on all "
            "others"
        )


class _Arrive(torch.autograd.Function):
    """Restores the strides of a value that was received as a dense block; its gradient is sent
    densely again."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
        ctx.order = order
        return tensor.permute(_inverse(order))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].permute(ctx.order).contiguous(), None


class Crossing(NamedTuple):
    """A value at a stage boundary: the order of its dimensions in communication, and the device of
    the stage's side."""

    order: tuple[int, ...]
    device: torch.device


class Border(nn.Module):
    """A stage with dense inputs and outputs for communication on the device `wire`, regardless of
    the strides and devices of its values."""

    def __init__(
        self,
        stage: Stage,
        arrive: list[Crossing],
        leave: list[Crossing],
        wire: torch.device,
        recompute: bool,
    ) -> None:
        super().__init__()
        self.stage = stage
        self._recompute = recompute
        self._arrive = arrive
        self._leave = leave
        self._wire = wire

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = tensors
        if self._arrive:
            values = tuple(
                _Arrive.apply(t.to(crossing.device), crossing.order)  # type: ignore[no-untyped-call]
                for t, crossing in zip(tensors, self._arrive, strict=True)
            )
        if self._recompute and torch.is_grad_enabled():
            made = checkpoint(self.stage, *values, use_reentrant=False)
        else:
            made = self.stage(*values)
        if not self._leave:
            return tuple(made)
        return tuple(
            t.permute(crossing.order).contiguous().to(self._wire)
            for t, crossing in zip(made, self._leave, strict=True)
        )


class SplitStage(PipelineStage):
    """A stage whose backward is split by `ligament.pipe.split`."""

    def backward_maybe_with_nosync(
        self, backward_type: str, bwd_kwargs: dict[str, Any], last_backward: bool = False
    ) -> Any:
        if backward_type == "weight":
            split_backward.second_half(bwd_kwargs["param_groups"])
            return (), None
        values = bwd_kwargs["input_values"]
        rest: Any
        if backward_type == "input":
            grads, rest = split_backward.first_half(
                bwd_kwargs["stage_output"],
                bwd_kwargs["output_grads"],
                values,
                self.submod.parameters(),
            )
        else:
            grads, rest = super().backward_maybe_with_nosync(
                backward_type, bwd_kwargs, last_backward
            )
        return _with_zeros(grads, values), rest


def _with_zeros(grads: Any, values: Any) -> tuple[torch.Tensor | None, ...]:
    """The previous stage receives a gradient for each value that may have one, even if the loss
    does not depend on it: torch sends zeros from 2.13 on, and fails before."""
    return tuple(
        torch.zeros_like(value)
        if grad is None and isinstance(value, torch.Tensor) and value.requires_grad
        else grad
        for grad, value in zip(grads, values, strict=True)
    )


def _torch_stage(
    plan: Plan, stage: Stage, index: int, place: torch.device, wire: torch.device, group: Any
) -> PipelineStage:
    count, layout = plan.stage_count, plan.layout
    first, last = index == 0, index == count - 1

    def crossing(name: str) -> Crossing:
        meta = layout.metas[name]
        here = plan.program.device in (None, meta.device)  # values on other devices stay there
        return Crossing(_order(meta), place if here else meta.device)

    arrive = [] if first else [crossing(n) for n in stage.INPUTS]
    leave = [] if last else [crossing(n) for n in stage.OUTPUTS]
    border = Border(stage.to(place), arrive, leave, wire, plan.options.recompute)
    inputs = tuple(_wire(layout.metas[n], layout.grads[n] and not first) for n in stage.INPUTS)
    outputs = tuple(
        _wire(layout.metas[n], layout.grads.get(n, False)) if n in layout.metas else _like(plan, n)
        for n in layout.stages[index].outputs
    )
    return SplitStage(
        border, index, count, wire, input_args=inputs, output_args=outputs, group=group
    )


def _order(meta: Meta) -> tuple[int, ...]:
    """Dimensions from the largest stride to the smallest: permuted in this order, a dense tensor is
    contiguous."""
    return tuple(sorted(range(len(meta.shape)), key=lambda d: (-meta.stride[d], d)))


def _inverse(order: tuple[int, ...]) -> list[int]:
    found = [0] * len(order)
    for position, dimension in enumerate(order):
        found[dimension] = position
    return found


def _wire(meta: Meta, grad: bool) -> torch.Tensor:
    """A shape without memory."""
    shape = [meta.shape[d] for d in _order(meta)]
    return torch.empty(shape, dtype=meta.dtype, device="meta").requires_grad_(grad)


def _like(plan: Plan, name: str) -> torch.Tensor:
    return torch.empty_like(plan.program.states[name].tensor, device="meta")


def _tie_groups(plan: Plan, group: Any, rank: int) -> list[tuple[nn.Parameter, Any]]:
    """For each tied parameter that this rank holds: the parameter, and the ranks that hold it
    (None: only this one). Every rank creates every group, in the same order."""
    found = []
    everyone = dist.get_process_group_ranks(group or dist.group.WORLD)
    for where in plan.layout.ties.values():
        ranks = sorted({plan.answer["stage_device"][stage] for stage, _ in where})
        made = dist.new_group([everyone[r] for r in ranks]) if len(ranks) > 1 else None
        for stage, name in where:
            if plan.answer["stage_device"][stage] == rank:
                found.append((plan.stages[stage].get_parameter(name), made))
                break
    return [(parameter, made) for parameter, made in found if made is not None]


class PlannedSchedule(_PipelineScheduleRuntime):
    """A torch schedule whose order of work is the plan's. `step(*args, target=, losses=)` takes the
    whole batch, as the model takes a micro-batch; on ranks without the first stage the arguments
    are ignored."""

    def __init__(
        self,
        plan: Plan,
        mine: list[PipelineStage],
        microbatches: int,
        events: list[Event],
        loss_fn: Loss | None,
        ties: list[tuple[nn.Parameter, Any]],
        scale_grads: bool,
    ) -> None:
        shape = plan.program.output_shape

        def loss(output: tuple[torch.Tensor, ...], target: Any, **options: Any) -> torch.Tensor:
            if loss_fn is None:
                raise InvalidError("this pipeline has no loss function")
            return loss_fn(flatten_arguments.unflatten(shape, output), target, **options)

        # Gradients are scaled here: torch would do it once for each stage that shares a parameter.
        super().__init__(  # type: ignore[no-untyped-call]
            mine, microbatches, loss if loss_fn else None, scale_grads=False
        )
        self._plan = plan
        self._ties = ties
        self._scale = 1.0 / microbatches if scale_grads else 1.0
        self.pipeline_order = _actions(events, plan.device_count)
        self._prepare_schedule_with_comms(dict(self.pipeline_order))
        whole = self.pipeline_order_with_comms
        if all(stage.device.type == "cpu" for stage in mine):
            whole = {r: receives_first(line) for r, line in whole.items()}
        ahead = {
            r: [a for a in line if a.computation_type in FORWARD_ONLY] for r, line in whole.items()
        }
        self._orders = {True: whole, False: ahead}

    def step(self, *args: Any, target: Any = None, **options: Any) -> Any:
        """One step: forward and backward of all micro-batches. Returns the model's output for the
        whole batch on the rank of the last stage, None elsewhere. Gradients of tied parameters are
        equal on all their ranks."""
        if target is not None and target.shape[0] % self._n_microbatches:
            raise MismatchError(
                f"the target has {target.shape[0]} rows, which cannot be divided into "
                f"{self._n_microbatches} micro-batches"
            )
        self.pipeline_order_with_comms = self._orders[self._has_backward]
        before = self._set_aside() if self._has_backward else {}
        made = super().step(*args, target=target, **options)
        if self._has_backward:
            self._settle(before)
        return made

    def _maybe_compute_loss(self, stage: Any, output: Any, target_mbs: Any, *rest: Any) -> None:
        """`eval` without a target returns only outputs."""
        if target_mbs is not None or self._has_backward:
            super()._maybe_compute_loss(stage, output, target_mbs, *rest)  # type: ignore[no-untyped-call]

    def _split_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        count = self._n_microbatches
        if not any(stage.is_first for stage in self._stages):
            return [()] * count, [{}] * count
        given = flatten_arguments.flatten((args, kwargs or {}))
        flatten_arguments.require_same(self._plan.program.input_shape, given.shape)
        metas = self._plan.program.inputs
        pieces = [
            _split(name, meta, tensor, count)
            for (name, meta), tensor in zip(metas.items(), given.tensors, strict=True)
        ]
        if pieces and count > 1 and all(piece[0] is piece[1] for piece in pieces):
            name, meta = next(iter(metas.items()))
            raise _too_small(name, meta, tuple(given.tensors[0].shape), count)
        return [tuple(piece[i] for piece in pieces) for i in range(count)], [{}] * count

    def _merge_outputs(self, output_chunks: list[Any]) -> Any:
        merged = [
            torch.cat(p) if p[0].dim() else torch.stack(p) for p in zip(*output_chunks, strict=True)
        ]
        return flatten_arguments.unflatten(self._plan.program.output_shape, merged)

    def _parameters(self) -> list[nn.Parameter]:
        found = {
            id(p): p for stage in self._stages for p in stage.submod.parameters() if p.requires_grad
        }
        return list(found.values())

    def _set_aside(self) -> dict[nn.Parameter, torch.Tensor]:
        """Gradients of earlier steps: neither scaled nor summed a second time."""
        kept = {}
        for parameter in self._parameters():
            if parameter.grad is not None:
                kept[parameter], parameter.grad = parameter.grad, None
        return kept

    def _settle(self, before: dict[nn.Parameter, torch.Tensor]) -> None:
        for parameter in self._parameters():
            if parameter.grad is not None and self._scale != 1.0:
                parameter.grad.mul_(self._scale)
        for parameter, group in self._ties:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad, group=group)
        for parameter, gradient in before.items():
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)


def _actions(events: list[Event], devices: int) -> dict[int, list[_Action | None]]:
    split = any(event.work == "weight" for event in events)
    kinds = {
        "forward": _ComputationType.FORWARD,
        "backward": _ComputationType.BACKWARD_INPUT if split else _ComputationType.FULL_BACKWARD,
        "weight": _ComputationType.BACKWARD_WEIGHT,
    }
    order: dict[int, list[_Action | None]] = {rank: [] for rank in range(devices)}
    for event in events:
        order[event.device].append(_Action(event.stage, kinds[event.work], event.microbatch))
    return order


def receives_first(line: list[_Action]) -> list[_Action]:
    """One rank's work with all receives posted first, in the original order. torch posts a receive
    just before its value is needed, and gloo then requests the value from a sender that is busy
    with its next work. A receive that is already posted costs nothing on the host. On a GPU it
    would block the stream from sending."""
    early = [action for action in line if action.computation_type in RECEIVES]
    return early + [action for action in line if action.computation_type not in RECEIVES]


def _split(name: str, meta: Meta, tensor: torch.Tensor, count: int) -> list[torch.Tensor]:
    """Splits rows among micro-batches; a value that already has the traced shape is passed to every
    micro-batch."""
    shape = tuple(tensor.shape)
    if tensor.dtype != meta.dtype:
        raise MismatchError(f"{name} is {tensor.dtype}, but was traced as {meta.dtype}")
    if meta.shape and shape == (meta.shape[0] * count, *meta.shape[1:]):
        return list(tensor.chunk(count))
    if shape == meta.shape:
        return [tensor] * count
    raise _too_small(name, meta, shape, count)


def _too_small(name: str, meta: Meta, shape: tuple[int, ...], count: int) -> MismatchError:
    wanted = [meta.shape[0] * count, *meta.shape[1:]] if meta.shape else []
    return MismatchError(
        f"{name} has shape {list(shape)}, but {count} micro-batches of "
        f"{list(meta.shape)} need a batch of {wanted}"
    )
