"""Reports of a plan."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ligament.plural import count

if TYPE_CHECKING:
    from ligament.pipe.plan import Plan

WORK = ("forward", "backward", "weight")


class Event(NamedTuple):
    """One piece of work on a device. `work` is forward, backward or weight."""

    device: int
    stage: int
    microbatch: int
    work: str
    begin_ms: float
    end_ms: float


@dataclass(slots=True)
class Timeline:
    """A simulated step."""

    schedule: str
    microbatches: int
    step_ms: float
    bubble: float
    device_busy_ms: list[float]
    device_bytes: list[float]
    events: list[Event] = field(repr=False)

    @staticmethod
    def make(schedule: str, microbatches: int, made: dict[str, Any]) -> Timeline:
        """From the result of the C library."""
        events = [Event(d, s, m, WORK[w], b, e) for d, s, m, w, b, e in made["events"]]
        return Timeline(
            schedule,
            microbatches,
            made["step_ms"],
            made["bubble"],
            made["device_busy_ms"],
            made["device_bytes"],
            events,
        )


@dataclass(slots=True)
class StageReport:
    """One line of the table."""

    stage: int
    device: str
    blocks: int
    first: str
    last: str
    forward_ms: float
    backward_ms: float
    send_bytes: float
    fixed_bytes: float
    flight_bytes: float


@dataclass(slots=True)
class Report:
    """The figures of a plan. Times in ms, memory in bytes."""

    model: str
    method: str
    schedule: str
    microbatches: int
    bottleneck_ms: float
    lower_bound_ms: float
    gap: float
    optimal: bool
    cut_bytes: float
    relay_bytes: float
    step_ms: float
    step_bound_ms: float
    step_gap: float
    bubble: float
    memory_bytes: list[float]
    load_ms: list[float]
    tied: list[str]
    opaque: dict[str, str]
    runs: str
    stages: list[StageReport]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.model}: {count(len(self.stages), 'stage')} on "
            f"{count(len(self.memory_bytes), 'device')}, "
            f"method {self.method}",
            f"bottleneck   {self.bottleneck_ms:.3f} ms, bound {self.lower_bound_ms:.3f} ms, "
            f"gap {self.gap:.2%}" + (" (proven optimal)" if self.optimal else ""),
            f"step         {self.step_ms:.3f} ms with {self.runs}, "
            f"bound {self.step_bound_ms:.3f} ms, gap {self.step_gap:.2%}, bubble {self.bubble:.1%}",
            f"cut          {amount(self.cut_bytes)} a micro-batch, "
            f"{amount(self.relay_bytes)} with relays",
            f"memory       {', '.join(amount(b) for b in self.memory_bytes)}",
        ]
        lines += [f"tied         {name}: gradients are summed" for name in self.tied]
        lines += [
            f"opaque       {path or 'the whole model'}: {why}" for path, why in self.opaque.items()
        ]
        lines.append(
            f"{'stage':>5} {'device':<12} {'blocks':>6} {'fwd ms':>9} {'bwd ms':>9} {'sends':>9}"
            "  from .. to"
        )
        for s in self.stages:
            lines.append(
                f"{s.stage:>5} {s.device:<12} {s.blocks:>6} {s.forward_ms:>9.3f} "
                f"{s.backward_ms:>9.3f} {amount(s.send_bytes):>9}  {s.first} .. {s.last}"
            )
        return "\n".join(lines)


def make_report(plan: Plan) -> Report:
    """Gathers the figures."""
    a, folded = plan.answer, plan.answer["stages"]
    rows = []
    for stage, device in enumerate(plan.device_names):
        nodes = [
            n for n in plan.graph.nodes if n.stage == stage and n.kind not in ("input", "output")
        ]
        rows.append(
            StageReport(
                stage,
                device,
                len(nodes),
                nodes[0].name if nodes else "-",
                nodes[-1].name if nodes else "-",
                *(
                    folded[k][stage]
                    for k in (
                        "forward_ms",
                        "backward_ms",
                        "send_bytes",
                        "fixed_bytes",
                        "flight_bytes",
                    )
                ),
            )
        )
    return Report(
        model=plan.model_name,
        method=a["method"],
        schedule=plan.options.schedule,
        microbatches=plan.options.microbatches,
        bottleneck_ms=a["bottleneck_ms"],
        lower_bound_ms=a["lower_bound_ms"],
        gap=_gap(a["bottleneck_ms"], a["lower_bound_ms"]),
        optimal=a["optimal"],
        cut_bytes=a["cut_bytes"],
        relay_bytes=a["relay_bytes"],
        step_ms=a["step_ms"],
        step_bound_ms=a["step_bound_ms"],
        step_gap=_gap(a["step_ms"], a["step_bound_ms"]),
        bubble=a["bubble"],
        memory_bytes=a["device_bytes"],
        load_ms=a["device_ms"],
        tied=[tie.name for tie in plan.graph.ties],
        opaque=dict(plan.trace.program.opaque) if plan.trace else {},
        runs=f"{plan.options.schedule}, "
        f"{count(plan.options.microbatches, 'micro-batch', 'micro-batches')}",
        stages=rows,
    )


def _gap(value: float, bound: float) -> float:
    return value / bound - 1 if bound else 0.0


def amount(count: float) -> str:
    """Bytes in human-readable form."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
