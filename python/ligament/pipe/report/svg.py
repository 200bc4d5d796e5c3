"""Pictures of a plan as SVG: blocks by stage, load and memory, the timeline. All text is
escaped."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from ligament.pipe.graph.blocks import Node
from ligament.pipe.report.report import Timeline, amount
from ligament.plural import count

if TYPE_CHECKING:
    from ligament.pipe.plan import Plan

# Programs without CSS variables (librsvg, Inkscape, CairoSVG) use the colour before each of them.
STYLE = """
.lig { font: 12px system-ui, sans-serif; --ink: #1c2430; --soft: #667085; --line: #d0d5dd;
  --back: #ffffff; }
.lig text { fill: #1c2430; fill: var(--ink); }
.lig .soft { fill: #667085; fill: var(--soft); }
.lig .head { font-weight: 600; font-size: 14px; }
.lig .small { font-size: 10px; }
.lig .frame { fill: none; stroke: #d0d5dd; stroke: var(--line); }
.lig .back { fill: #ffffff; fill: var(--back); }
.lig .block { stroke: #ffffff; stroke: var(--back); stroke-width: .6; }
.lig .thin { stroke: none; }
.lig .block:hover, .lig .event:hover { stroke: #1c2430; stroke: var(--ink); }
.lig .flow { fill: none; stroke: #667085; stroke: var(--soft); opacity: .35; }
.lig .flow:hover { opacity: 1; stroke: #d92d20; }
.lig .bound { stroke: #d92d20; stroke-dasharray: 4 3; }
.lig .rail { fill: #d0d5dd; fill: var(--line); opacity: .45; }
.lig .event { stroke: #ffffff; stroke: var(--back); stroke-width: .4; }
.lig .mark { font-size: 9px; pointer-events: none; }
.lig .onbar { fill: #10151d; pointer-events: none; }
@media (prefers-color-scheme: dark) {
  .lig { --ink: #e6e9ef; --soft: #98a2b3; --line: #344054; --back: #101828; }
}
"""

GRAPH_HEIGHT = 420
LANE = 30


def colour(stage: int, shade: int = 62, strength: int = 60) -> str:
    """Neighbouring stages get clearly different hues."""
    return f"hsl({(stage * 137.5 + 205) % 360:.0f} {strength}% {shade}%)"


def tag(name: str, body: str = "", **attributes: object) -> str:
    """An element; `class_` and `data_x` become class and data-x."""
    words = []
    for key, value in attributes.items():
        shown = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        words.append(f' {key.rstrip("_").replace("_", "-")}="{escape(shown)}"')
    return f"<{name}{''.join(words)}>{body}</{name}>" if body else f"<{name}{''.join(words)}/>"


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> str:
    """A line of text."""
    return tag("text", escape(words), x=x, y=y, class_=class_, text_anchor=anchor)


def title(words: str) -> str:
    """The text that a browser shows on hovering."""
    return f"<title>{escape(words)}</title>"


def describe(node: Node) -> str:
    """A block's profile, one value per line."""
    return "\n".join(
        [
            node.name,
            f"{node.kind}  {node.scope}",
            f"forward {node.forward_ms:.4g} ms, backward {node.backward_ms:.4g} ms",
            f"forward memory {amount(node.forward_memory)}, "
            f"backward memory {amount(node.backward_memory)}",
            f"parameters {amount(node.parameter_bytes)}, buffers {amount(node.buffer_bytes)}",
            f"input {amount(node.input_bytes)}, output {amount(node.output_bytes)}, "
            f"kept for backward {amount(node.activation_bytes)}",
            f"stage {node.stage} on device {node.device}",
        ]
    )


class Panel:
    """A part of the picture: elements relative to its origin, and its height."""

    def __init__(self, heading: str) -> None:
        self.parts = [text(0, 14, heading, "head")]
        self.height = 24.0

    def add(self, *elements: str) -> None:
        """Adds elements."""
        self.parts.extend(elements)

    def at(self, x: float, y: float) -> str:
        """The panel, moved to a position."""
        return f'<g transform="translate({x:.1f} {y:.1f})">{"".join(self.parts)}</g>'


def graph_panel(plan: Plan, width: float) -> Panel:
    """One column per stage; a block's height is its time, a curve is a value that crosses a stage
    boundary."""
    panel = Panel("Blocks by stage (height: time; curves: values that cross a stage boundary)")
    count = plan.stage_count
    step = width / count
    bar = min(step * 0.62, 220.0)
    columns: list[list[Node]] = [[] for _ in range(count)]
    for node in plan.graph.nodes:
        columns[node.stage].append(node)
    loads = [sum(n.forward_ms + n.backward_ms for n in column) for column in columns]
    # Without any times all blocks have the same height.
    equal = 0.0 if any(loads) else GRAPH_HEIGHT / max(len(c) for c in columns)
    scale = GRAPH_HEIGHT / (max(loads) or 1.0)
    bottom = 0.0
    place: dict[int, tuple[float, float, float]] = {}
    blocks: list[str] = []
    top = panel.height + 20
    index_of = {id(node): i for i, node in enumerate(plan.graph.nodes)}
    for stage, column in enumerate(columns):
        x, y = stage * step, top
        panel.add(text(x, top - 8, f"stage {stage}", ""))
        panel.add(text(x + bar, top - 8, f"{loads[stage]:.4g} ms", "soft small", "end"))
        for node in column:
            height = equal + scale * (node.forward_ms + node.backward_ms)
            blocks.append(_block(node, index_of[id(node)], x, y, bar, height))
            place[index_of[id(node)]] = (x, y + height / 2, x + bar)
            y += height
        bottom = max(bottom, y)
    panel.add(*_flows(plan, place), *blocks)
    panel.height = bottom + 16
    return panel


def _block(node: Node, index: int, x: float, y: float, width: float, height: float) -> str:
    shades = {"layer": 62, "op": 74, "opaque": 45, "input": 85, "output": 85}
    box = tag(
        "rect",
        title(describe(node)),
        class_="block" if height > 2 else "block thin",
        data_node=index,
        x=x,
        y=y,
        width=width,
        height=height,
        rx=min(2.0, height / 2),
        fill=colour(node.stage, shades.get(node.kind, 62)),
    )
    if height < 11:
        return box
    room = int(width / 6)
    name = node.name if len(node.name) <= room else "…" + node.name[-room + 1 :]
    return box + text(x + 4, y + height / 2 + 3.5, name, "small onbar")


def _flows(plan: Plan, place: dict[int, tuple[float, float, float]]) -> list[str]:
    nodes, found = plan.graph.nodes, []
    for edge in plan.graph.edges:
        if nodes[edge.source].stage == nodes[edge.target].stage or not edge.value:
            continue
        _, y0, x0 = place[edge.source]
        x1, y1, _ = place[edge.target]
        middle = (x0 + x1) / 2
        wide = max(0.7, math.log10(edge.bytes + 1) - 3)
        ends = f"{nodes[edge.source].name} → {nodes[edge.target].name}"
        words = f"{edge.value}: {amount(edge.bytes)}\n{ends}"
        path = f"M{x0:.1f} {y0:.1f}C{middle:.1f} {y0:.1f} {middle:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
        found.append(tag("path", title(words), class_="flow", d=path, stroke_width=wide))
    return found


def bars_panel(plan: Plan, width: float) -> Panel:
    """Load compared with the bound, and memory with the limit, for each device."""
    panel = Panel("Devices")
    a = plan.answer
    half = width / 2 - 20
    limits = plan.options.memory or [0.0] * plan.device_count
    most_ms = max([*a["device_ms"], a["lower_bound_ms"]]) or 1.0
    most_bytes = max([*a["device_bytes"], *limits]) or 1.0
    y = panel.height
    names = plan.options.device_names or [f"device {d}" for d in range(plan.device_count)]
    for device in range(plan.device_count):
        stages = [s for s, d in enumerate(a["stage_device"]) if d == device]
        shown = f"{names[device]}: stage {', '.join(map(str, stages))}"
        panel.add(text(0, y + 13, shown if len(shown) < 30 else shown[:29] + "…", "small"))
        load, memory = a["device_ms"][device], a["device_bytes"][device]
        panel.add(_bar(150, y, half - 150, load / most_ms, stages, f"load {load:.4g} ms"))
        panel.add(_bar(half + 40, y, half, memory / most_bytes, stages, f"memory {amount(memory)}"))
        if limits[device]:
            x = half + 40 + half * limits[device] / most_bytes
            words = title(f"limit {amount(limits[device])}")
            panel.add(tag("line", words, class_="bound", x1=x, x2=x, y1=y, y2=y + 18))
        y += 24
    x = 150 + (half - 150) * a["lower_bound_ms"] / most_ms
    words = title(f"lower bound {a['lower_bound_ms']:.4g} ms")
    panel.add(tag("line", words, class_="bound", x1=x, x2=x, y1=panel.height - 3, y2=y))
    panel.height = y + 12
    return panel


def _bar(x: float, y: float, width: float, share: float, stages: list[int], words: str) -> str:
    fill = colour(stages[0]) if stages else "none"
    return (
        tag("rect", class_="rail", x=x, y=y, width=width, height=18.0, rx=2)
        + tag(
            "rect",
            title(words),
            x=x,
            y=y,
            width=max(width * share, 0.5),
            height=18.0,
            rx=2,
            fill=fill,
        )
        + text(x + 5, y + 13, words, "small onbar")
    )


def timeline_panel(line: Timeline, width: float) -> Panel:
    """One lane per device; dark is backward, pale is the part of it that can be deferred."""
    panel = Panel(
        f"{line.schedule}, {count(line.microbatches, 'micro-batch', 'micro-batches')}: "
        f"{line.step_ms:.4g} ms a step, "
        f"bubble {line.bubble:.1%}"
    )
    left, top = 70.0, panel.height
    scale = (width - left) / (line.step_ms or 1.0)
    for device in range(len(line.device_busy_ms)):
        y = top + device * LANE
        panel.add(text(0, y + 16, f"device {device}", "small"))
        panel.add(tag("rect", class_="rail", x=left, y=y, width=width - left, height=LANE - 6.0))
    shades = {"forward": 68, "backward": 48, "weight": 80}
    for event in line.events:
        x, wide = left + event.begin_ms * scale, (event.end_ms - event.begin_ms) * scale
        y = top + event.device * LANE
        words = (
            f"{event.work} of micro-batch {event.microbatch}, stage {event.stage}\n"
            f"{event.begin_ms:.4g} .. {event.end_ms:.4g} ms on device {event.device}"
        )
        panel.add(
            tag(
                "rect",
                title(words),
                class_="event",
                x=x,
                y=y,
                width=max(wide, 0.3),
                height=LANE - 6.0,
                fill=colour(event.stage, shades[event.work]),
            )
        )
        if wide > 9:
            panel.add(text(x + wide / 2, y + 15, str(event.microbatch), "mark onbar", "middle"))
    panel.height = top + len(line.device_busy_ms) * LANE + 10
    return panel


def picture(panels: list[Panel], width: float, label: str) -> str:
    """All panels, stacked vertically in one SVG document."""
    margin, y = 16.0, 12.0
    parts = []
    for panel in panels:
        parts.append(panel.at(margin, y))
        y += panel.height + 14
    total = width + 2 * margin
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lig" role="img" '
        f'aria-label="{escape(label)}" '
        f'viewBox="0 0 {total:.0f} {y:.0f}" width="{total:.0f}" height="{y:.0f}">'
        f"<style>{STYLE}</style>"
        f'<rect class="back" width="100%" height="100%"/>{"".join(parts)}</svg>'
    )
