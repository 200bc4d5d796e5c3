"""A graph in Graphviz's language. The program `dot` renders it; Graphviz's Python package is not
needed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ligament.errors import UnsupportedError

if TYPE_CHECKING:
    from ligament.compat.autopipe.autopipe.model_profiling.control_flow_graph import Graph, Node

COLORS = ("lightgrey", "palegreen", "salmon", "khaki", "orange", "tan", "plum", "pink", "cyan")


class Drawing:
    """Lines of a digraph, with the calls of graphviz.Digraph that scripts use."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.format = "pdf"

    @property
    def source(self) -> str:
        """The text."""
        return "\n".join(["digraph {", *(f"\t{line}" for line in self.lines), "}", ""])

    def __str__(self) -> str:
        return self.source

    def save(self, filename: str = "Digraph.gv", directory: str | None = None) -> str:
        """Writes the text and returns the path."""
        path = Path(directory or ".") / filename
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.source, "utf-8")
        return str(path)

    def pipe(self, format: str | None = None) -> bytes:
        """Returns the picture."""
        program = shutil.which("dot")
        if program is None:
            raise UnsupportedError("cannot render the graph: no program 'dot' (install Graphviz)")
        command = [program, f"-T{format or self.format}"]
        return subprocess.run(
            command, input=self.source.encode(), capture_output=True, check=True
        ).stdout

    def render(
        self, filename: str = "Digraph.gv", directory: str | None = None, cleanup: bool = False
    ) -> str:
        """Writes the picture to `filename.format`, and the text to `filename` unless `cleanup`;
        returns the picture's path."""
        picture = self.pipe()
        path = Path(directory or ".") / f"{filename}.{self.format}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture)
        if not cleanup:
            self.save(filename, directory)
        return str(path)

    def _repr_svg_(self) -> str:
        return self.pipe("svg").decode()


def draw(
    graph: Graph,
    node_weight: Callable[[Node], float] | None,
    edge_weight: Callable[[Node, Node], float] | None,
) -> Drawing:
    """Draws the graph; nodes have the colour of their stage."""
    lines = ['node [shape=box style=filled fontname="Times" fontsize=10]']
    outputs = {node.id for node in graph.outputs}
    for node in graph.nodes:
        words = [node.scope, f"id: {node.id}, stage: {node.stage_id}"]
        words += ["model input"] if node.is_graph_input() else []
        words += [f"kwarg: {graph.input_kw_ids[node.id]}"] if node.id in graph.input_kw_ids else []
        words += ["model output"] if node.id in outputs else []
        words += [f"{node.tensor_dtype} {node.tensor_shape}"]
        if node.weight is not None:
            words += [f"{name}: {value:.3g} ms" for name, value in node.weight._asdict().items()]
        words += [f"weight: {node_weight(node):.6g}"] if node_weight else []
        color = COLORS[node.stage_id % len(COLORS)]
        lines.append(f"{node.id} [label={_quoted(words)} fillcolor={color}]")
    for node in graph.nodes:
        for position, source in enumerate(node.in_edges):
            words = [f"arg: {position}"]
            words += [f"weight: {edge_weight(source, node):.6g}"] if edge_weight else []
            lines.append(f"{source.id} -> {node.id} [label={_quoted(words)}]")
    return Drawing(lines)


def _quoted(words: list[Any]) -> str:
    """Graphviz reads JSON's escapes of quotes, backslashes and line ends."""
    return json.dumps("\n".join(words), ensure_ascii=False)
