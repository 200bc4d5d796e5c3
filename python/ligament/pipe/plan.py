"""A plan: which block runs in which stage on which device, and the operations on it."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ligament.errors import InvalidError, MismatchError, UnsupportedError
from ligament.pipe import shared_plan, solver
from ligament.pipe.costs.profile import profile as fill_profile
from ligament.pipe.generate import codegen, stage_modules
from ligament.pipe.generate.layout import Layout, lay_out
from ligament.pipe.generate.stage_base import Stage
from ligament.pipe.graph import flatten_arguments
from ligament.pipe.graph.blocks import Graph
from ligament.pipe.graph.ir import Program
from ligament.pipe.graph.trace import Trace, trace
from ligament.pipe.report.report import Report, Timeline, make_report
from ligament.plural import count

if TYPE_CHECKING:
    from ligament.pipe.runtime.check import Check
    from ligament.pipe.runtime.pipeline import PlannedSchedule

FORMAT = "ligament pipe plan 1"


def pipe_model(
    model: nn.Module,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    stages: int = 4,
    method: str = "auto",
    devices: Sequence[Any] | None = None,
    depth: int | None = None,
    basic_blocks: Iterable[type | str] = (),
    recompute: bool = False,
    optimizer: str | float = "adam",
    memory_limit: Any = None,
    bandwidth: Any = None,
    balance: float | None = None,
    schedule: str = "1f1b",
    microbatches: int = 8,
    profile: str | Path | None = None,
    profile_ops: bool = True,
    seed: int = 0,
    progress: bool | None = None,
    ties: str = "sum",
    say: Callable[[str], None] | None = None,
    group: Any = None,
    distributed: bool | None = None,
    timeout: float = 600.0,
) -> Plan:
    """Partitions `model` into pipeline stages. `args` and `kwargs` are one micro-batch, as
    `forward` takes them.

    Trace, profile and partition are also functions of `ligament.pipe`. A request that cannot be
    satisfied (a stage that does not fit, more stages than blocks, a schedule that does not match
    the devices) is rejected here, with the reason.

    Under torch.distributed every rank of `group` (None: of the job) calls it with the same model
    and arguments: all trace, the first rank measures and decides, all return its plan. An error on
    one rank is raised on all. No rank waits longer than `timeout` seconds for another one to call;
    `distributed=False` plans in this process alone.
    """
    found = shared_plan.ranks_of(group, distributed, timeout)
    wanted = solver.options(
        stages=stages,
        devices=devices,
        memory_limit=memory_limit,
        bandwidth=bandwidth,
        optimizer=optimizer,
        balance=balance,
        ties=ties,
        method=method,
        schedule=schedule,
        microbatches=microbatches,
        recompute=bool(recompute),
        seed=seed,
    )
    place = _first_device(devices)

    def traced() -> Trace:
        return trace(model, args, kwargs, depth=depth, basic_blocks=basic_blocks, say=say)

    def decide(one: Trace) -> Plan:
        fill_profile(one, profile, device=place, profile_ops=profile_ops, progress=progress)
        return make_plan(one, wanted)

    if found is None:
        return decide(traced())
    return shared_plan.agree(found, traced, lambda one: _words(one, wanted), decide, Plan.from_json)


def _words(traced: Trace, wanted: solver.Options) -> dict[str, Any]:
    """What must be equal on all ranks that share a plan, apart from the number of a device."""
    text = fingerprint_text(traced.program, graph_names(traced.graph))
    text = re.sub(r"(cuda|xpu)(:|', index=)\d+", r"\1", text)
    return {"model": hashlib.sha256(text.encode()).hexdigest(), **asdict(wanted)}


def make_plan(traced: Trace, wanted: solver.Options) -> Plan:
    """A plan for a traced and profiled model."""
    return Plan(traced.graph, wanted, solver.solve(traced.graph, wanted), traced)


def _first_device(devices: Sequence[Any] | None) -> torch.device | None:
    """Where to measure: on the first device, if torch supports it."""
    if not devices or isinstance(devices[0], dict):
        return None
    try:
        return torch.device(devices[0])
    except (RuntimeError, TypeError):
        raise InvalidError(
            f"devices[0] is {devices[0]!r}, which is not a torch device: expected 'cpu', "
            "'cuda:0', ..., or {'device': any name, 'speed': 1.0, 'memory': '80G'} "
            "for a device that is not present"
        ) from None


@dataclass(slots=True)
class _Built:
    """Objects built from a trace on first use."""

    layout: Layout
    source: str
    stages: list[Stage] | None = None


class Plan:
    """Created by `pipe_model` or `Plan.load`. A plan that was loaded without its model can be
    inspected, simulated and drawn, but not run or written."""

    def __init__(
        self, graph: Graph, options: solver.Options, answer: dict[str, Any], traced: Trace | None
    ) -> None:
        self.graph = graph
        self.options = options
        self.answer = answer
        self.trace = traced
        self.model_name = type(traced.program.model).__name__ if traced else "model"
        self._built: _Built | None = None
        for node, stage, device in zip(graph.nodes, answer["stage"], answer["device"], strict=True):
            node.stage, node.device = stage, device

    def __repr__(self) -> str:
        a = self.answer
        gap = a["bottleneck_ms"] / a["lower_bound_ms"] - 1 if a["lower_bound_ms"] else 0.0
        return (
            f"Plan({self.model_name}: {count(self.stage_count, 'stage')} on "
            f"{count(self.device_count, 'device')}, "
            f"{a['method']}, bottleneck {a['bottleneck_ms']:.3f} ms ({gap:.1%} over the bound), "
            f"cut {a['cut_bytes']:.0f} bytes)"
        )

    def _repr_html_(self) -> str:
        """The drawing, for notebooks."""
        from ligament.pipe.report.draw import picture

        return picture(self)

    @property
    def stage_count(self) -> int:
        """The number of stages."""
        return len(self.answer["stage_device"])

    @property
    def device_count(self) -> int:
        """The number of devices."""
        return len(self.answer["device_ms"])

    @property
    def device_names(self) -> list[str]:
        """The device of each stage, for reports and written files."""
        names = self.options.device_names or [f"device {d}" for d in range(self.device_count)]
        return [names[d] for d in self.answer["stage_device"]]

    @property
    def program(self) -> Program:
        """The traced model."""
        if self.trace is None:
            raise UnsupportedError(
                "this plan was loaded without its model (pass the model and a sample to Plan.load)"
            )
        return self.trace.program

    @property
    def layout(self) -> Layout:
        """What each stage contains, receives and passes on."""
        return self._build().layout

    @property
    def stages(self) -> list[Stage]:
        """The stages as modules on the model's own parameters."""
        built = self._build()
        if built.stages is None:
            built.stages = stage_modules.build(self.program, stage_modules.load(built.source))
        return built.stages

    def stages_of(self, rank: int) -> list[Stage]:
        """The stages of one device."""
        if not 0 <= rank < self.device_count:
            raise InvalidError(f"no device {rank}: the plan has {self.device_count} devices")
        return [
            s for s, d in zip(self.stages, self.answer["stage_device"], strict=True) if d == rank
        ]

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Runs all stages in this process, one after the other, with the arguments and results of
        the model."""
        result = stage_modules.run(self.stages, self.bind(args, kwargs))
        return flatten_arguments.unflatten(self.program.output_shape, result)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """The arguments of the first stage, checked against those of the trace."""
        given = flatten_arguments.flatten((args, kwargs))
        flatten_arguments.require_same(self.program.input_shape, given.shape)
        for (name, meta), tensor in zip(self.program.inputs.items(), given.tensors, strict=True):
            if tuple(tensor.shape) != meta.shape or tensor.dtype != meta.dtype:
                raise MismatchError(
                    f"{name} is {tensor.dtype} {list(tensor.shape)}, but was traced as "
                    f"{meta.dtype} {list(meta.shape)} (a call takes one micro-batch)"
                )
        return dict(zip(self.program.inputs, given.tensors, strict=True))

    def report(self) -> Report:
        """Bottleneck, cut, memory, bounds and gap, and which schedule runs it; printing it shows a
        table."""
        return make_report(self)

    def simulate(self, schedule: str | None = None, microbatches: int | None = None) -> Timeline:
        """Simulates one training step."""
        schedule = schedule or self.options.schedule
        count = self.options.microbatches if microbatches is None else microbatches
        made = solver.timeline(self.answer["stages"], schedule, count)
        return Timeline.make(schedule, count, made)

    def source(self) -> str:
        """The stages as Python source."""
        return self._build().source

    def write(self, path: str | Path) -> Path:
        """Writes the stages as a Python file that imports only torch."""
        target = Path(path)
        target.write_text(self.source(), "utf-8")
        return target

    def draw(self, path: str | Path, **options: Any) -> Path:
        """Draws the plan: `.svg` a picture, `.html` a self-contained page."""
        from ligament.pipe.report.draw import draw

        return draw(self, Path(path), **options)

    def check(self, seed: int = 0, *, exact: bool = True) -> Check:
        """Compares the stages with the original, outputs and gradients, bit for bit; raises
        MismatchError. `exact=False` accepts gradients that differ by rounding, because the model
        sums in a different order while it is traced, and lists them in `rounded`."""
        from ligament.pipe.runtime.check import check

        return check(self, seed, exact)

    def pipeline(
        self,
        group: Any = None,
        loss_fn: Callable[..., torch.Tensor] | None = None,
        device: Any = None,
        **options: Any,
    ) -> PlannedSchedule:
        """The schedule for this rank, on torch.distributed; every rank of the group calls it."""
        from ligament.pipe.runtime.pipeline import pipeline

        return pipeline(self, group, loss_fn, device, **options)

    def save(self, path: str | Path) -> Path:
        """Writes the plan as JSON."""
        target = Path(path)
        target.write_text(json.dumps(self.as_json(), indent=1) + "\n", "utf-8")
        return target

    def as_json(self) -> dict[str, Any]:
        """The object that `save` writes."""
        return {
            "format": FORMAT,
            "model": {"name": self.model_name, "fingerprint": self._fingerprint()},
            "depth": self.trace.depth if self.trace else None,
            "basic_blocks": list(self.trace.basic_blocks) if self.trace else [],
            "options": asdict(self.options),
            "graph": self.graph.as_json(),
            "stage_device": self.answer["stage_device"],
            "method": self.answer["method"],
        }

    @staticmethod
    def load(
        path: str | Path,
        model: nn.Module | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Plan:
        """Reads a plan written by `save`. With the model and a sample it can be run; they are
        traced again and must match the plan."""
        data = _read(Path(path))
        traced = None
        if model is not None:
            traced = trace(
                model, args, kwargs, depth=data["depth"], basic_blocks=data["basic_blocks"]
            )
            found = fingerprint(traced.program, graph_names(traced.graph))
            if found != data["model"]["fingerprint"]:
                raise MismatchError(
                    f"{path} is a plan of another model: it was made for "
                    f"{data['model']['name']}, whose operations or shapes differ from those of "
                    f"this {type(model).__name__}"
                )
        return Plan.from_json(data, traced, path)

    @staticmethod
    def from_json(data: dict[str, Any], traced: Trace | None, path: str | Path = "plan") -> Plan:
        """The plan of an object from `as_json`; with the trace of its model it can be run."""
        wanted = _options(data["options"], path)
        graph = Graph.from_json(data["graph"])
        if traced is not None:
            traced.graph = graph
        stage = [node.stage for node in graph.nodes]
        answer = solver.judge(
            graph, wanted, _indexes(stage, path), _indexes(data["stage_device"], path)
        )
        answer["method"] = str(data["method"])
        plan = Plan(graph, wanted, answer, traced)
        plan.model_name = str(data["model"]["name"])
        return plan

    def _fingerprint(self) -> str:
        return fingerprint(self.program, graph_names(self.graph)) if self.trace else ""

    def _build(self) -> _Built:
        if self._built is None:
            blocks = self.answer["stage"]
            layout = lay_out(self.program, blocks, self.answer["stage_device"])
            text = codegen.generate(self.program, layout, self.device_names, self._summary())
            self._built = _Built(layout, text)
        return self._built

    def _summary(self) -> list[str]:
        a = self.answer
        return [
            f"made by Ligament: method {a['method']}, seed {self.options.seed}, "
            f"schedule {self.options.schedule} with "
            f"{count(self.options.microbatches, 'micro-batch', 'micro-batches')}",
            f"stages on devices: {', '.join(str(d) for d in a['stage_device'])}",
        ]


def fingerprint(program: Program, names: list[str]) -> str:
    """A digest of operations, shapes, state and blocks, which must be equal for a plan to match."""
    return hashlib.sha256(fingerprint_text(program, names).encode()).hexdigest()


def fingerprint_text(program: Program, names: list[str]) -> str:
    """The input of `fingerprint`."""
    words: list[Any] = [
        program.training,
        names,
        [(n, m.shape, str(m.dtype)) for n, m in program.inputs.items()],
    ]
    words += [
        (op.name, str(op.target), repr(op.args), repr(op.kwargs), op.context) for op in program.ops
    ]
    words += [
        (s.names, tuple(s.tensor.shape), str(s.tensor.dtype)) for s in program.states.values()
    ]
    return repr(words)


def graph_names(graph: Graph) -> list[str]:
    """The names of all nodes."""
    return [node.name for node in graph.nodes]


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InvalidError(f"{path} is not a plan: {error}") from None
    wanted = {
        "format",
        "model",
        "depth",
        "basic_blocks",
        "options",
        "graph",
        "stage_device",
        "method",
    }
    if not isinstance(data, dict) or data.get("format") != FORMAT or wanted - data.keys():
        raise InvalidError(f"{path} is not a plan of this version")
    return data


def _options(data: Any, path: str | Path) -> solver.Options:
    """A file is not trusted: every option must have the type of its default."""
    known = {f.name: f.default for f in fields(solver.Options)}
    if not isinstance(data, dict) or data.keys() - known.keys():
        raise InvalidError(f"{path} contains options that this version does not support")
    for key, value in data.items():
        if not _suits(known[key], value):
            raise InvalidError(f"{path}: invalid value of option {key}: {value!r}")
    if data.get("ties", "sum") not in solver.TIES:
        raise InvalidError(f"{path}: invalid value of option ties: {data['ties']!r}")
    return solver.Options(**data)


def _suits(default: Any, value: Any) -> bool:
    if default is None:
        kinds = (int, float, str)
        return value is None or (
            isinstance(value, list) and all(isinstance(v, kinds) and v == v for v in value)
        )
    if isinstance(default, (bool, str)):
        return type(value) is type(default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return False
    return isinstance(default, float) or (isinstance(value, int) and 0 <= value < 2**63)


def _indexes(values: Any, path: str | Path) -> list[int]:
    good = isinstance(values, list) and all(isinstance(v, int) and 0 <= v < 2**31 for v in values)
    if not good:
        raise InvalidError(f"{path}: a stage or device is not an index")
    return list(values)
