"""Pictures: well-formed, complete, and alone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch
from ligament.errors import InvalidError
from ligament.pipe import Plan, pipe_model
from ligament.pipe.report import svg
from pipe_models import make
from torch import nn

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return pipe_model(*make("gpt2"), stages=3, profile="flops", memory_limit="1G")


def test_heights_are_proportional_to_time(plan: Plan) -> None:
    graph = svg.graph_panel(plan, 800.0)
    found = ET.fromstring(f"<g>{''.join(graph.parts)}</g>")
    heights = {int(e.get("data-node", "")): float(e.get("height", "")) for e in found.iter("rect")}
    times = {i: n.forward_ms + n.backward_ms for i, n in enumerate(plan.graph.nodes)}
    scale = sum(heights.values()) / sum(times.values())
    assert all(abs(heights[i] - scale * times[i]) <= 0.02 for i in times)
    columns = [0.0] * plan.stage_count
    for i, node in enumerate(plan.graph.nodes):
        columns[node.stage] += heights[i]
    assert abs(max(columns) - svg.GRAPH_HEIGHT) < 1


def test_a_notebook_shows_the_picture(plan: Plan) -> None:
    assert ET.fromstring(plan._repr_html_()).tag == f"{SVG}svg"


def test_colours_do_not_need_css_variables() -> None:
    """librsvg, Inkscape and CairoSVG ignore declarations with var() and painted all black."""
    light = svg.STYLE.split("@media")[0]
    properties = [one.split(":")[0].strip() for one in re.split("[{};]", light)]
    for number, one in enumerate(re.split("[{};]", light)):
        if "var(" in one:
            assert properties[number - 1] == properties[number], one


def test_svg_shows_every_block_and_event(plan: Plan, tmp_path: Path) -> None:
    root = ET.parse(plan.draw(tmp_path / "plan.svg")).getroot()
    rects = [e for e in root.iter(SVG + "rect")]
    blocks = [e for e in rects if (e.get("class") or "").startswith("block")]
    assert len(blocks) == len(plan.graph.nodes)
    assert len([e for e in rects if e.get("class") == "event"]) == len(plan.simulate().events)
    words = "".join(e.text or "" for e in root.iter(SVG + "title"))
    assert "lm_head" in words and "backward of micro-batch 7" in words and "limit 1 GB" in words
    for e in rects:
        assert all(float(e.get(k, "0").rstrip("%")) >= 0 for k in ("width", "height"))


def test_page_stands_alone(plan: Plan, tmp_path: Path) -> None:
    page = plan.draw(tmp_path / "plan.html").read_text()
    links = re.findall(r'(?:src|href)\s*=|url\(|@import|https?://[^"\s]+', page)
    assert set(links) <= {"http://www.w3.org/2000/svg"}
    blocks = json.loads(re.search(r'id="blocks">(.*?)</script>', page, re.S)[1])
    assert len(blocks) == len(plan.graph.nodes)
    assert page.count('id="line') >= 3, "one timeline for each schedule that can run"


def test_names_cannot_break_out(tmp_path: Path) -> None:
    model = nn.Sequential()
    model.add_module("</script><b>&x", nn.Linear(8, 8))
    model.add_module("last", nn.Linear(8, 8))
    plan = pipe_model(model, (torch.randn(2, 8),), stages=2, profile="flops")
    page = plan.draw(tmp_path / "plan.html").read_text()
    assert page.count("</script>") == 2 and "<b>&x" not in page
    ET.parse(plan.draw(tmp_path / "plan.svg"))


def test_other_endings_are_refused(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="expected .svg or .html"):
        plan.draw(tmp_path / "plan.png")


@pytest.mark.soak
@pytest.mark.skipif(not shutil.which("chromium"), reason="no browser here")
def test_a_browser_shows_it(plan: Plan, tmp_path: Path) -> None:
    """The page's script runs: hovering a block fills the card."""
    page = plan.draw(tmp_path / "plan.html")
    text = page.read_text()
    hover = (
        "<script>const all = document.querySelectorAll('[data-node]');"
        "all[5].dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));"
        "document.querySelectorAll('button')[1].click();</script></body>"
    )
    page.write_text(text.replace("</body>", hover))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/home"]
    done = subprocess.run(
        ["chromium", *options, "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    card = re.search(r'<div id="card"[^>]*>(.*?)</div>', done.stdout, re.S)
    assert card and "forward" in card[1] and "stage" in card[1]
    assert re.search(r'id="line0" hidden=""', done.stdout)
