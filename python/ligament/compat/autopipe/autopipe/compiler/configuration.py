"""The text of partitions and of `create_pipeline_configuration` in a written file."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from ligament.compat.autopipe.autopipe.compiler import partition_base
from ligament.compat.autopipe.autopipe.compiler.batches import looks_batched
from ligament.compat.autopipe.autopipe.compiler.routes import Routes, Stop
from ligament.compat.autopipe.autopipe.model_partitioning.stage_to_device import (
    gen_stage_to_device_map,
)
from ligament.compat.autopipe.autopipe.model_profiling.control_flow_graph import Graph
from ligament.compat.autopipe.autopipe.utils import layerDict, tensorDict

TAB = "    "
IMPORTS = "import re\nfrom itertools import chain\nfrom collections.abc import Iterator"


class _Code(str):
    """Source text, in a table of values."""

    __slots__ = ()


class Configuration:
    """Writes the part of a file that FTPipe's runtime reads. `batched` contains which values are
    batched; None: the stages run with the traced batch size only."""

    def __init__(
        self, graph: Graph, routes: Routes, batch_dim: int, batched: dict[str, bool] | None
    ) -> None:
        assert graph.plan is not None
        self.graph, self.routes, self.batch_dim, self.batched = graph, routes, batch_dim, batched
        self.layout, self.program = graph.plan.layout, graph.plan.program
        self.batch = batch_of(graph, batch_dim)

    def text(self) -> str:
        """The text after the stages."""
        base = [
            inspect.getsource(thing)
            for thing in (
                partition_base.Partition,
                partition_base.name_of,
                partition_base.switch_batch_size,
            )
        ]
        base = [text.replace("  # type: ignore[no-any-return]", "").rstrip() for text in base]
        stages = range(len(self.layout.stages))
        parts = [IMPORTS, *base, *(self._partition(s) for s in stages), self._function()]
        return "\n\n\n".join(parts) + "\n"

    def _partition(self, stage: int) -> str:
        layers, tensors = self._scopes(stage)
        lines = [f"class Partition{stage}(Partition):", f"{TAB}STAGE = Stage{stage}"]
        for name, words in (
            ("LAYER_SCOPES", layers),
            ("TENSORS", tensors),
            ("TAKES", [stop.value for stop in self.routes.takes[stage]]),
            ("GIVES", [stop.value for stop in self.routes.gives[stage]]),
        ):
            lines.append(f"{TAB}{name} = {_text(words, 1)}")
        return "\n".join(lines)

    def _scopes(self, stage: int) -> tuple[list[str], list[str]]:
        """The layers that a stage uses, and its tensors outside of them."""
        model, graph = self.program.model, self.graph
        layers = layerDict(model, _depth(graph), blocks_of(graph))
        names = {n for aliases in self.layout.stages[stage].states.values() for n in aliases}
        names |= {f"{path}." for path in self.layout.stages[stage].blocks}
        ran = {node.scope for node in graph.nodes if node.stage_id == stage}
        chosen, covered = [], set()
        for scope in layers:
            path = partition_base.name_of(scope) + "."
            mine = {name for name in names if name.startswith(path)}
            covered |= mine
            if mine or scope in ran:
                chosen.append(scope)
        rest = [s for s in tensorDict(model) if partition_base.name_of(s) in names - covered]
        return chosen, rest

    def _function(self) -> str:
        head = f"def create_pipeline_configuration(DEBUG=False, batch_size={self.batch}):"
        lines = [head, f'{TAB}"""The configuration of FTPipe\'s runtime."""']
        lines += [f"{TAB}{line}" for line in _imports(blocks_of(self.graph))]
        if self.batched is None:
            lines += [
                f"{TAB}if batch_size != {self.batch}:",
                f'{TAB}{TAB}raise ValueError("the stages run with batches of {self.batch} only: '
                'trace the model with another size")',
            ]
        lines += [f"{TAB}config = {_text(self._table(), 1)}"]
        lines += [f"{TAB}switch_batch_size(config, batch_size)", f"{TAB}return config"]
        return "\n".join(lines)

    def _table(self) -> dict[str, Any]:
        routes, depths = self.routes, self.routes.depths()
        blocks = "".join(f"{block.__name__}, " for block in blocks_of(self.graph)).rstrip()
        return {
            "batch_dim": self.batch_dim,
            "depth": _depth(self.graph),
            "basic_blocks": _Code(f"({blocks})"),
            "model_inputs": {s.name: self._value(s) | {"used_by": s.ends} for s in routes.inputs},
            "model_outputs": {
                s.name: self._value(s) | {"created_by": s.ends[0]} for s in routes.outputs
            },
            "stages": {
                stage: {
                    "stage_cls": _Code(f"Partition{stage}"),
                    "inputs": {
                        s.name: self._border(s) | {"created_by": s.ends[0]}
                        for s in routes.takes[stage]
                    },
                    "outputs": {
                        s.name: self._border(s) | {"used_by": s.ends} for s in routes.gives[stage]
                    },
                    "devices": [_Code(f"'cpu' if DEBUG else 'cuda:{stage}'")],
                    "stage_depth": depths[stage],
                }
                for stage in range(len(self.layout.stages))
            },
            "stage_to_device_map": gen_stage_to_device_map(self.graph),
        }

    def _border(self, stop: Stop) -> dict[str, Any]:
        found = self._value(stop)
        grad = bool(self.layout.grads.get(stop.value, False))
        return {"shape": found["shape"], "dtype": found["dtype"], "req_grad": grad} | found

    def _value(self, stop: Stop) -> dict[str, Any]:
        meta: Any = self.layout.metas.get(stop.value)
        state = self.program.states.get("$" + stop.value.removeprefix("$"))
        if meta is None and state is not None:
            meta = state.tensor
        if meta is None:
            return {"shape": None, "dtype": None, "is_batched": False}
        shape = tuple(meta.shape)
        batched = (
            looks_batched(shape, self.batch_dim, self.batch)
            if self.batched is None
            else self.batched.get(stop.value, False)
        )
        return {"shape": torch.Size(shape), "dtype": meta.dtype, "is_batched": batched}


def batch_of(graph: Graph, batch_dim: int) -> int:
    """The batch size of the first argument."""
    shapes = [node.tensor_shape for node in graph.inputs]
    fit = [shape for shape in shapes if len(shape) > batch_dim]
    return int(fit[0][batch_dim]) if fit else 0


def blocks_of(graph: Graph) -> list[type[nn.Module]]:
    """The classes of modules that must stay whole for a stage to be built: basic blocks, and those
    that could not be traced."""
    assert graph.trace is not None
    program = graph.trace.program
    names = {getattr(block, "__qualname__", block) for block in graph.basic_blocks or ()}
    kinds = [type(m) for m in program.model.modules() if type(m).__qualname__ in names]
    kinds += [type(program.model.get_submodule(path)) for path in program.opaque if path]
    return list(dict.fromkeys(kinds))


def _depth(graph: Graph) -> int:
    return 1000 if graph.depth is None else graph.depth


def _imports(kinds: list[type[nn.Module]]) -> list[str]:
    return [f"from {kind.__module__} import {kind.__name__}" for kind in kinds]


def _text(value: Any, level: int) -> str:
    """A literal over several lines."""
    pad = TAB * (level + 1)
    if isinstance(value, _Code):
        return str(value)
    if isinstance(value, dict) and value:
        rows = [f"{pad}{key!r}: {_text(inner, level + 1)},\n" for key, inner in value.items()]
        return "{\n" + "".join(rows) + TAB * level + "}"
    if isinstance(value, list):
        words = [_text(inner, level) for inner in value]
        if not any(isinstance(inner, str) and not isinstance(inner, _Code) for inner in value):
            return f"[{', '.join(words)}]"
        return "[\n" + "".join(f"{pad}{word},\n" for word in words) + TAB * level + "]"
    return repr(value)
