"""One operation as one Python expression.

The usual notation (`a + b`, `x.view(2, 3)`, `F.linear(...)`) is used for the overloads listed here,
where it means exactly that overload; everything else is written as
`torch.ops.aten.name.overload(...)`, which is always correct.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ligament.pipe.graph.ir import Op, Ref
from ligament.pipe.graph.op_properties import argument

INFIX = {
    "aten.add.Tensor": "+",
    "aten.sub.Tensor": "-",
    "aten.mul.Tensor": "*",
    "aten.div.Tensor": "/",
    "aten.pow.Tensor_Scalar": "**",
    "aten.matmul.default": "@",
    "aten.eq.Tensor": "==",
    "aten.eq.Scalar": "==",
    "aten.ne.Tensor": "!=",
    "aten.ne.Scalar": "!=",
    "aten.lt.Tensor": "<",
    "aten.lt.Scalar": "<",
    "aten.le.Tensor": "<=",
    "aten.le.Scalar": "<=",
    "aten.gt.Tensor": ">",
    "aten.gt.Scalar": ">",
    "aten.ge.Tensor": ">=",
    "aten.ge.Scalar": ">=",
    "aten.__and__.Tensor": "&",
    "aten.bitwise_and.Tensor": "&",
    "aten.__or__.Tensor": "|",
    "aten.bitwise_or.Tensor": "|",
}
METHODS = {
    "aten.view.default": "view",
    "aten.reshape.default": "reshape",
    "aten.expand.default": "expand",
    "aten.permute.default": "permute",
    "aten.transpose.int": "transpose",
    "aten.t.default": "t",
    "aten.unsqueeze.default": "unsqueeze",
    "aten.squeeze.dim": "squeeze",
    "aten.flatten.using_ints": "flatten",
    "aten.contiguous.default": "contiguous",
    "aten.clone.default": "clone",
    "aten.lift_fresh_copy.default": "clone",
    "aten.detach.default": "detach",
    "aten.split.Tensor": "split",
    "aten.chunk.default": "chunk",
    "aten.masked_fill.Scalar": "masked_fill",
    "aten.neg.default": "neg",
    "aten.mean.dim": "mean",
    "aten.sum.dim_IntList": "sum",
    "aten.select.int": "select",
    "aten.to.dtype": "to",
}
FUNCTIONS = {
    "aten.linear.default": "F.linear",
    "aten.embedding.default": "torch.embedding",
    "aten.layer_norm.default": "torch.layer_norm",
    "aten.group_norm.default": "torch.group_norm",
    "aten.batch_norm.default": "torch.batch_norm",
    "aten.dropout.default": "torch.dropout",
    "aten.conv1d.default": "torch.conv1d",
    "aten.conv2d.default": "torch.conv2d",
    "aten.conv3d.default": "torch.conv3d",
    "aten.relu.default": "torch.relu",
    "aten.gelu.default": "F.gelu",
    "aten.silu.default": "F.silu",
    "aten.tanh.default": "torch.tanh",
    "aten.sigmoid.default": "torch.sigmoid",
    "aten.softmax.int": "torch.softmax",
    "aten.log_softmax.int": "torch.log_softmax",
    "aten.addmm.default": "torch.addmm",
    "aten.bmm.default": "torch.bmm",
    "aten.mm.default": "torch.mm",
    "aten.cat.default": "torch.cat",
    "aten.stack.default": "torch.stack",
    "aten.where.self": "torch.where",
    "aten.rsqrt.default": "torch.rsqrt",
    "aten.sqrt.default": "torch.sqrt",
    "aten.exp.default": "torch.exp",
    "aten.log.default": "torch.log",
    "aten.cos.default": "torch.cos",
    "aten.sin.default": "torch.sin",
    "aten.abs.default": "torch.abs",
    "aten.max_pool2d.default": "torch.max_pool2d",
    "aten.adaptive_avg_pool2d.default": "F.adaptive_avg_pool2d",
    "aten.scaled_dot_product_attention.default": "F.scaled_dot_product_attention",
    "aten.arange.default": "torch.arange",
    "aten.arange.start": "torch.arange",
    "aten.full.default": "torch.full",
    "aten.zeros.default": "torch.zeros",
    "aten.ones.default": "torch.ones",
    "aten.full_like.default": "torch.full_like",
    "aten.zeros_like.default": "torch.zeros_like",
    "aten.ones_like.default": "torch.ones_like",
}
# Keyword arguments that the usual notation does not accept, or not under this name.
ONLY_PLAIN_ARGUMENTS = {
    "aten.add.Tensor": {"alpha"},
    "aten.sub.Tensor": {"alpha"},
}
TRAINING_FLAGS = ("train", "training", "use_input_stats")


class Writer:
    """Renders operations of one program. `name` turns a Ref into an expression; `device` is what
    the model was traced on, written as the stage's own device; with `training`, switches that were
    on follow the stage's mode."""

    def __init__(
        self, name: Callable[[str], str], device: torch.device | None, training: bool
    ) -> None:
        self._name = name
        self._device = device
        self._training = training

    def expression(self, op: Op) -> str:
        """The right-hand side for an ATen operation or an element of a tuple."""
        if not isinstance(op.target, torch._ops.OpOverload):
            return f"{self.value(op.args[0])}[{self.value(op.args[1])}]"
        key = str(op.target)
        args = [self._argument(op, position, value) for position, value in enumerate(op.args)]
        named = {
            k: self._switch(op, k, v)
            for k, v in op.kwargs.items()
            if not self._is_default(op, k, v)
        }
        words = [f"{k}={v}" for k, v in named.items()]
        if key in INFIX and len(args) == 2 and not words and isinstance(op.args[0], Ref):
            return f"{args[0]} {INFIX[key]} {args[1]}"
        if key == "aten.slice.Tensor" and not words and isinstance(op.args[0], Ref):
            return self._slice(op)
        if (
            key in METHODS
            and isinstance(op.args[0], Ref)
            and not ONLY_PLAIN_ARGUMENTS.get(key, set()) & named.keys()
        ):
            return f"{args[0]}.{METHODS[key]}({', '.join([*args[1:], *words])})"
        if key in FUNCTIONS:
            return f"{FUNCTIONS[key]}({', '.join([*args, *words])})"
        return f"torch.ops.{key}({', '.join([*args, *words])})"

    def value(self, value: Any) -> str:
        """Any argument as source text."""
        if isinstance(value, Ref):
            return self._name(value.name)
        if isinstance(value, list):
            return "[" + ", ".join(self.value(v) for v in value) + "]"
        if isinstance(value, tuple):
            return "(" + "".join(self.value(v) + ", " for v in value).rstrip() + ")"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {self.value(v)}" for k, v in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({value.start}, {value.stop}, {value.step})"
        if isinstance(value, float) and not math.isfinite(value):
            return f"float({str(value)!r})"
        if isinstance(value, torch.device):
            return "self._device" if self._is_home(value) else f"torch.device({str(value)!r})"
        return repr(value)

    def _is_home(self, device: torch.device) -> bool:
        home = self._device
        return home is not None and device.type == home.type and device.index in (None, home.index)

    def _argument(self, op: Op, position: int, value: Any) -> str:
        return self._switch(op, op.target._schema.arguments[position].name, value)

    def _switch(self, op: Op, name: str, value: Any) -> str:
        if self._training and value is True and name in TRAINING_FLAGS:
            return "self.training"
        if self._training and name == "dropout_p" and value:
            return f"{value!r} if self.training else 0.0"
        return self.value(value)

    def _is_default(self, op: Op, name: str, value: Any) -> bool:
        """Export writes out default arguments; omitting them is more readable and equivalent."""
        if name == "pin_memory" and not value:
            return True
        for spec in op.target._schema.arguments:
            if spec.name == name:
                default = spec.default_value if spec.has_default_value() else ...
                return type(default) is type(value) and bool(default == value)
        return False

    def _slice(self, op: Op) -> str:
        source, dim = self.value(op.args[0]), argument(op, "dim")
        start, end, step = argument(op, "start"), argument(op, "end"), argument(op, "step")
        if dim < 0:
            return f"torch.ops.aten.slice.Tensor({', '.join(self.value(a) for a in op.args)})"
        last = "" if end is None or end >= 2**62 else str(end)
        span = f"{start or ''}:{last}" + (f":{step}" if step not in (None, 1) else "")
        return f"{source}[{':, ' * dim}{span}]"
