"""The cost of each block: measured, or estimated from its operations.

Blocks with equal content (the same operations on the same shapes) have the same costs, and a
profile file stores them by content, so that a second plan of a similar model measures only new
blocks and those around them. `passes` describes how times are measured.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ligament.errors import InvalidError
from ligament.pipe.costs import estimate
from ligament.pipe.costs.block_costs import Figures
from ligament.pipe.costs.timing import Piece, Times, Window, passes
from ligament.pipe.generate import codegen, stage_modules
from ligament.pipe.generate.layout import Layout, StageLayout
from ligament.pipe.graph.capture import OpaqueCall, Restored
from ligament.pipe.graph.ir import Meta, Op, Program, replace_refs
from ligament.pipe.graph.trace import Trace
from ligament.progress import Bar, wanted

FORMAT = "ligament pipe profile 1"
WINDOW_BYTES = 256 << 20  # weights and values: larger than the caches
BUSY_CYCLES = 2_000_000


def profile(
    trace: Trace,
    how: str | Path | None = None,
    *,
    device: Any = None,
    iterations: int = 10,
    profile_ops: bool = True,
    progress: bool | None = None,
) -> Trace:
    """Fills the figures of `trace.graph`. `how`: "flops" estimates, a path is a file to read and
    extend, None measures. With `profile_ops=False`, operations outside layers cost nothing. Returns
    `trace`."""
    if iterations < 1:
        raise InvalidError(f"invalid iterations {iterations}: expected at least 1")
    blocks = _isolate(trace)
    if how == "flops":
        figures = [estimate.figures(trace.program, b.ops, b.inputs) for b in blocks]
    else:
        place = (
            torch.device(device)
            if device is not None
            else trace.program.device or torch.device("cpu")
        )
        _refuse_meta(trace, place)
        figures = _Bench(trace, blocks, place, iterations, Path(how) if how else None).run(progress)
    _fill(trace, blocks, figures, profile_ops)
    return trace


def _refuse_meta(trace: Trace, place: torch.device) -> None:
    held = [*trace.sample, *(s.tensor for s in trace.program.states.values())]
    if place.type == "meta" or any(t.is_meta for t in held):
        raise InvalidError('a model on the meta device cannot be run (use profile="flops")')


def _isolate(trace: Trace) -> list[StageLayout]:
    """Each block as a separate stage that receives everything it reads, including constants."""
    program, graph = trace.program, trace.graph
    members: list[list[Op]] = [[] for _ in graph.nodes]
    for op in program.ops:
        if not op.free:
            members[op.block].append(op)
    read_by: dict[str, set[int]] = {}
    for op in program.ops:
        for name in op.refs():
            read_by.setdefault(name, set()).add(op.block)
    for name in program.outputs:
        read_by.setdefault(name, set()).add(-2)
    found = []
    for index, ops in enumerate(members):
        own = {op.name for op in ops}
        inputs = list(
            dict.fromkeys(n for op in ops for n in op.refs() if n not in own and n[0] != "$")
        )
        outputs = [op.name for op in ops if read_by.get(op.name, set()) - {index}]
        layout = StageLayout(index, 0, ops, inputs, outputs)
        for op in ops:
            if isinstance(op.target, OpaqueCall) and op.target.path not in layout.blocks:
                layout.blocks.append(op.target.path)
            for name in op.refs():
                if name in program.states:
                    layout.states[name] = [program.states[name].names[0]]
        found.append(layout)
    return found


class Known(NamedTuple):
    """The data looked up for every block."""

    metas: dict[str, Meta]
    grads: set[str]

    @staticmethod
    def of(program: Program) -> Known:
        return Known(program.metas(), {op.name for op in program.ops if op.grad})


def content(program: Program, block: StageLayout, known: Known) -> str:
    """A digest that is equal for blocks that do the same work: names and paths are ignored."""
    numbers: dict[str, int] = {}
    words: list[Any] = ["timed in passes", program.training]
    for name in block.inputs:
        numbers[name] = len(numbers)
        meta = known.metas.get(name)
        words.append((meta and (meta.shape, str(meta.dtype), meta.stride), name in known.grads))
    for name in block.states:
        numbers[name] = len(numbers)
        tensor = program.states[name].tensor
        words.append((tuple(tensor.shape), str(tensor.dtype), tensor.requires_grad))
    for op in block.ops:
        rename = {n: str(i) for n, i in numbers.items()}
        args = replace_refs((op.args, op.kwargs), lambda n, r=rename: r.get(n, n))  # type: ignore[misc]
        words.append((_target(program, op), repr(args), op.context))
        numbers[op.name] = len(numbers)
    return hashlib.sha256(repr(words).encode()).hexdigest()


def _target(program: Program, op: Op) -> str:
    if isinstance(op.target, OpaqueCall):
        module = program.model.get_submodule(op.target.path)
        shapes = [(tuple(p.shape), str(p.dtype)) for p in module.parameters()]
        return f"{type(module).__qualname__} {module.extra_repr()} {shapes}"
    return str(op.target)


class _Work(NamedTuple):
    """A block with operations, ready to run."""

    block: StageLayout
    module: Any
    key: str


class _Bench:
    """Runs the blocks in the order of the model, on the values that the model would have there."""

    def __init__(
        self,
        trace: Trace,
        blocks: list[StageLayout],
        place: torch.device,
        iterations: int,
        path: Path | None,
    ) -> None:
        self.trace = trace
        self.program = trace.program
        self.blocks = blocks
        self.place = place
        self.iterations = iterations
        self.path = path
        self.known = _read(path)
        self.cuda = place.type == "cuda"
        self.values: dict[str, torch.Tensor] = {}
        self.facts = Known.of(self.program)
        self.last = self._last_reader()

    def run(self, progress: bool | None) -> list[Figures]:
        works = self._works()
        windows = _windows(works)
        turns = len(windows) * passes(self.iterations)
        before = len(self.known)
        try:
            with Restored(self.program.model), Bar("profile", turns, wanted(progress), 0.0) as bar:
                self._begin()
                for window in windows:
                    self._through(window, bar)
        finally:
            self.values.clear()
        if self.path and len(self.known) > before:
            _write(self.path, self.known)
        found = {work.block.index: self.known[work.key] for work in works}
        return [found.get(block.index) or Figures() for block in self.blocks]

    def _works(self) -> list[_Work]:
        machine = self._machine()
        return [
            _Work(block, module, f"{content(self.program, block, self.facts)} {machine}")
            for block, module in zip(self.blocks, self._modules(), strict=True)
            if module is not None
        ]

    def _begin(self) -> None:
        """The values available before the first block."""
        sample = dict(zip(self.program.inputs, self.trace.sample, strict=True))
        home = self.program.device  # tensors on other devices (lengths, on the host) stay there
        self.values = {
            n: t.detach().to(self.place if t.device == home else t.device)
            for n, t in sample.items()
        }
        self._constants()

    def _through(self, window: list[_Work], bar: Bar) -> None:
        """Measures the new blocks of a window, and continues to its end."""
        fresh = {work.key for work in window} - self.known.keys()
        self._time(window, fresh, bar)
        for work in window:
            if work.key in fresh:
                fresh.remove(work.key)
                self._memory(work, self.known[work.key])
            with torch.no_grad():
                made = work.module(*(self.values[n] for n in work.block.inputs))
            self.values.update(zip(work.block.outputs, made, strict=True))
            for gone in self.last.get(work.block.index, ()):
                del self.values[gone]

    def _time(self, window: list[_Work], fresh: set[str], bar: Bar) -> None:
        """The whole window runs, including known blocks, so that new blocks are timed in
        context."""
        name = self.trace.graph.nodes[window[0].block.index].name
        if not fresh:
            for _ in range(passes(self.iterations)):
                bar.step(name)
            return
        pieces = [self._piece(work) for work in window]
        timed = Window(pieces, self.values, self.facts.grads, self._clock)
        times = timed.run(self.iterations, lambda: bar.step(name))
        for piece in pieces:
            if piece.key in fresh:
                self.known[piece.key] = _figures(times[piece.key], bool(piece.trained))

    def _piece(self, work: _Work) -> Piece:
        block = work.block
        return Piece(
            work.key,
            self._caller(block, work.module),
            block.inputs,
            block.outputs,
            [p for p in work.module.parameters() if p.requires_grad],
            self.last.get(block.index, []),
        )

    def _machine(self) -> str:
        name = (
            torch.cuda.get_device_name(self.place)
            if self.cuda
            else f"cpu x{torch.get_num_threads()}"
        )
        return f"{name} torch {torch.__version__}"

    def _modules(self) -> list[Any]:
        """One module for each block that has operations."""
        layout = Layout([b for b in self.blocks if b.ops], {}, {}, {})
        for position, block in enumerate(layout.stages):
            layout.stages[position] = StageLayout(
                position, 0, block.ops, block.inputs, block.outputs, block.states, block.blocks
            )
        classes = stage_modules.load(codegen.generate(self.program, layout, [], []))
        state = stage_modules.tensors_of(self.program)
        made = iter(self._instance(cls, state) for cls in classes)
        return [next(made) if b.ops else None for b in self.blocks]

    def _instance(self, cls: Any, state: dict[str, torch.Tensor]) -> Any:
        modules = stage_modules.modules_of(self.program.model, cls)
        if self.program.device == self.place:
            return cls(state, modules, self.place)
        near = {
            n: torch.nn.Parameter(t.detach().to(self.place), t.requires_grad)
            if isinstance(t, torch.nn.Parameter)
            else t.to(self.place)
            for n, t in state.items()
            if n in cls.TENSORS
        }
        return cls(
            near, {p: copy.deepcopy(m).to(self.place) for p, m in modules.items()}, self.place
        )

    def _constants(self) -> None:
        """Values that depend on no input are computed once, outside the measurement."""
        free = [op for op in self.program.ops if op.free]
        wanted = {n for b in self.blocks for n in b.inputs} | set(self.program.outputs)
        names = [op.name for op in free if op.name in wanted]
        block = StageLayout(0, 0, free, [], names)
        for op in free:
            for name in op.refs():
                if name in self.program.states:
                    block.states[name] = [self.program.states[name].names[0]]
        classes = stage_modules.load(
            codegen.generate(self.program, Layout([block], {}, {}, {}), [], [])
        )
        with torch.no_grad():
            made = self._instance(classes[0], stage_modules.tensors_of(self.program))()
        self.values.update(zip(names, made, strict=True))

    def _last_reader(self) -> dict[int, list[str]]:
        last: dict[str, int] = {}
        for block in self.blocks:
            for name in (*block.outputs, *block.inputs):
                last[name] = block.index
        found: dict[int, list[str]] = {}
        for name, index in last.items():
            found.setdefault(index, []).append(name)
        return found

    def _caller(self, block: StageLayout, module: Any) -> Callable[..., Any]:
        """The block, run on copies if it writes to its inputs: neither the next pass nor a leaf
        that needs a gradient may see that."""
        states = self.program.states
        if all(name in states for op in block.ops for name in op.mutates):
            return module  # type: ignore[no-any-return]
        return lambda *given: module(
            *(v.clone() if isinstance(v, torch.Tensor) else v for v in given)
        )

    def _inputs(self, block: StageLayout) -> list[Any]:
        """Fresh leaves."""
        found: list[Any] = []
        for name in block.inputs:
            value = self.values[name]
            if isinstance(value, torch.Tensor):  # or a number derived from one
                value = value.detach().requires_grad_(name in self.facts.grads)
            found.append(value)
        return found

    def _memory(self, work: _Work, figures: Figures) -> None:
        block, module = work.block, work.module
        trained = [p for p in module.parameters() if p.requires_grad]
        call = self._caller(block, module)
        held = [*module.parameters(), *module.buffers()]
        figures.saved_inputs, figures.saved_bytes = _saved(call, self._inputs(block), held)
        if self.cuda:
            self._measure_memory(block, call, trained, figures)
        else:
            inputs = self._inputs(block)
            figures.forward_memory = figures.saved_bytes + _bytes(call(*inputs))
            figures.backward_memory = _bytes([*_differentiable(inputs), *trained])

    def _measure_memory(
        self, block: StageLayout, call: Callable[..., Any], trained: list[Any], figures: Figures
    ) -> None:
        """Peaks relative to the memory in use before, forward and backward."""
        inputs = self._inputs(block)
        base = self._reset_peak()
        outputs = call(*inputs)
        figures.forward_memory = float(torch.cuda.max_memory_allocated(self.place) - base)
        pairs = [(o, torch.randn_like(o)) for o in _differentiable(outputs)]
        wanted = [*_differentiable(inputs), *trained]
        if not pairs or not wanted or not figures.backward_ms:
            return
        base = self._reset_peak()
        roots, above = [o for o, _ in pairs], [g for _, g in pairs]
        torch.autograd.grad(roots, wanted, above, allow_unused=True)
        figures.backward_memory = float(torch.cuda.max_memory_allocated(self.place) - base)

    def _reset_peak(self) -> int:
        torch.cuda.reset_peak_memory_stats(self.place)
        return torch.cuda.memory_allocated(self.place)

    @staticmethod
    def _event() -> Any:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def _clock(self, call: Callable[[], Any]) -> tuple[Any, float]:
        if not self.cuda:
            begin = time.perf_counter()
            made = call()
            return made, (time.perf_counter() - begin) * 1e3
        with torch.cuda.device(self.place):
            first, second = self._event(), self._event()
            # The device is kept busy until everything is queued, so that the device time is
            # measured and not the launch rate of Python.
            torch.cuda._sleep(BUSY_CYCLES)  # type: ignore[no-untyped-call]
            first.record()
            made = call()
            second.record()
            second.synchronize()
        return made, float(first.elapsed_time(second))


def _windows(works: list[_Work]) -> list[list[_Work]]:
    """The works in order, in as few windows of equal size as WINDOW_BYTES allows."""
    sizes = [_touched(work) for work in works]
    limit = sum(sizes) / max(1, math.ceil(sum(sizes) / WINDOW_BYTES))
    found: list[list[_Work]] = []
    room = 0.0
    for work, size in zip(works, sizes, strict=True):
        if room <= 0:
            found.append([])
            room += limit
        found[-1].append(work)
        room -= size
    return found


def _touched(work: _Work) -> float:
    """Bytes of a block's weights and results; views are counted with their base."""
    made: dict[int, int] = {}
    for op in work.block.ops:
        if op.meta is not None:
            made[op.meta.storage] = max(op.meta.bytes, made.get(op.meta.storage, 0))
    return sum(made.values()) + _bytes([*work.module.parameters(), *work.module.buffers()])


def _figures(times: Times, trained: bool) -> Figures:
    forward, backward, inner = times.medians()
    return Figures(forward, backward, max(0.0, backward - inner) if trained else 0.0)


def _differentiable(values: Iterable[Any]) -> list[torch.Tensor]:
    return [v for v in values if isinstance(v, torch.Tensor) and v.requires_grad]


def _bytes(values: Iterable[Any]) -> float:
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    return float(sum(t.numel() * t.element_size() for t in tensors))


def _saved(
    call: Callable[..., Any], inputs: list[Any], held: list[torch.Tensor]
) -> tuple[list[int], float]:
    """What autograd keeps: which of the inputs, and how many other bytes."""
    seen: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        kept = call(*inputs)  # kept alive until counted, or storages would be counted twice
    for tensor in held:
        seen.pop(tensor.untyped_storage().data_ptr(), None)
    positions = []
    for position, tensor in enumerate(inputs):
        if not isinstance(tensor, torch.Tensor):
            continue
        if seen.pop(tensor.untyped_storage().data_ptr(), None) is not None:
            positions.append(position)
    del kept
    return positions, float(sum(seen.values()))


def _fill(
    trace: Trace, blocks: list[StageLayout], figures: list[Figures], profile_ops: bool
) -> None:
    """Writes the figures into the graph. A value that several blocks keep is counted at the first
    of them."""
    counted: set[str] = set()
    metas = trace.program.metas()
    for node, block, figure in zip(trace.graph.nodes, blocks, figures, strict=True):
        kept = [block.inputs[i] for i in figure.saved_inputs]
        size = sum(metas[n].bytes for n in kept if n in metas and n not in counted)
        counted.update(kept)
        node.activation_bytes = figure.saved_bytes + size
        node.forward_memory = figure.forward_memory
        node.backward_memory = figure.backward_memory
        if node.kind != "op" or profile_ops:
            node.forward_ms, node.backward_ms = figure.forward_ms, figure.backward_ms
            node.weight_ms = min(figure.weight_ms, figure.backward_ms)


def _read(path: Path | None) -> dict[str, Figures]:
    if path is None or not path.exists():
        return {}
    known = {f.name for f in fields(Figures)}
    try:
        data = json.loads(path.read_text("utf-8"))
        if data["format"] != FORMAT:
            raise InvalidError(
                f"{path} is not a profile of this version: its format is {data['format']!r}"
            )
        return {
            key: Figures(**{k: v for k, v in item.items() if k in known})
            for key, item in data["blocks"].items()
        }
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise InvalidError(f"{path} is not a profile: {error}") from None


def _write(path: Path, known: dict[str, Figures]) -> None:
    """Replaces the file atomically. Ranks may share a path: each writes a separate file, and the
    last one is kept."""
    text = json.dumps(
        {"format": FORMAT, "blocks": {k: asdict(known[k]) for k in sorted(known)}}, indent=1
    )
    descriptor, beside = tempfile.mkstemp(prefix=path.name, suffix=".new", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        Path(beside).chmod(0o644)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
