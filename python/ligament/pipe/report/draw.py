"""Draws a plan: `.svg`, or `.html` for a self-contained page with more information."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ligament import _core
from ligament.errors import InvalidError, UnsupportedError
from ligament.pipe.report import svg
from ligament.pipe.report.report import Timeline, amount
from ligament.plural import count

if TYPE_CHECKING:
    from ligament.pipe.plan import Plan

WIDTH = 1160.0

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}
:root {{ color-scheme: light dark; }}
body {{ margin: 0 auto; max-width: 1220px; padding: 16px; font: 14px system-ui, sans-serif;
  background: light-dark(#ffffff, #101828); color: light-dark(#1c2430, #e6e9ef); }}
h1 {{ font-size: 20px; margin: 0 0 8px; }}
table {{ border-collapse: collapse; margin: 8px 0 16px; }}
td, th {{ padding: 2px 14px 2px 0; text-align: left; white-space: nowrap; }}
th {{ font-weight: 500; color: light-dark(#667085, #98a2b3); }} td.n {{ text-align: right; }}
.wide {{ overflow-x: auto; }} svg {{ max-width: 100%; height: auto; }}
#card {{ position: fixed; right: 16px; bottom: 16px; max-width: 460px; padding: 10px 14px;
  border-radius: 8px; background: light-dark(#f2f4f7, #1d2939); box-shadow: 0 2px 12px #0004;
  white-space: pre-wrap; display: none;
  overflow-wrap: anywhere; }}
button {{ margin: 0 6px 8px 0; padding: 3px 10px; border-radius: 6px; border: 1px solid #98a2b3;
  background: none; color: inherit; font: inherit; cursor: pointer; }}
button[aria-pressed=true] {{ background: #98a2b344; }}
</style></head><body>
<h1>{title}</h1>
{figures}
<div class="wide">{graph}</div>
<div role="group" aria-label="schedule">{buttons}</div>
{lines}
<div class="wide">{stages}</div>
<div id="card" role="status"></div>
<script type="application/json" id="blocks">{blocks}</script>
<script>
const blocks = JSON.parse(document.getElementById("blocks").textContent);
const card = document.getElementById("card");
document.addEventListener("pointerover", (event) => {{
  const node = event.target.dataset && event.target.dataset.node;
  if (node === undefined) {{ card.style.display = "none"; return; }}
  card.textContent = blocks[node];
  card.style.display = "block";
}});
for (const button of document.querySelectorAll("button")) button.onclick = () => {{
  for (const other of document.querySelectorAll("button")) {{
    other.setAttribute("aria-pressed", String(other === button));
    document.getElementById(other.dataset.line).hidden = other !== button;
  }}
}};
</script></body></html>
"""


def draw(plan: Plan, path: Path, width: float = WIDTH) -> Path:
    """Writes the drawing; the suffix of `path` determines the format."""
    if path.suffix == ".svg":
        made = picture(plan, width)
    elif path.suffix in (".html", ".htm"):
        made = page(plan, width)
    else:
        raise InvalidError(f"{path.name}: unsupported suffix (expected .svg or .html)")
    path.write_text(made, "utf-8")
    return path


def picture(plan: Plan, width: float = WIDTH) -> str:
    """One SVG document with everything."""
    panels = [
        _heading(plan),
        svg.graph_panel(plan, width),
        svg.bars_panel(plan, width),
        svg.timeline_panel(plan.simulate(), width),
    ]
    return svg.picture(panels, width, _title(plan))


def page(plan: Plan, width: float = WIDTH) -> str:
    """A page without any outside reference."""
    graph = svg.picture(
        [svg.graph_panel(plan, width), svg.bars_panel(plan, width)], width, "blocks by stage"
    )
    lines = timelines(plan)
    buttons, parts = [], []
    for position, line in enumerate(lines):
        pressed = "true" if position == 0 else "false"
        buttons.append(
            f'<button data-line="line{position}" aria-pressed="{pressed}">{escape(line.schedule)}: '
            f"{line.step_ms:.4g} ms</button>"
        )
        drawn = svg.picture(
            [svg.timeline_panel(line, width)], width, f"timeline of {line.schedule}"
        )
        hidden = "" if position == 0 else " hidden"
        parts.append(f'<div class="wide" id="line{position}"{hidden}>{drawn}</div>')
    blocks = json.dumps([svg.describe(node) for node in plan.graph.nodes])
    return PAGE.format(
        title=escape(_title(plan)),
        style=svg.STYLE,
        figures=_figures(plan),
        graph=graph,
        buttons="".join(buttons),
        lines="".join(parts),
        stages=_stages(plan),
        blocks=blocks.replace("<", "\\u003c"),
    )


def timelines(plan: Plan) -> list[Timeline]:
    """The plan's own schedule first, then the others that its arrangement allows."""
    _, names = _core.pipe_names()
    found = [plan.simulate()]
    for name in names:
        if name == plan.options.schedule:
            continue
        try:
            found.append(plan.simulate(name))
        except UnsupportedError:
            continue
    return found


def _title(plan: Plan) -> str:
    stages, devices = count(plan.stage_count, "stage"), count(plan.device_count, "device")
    return f"{plan.model_name} in {stages} on {devices}"


def _summary(plan: Plan) -> list[tuple[str, str]]:
    r = plan.report()
    return [
        ("method", r.method + (", proven optimal" if r.optimal else "")),
        (
            "bottleneck",
            f"{r.bottleneck_ms:.4g} ms, bound {r.lower_bound_ms:.4g} ms, gap {r.gap:.2%}",
        ),
        (
            "step",
            f"{r.step_ms:.4g} ms with {r.runs}; bound {r.step_bound_ms:.4g} ms, "
            f"bubble {r.bubble:.1%}",
        ),
        ("cut", f"{amount(r.cut_bytes)} a micro-batch, {amount(r.relay_bytes)} with relays"),
        *((("tied", ", ".join(r.tied)),) if r.tied else ()),
        *((("opaque", ", ".join(p or "the whole model" for p in r.opaque)),) if r.opaque else ()),
    ]


def _heading(plan: Plan) -> svg.Panel:
    panel = svg.Panel(_title(plan))
    for label, value in _summary(plan):
        panel.add(
            svg.text(0, panel.height + 10, label, "soft"), svg.text(90, panel.height + 10, value)
        )
        panel.height += 17
    return panel


def _figures(plan: Plan) -> str:
    rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in _summary(plan))
    return f"<table>{rows}</table>"


def _stages(plan: Plan) -> str:
    head = (
        "stage",
        "device",
        "blocks",
        "forward",
        "backward",
        "sends",
        "state",
        "in flight",
        "from",
        "to",
    )
    rows = ["<tr>" + "".join(f"<th>{h}</th>" for h in head) + "</tr>"]
    for s in plan.report().stages:
        cells: list[Any] = [
            s.stage,
            s.device,
            s.blocks,
            f"{s.forward_ms:.4g} ms",
            f"{s.backward_ms:.4g} ms",
        ]
        cells += [
            amount(s.send_bytes),
            amount(s.fixed_bytes),
            amount(s.flight_bytes),
            s.first,
            s.last,
        ]
        rows.append("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in cells) + "</tr>")
    return f"<table>{''.join(rows)}</table>"
