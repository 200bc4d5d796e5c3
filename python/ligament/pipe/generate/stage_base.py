# The base of the written stages. Its text is copied into every written file, so it imports torch
# alone.

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: F401
from torch import nn


class Tensor(NamedTuple):
    """A tensor of the original model; a stage that is not given it makes an empty one."""

    kind: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    grad: bool = False
    persistent: bool = True
    value: Any = None


class Same(NamedTuple):
    """A second name of a tensor."""

    name: str


def Parameter(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = True) -> Tensor:
    return Tensor("parameter", shape, dtype, grad=grad)


def Buffer(
    *shape: int, dtype: torch.dtype = torch.float32, persistent: bool = True, value: Any = None
) -> Tensor:
    return Tensor("buffer", shape, dtype, persistent=persistent, value=value)


class Stage(nn.Module):
    """One stage: `forward` takes the values named in `INPUTS` and returns a tuple of those in
    `OUTPUTS`; a name in both is passed on. `state_dict` has the names of the original model.

    state   the original's tensors by name (parameters and buffers): used, not copied
    blocks  the original's modules that the class names in `MODULES`, by path
    """

    # In capitals, because a model may well have a part that is called `blocks` or `inputs`.
    INPUTS: list[str] = []
    OUTPUTS: list[str] = []
    MODULES: list[str] = []
    TENSORS: dict[str, Any] = {}
    TIED_NAMES: dict[str, list[str]] = {}  # a name here: all names that the original has for it
    TRACED_IN_TRAINING = True
    IS_PART_OF_A_MODEL = True  # loading a whole model into it reads only its part

    def __init__(
        self,
        state: dict[str, torch.Tensor] | None = None,
        blocks: dict[str, nn.Module] | None = None,
        device: Any = None,
    ) -> None:
        super().__init__()
        self._at: dict[str, Any] = {}
        for path in self.MODULES:
            self._adopt(path, blocks or {})
        for name, tensor in self.TENSORS.items():
            self._declare(name, tensor, state or {}, device)
        for found in (*self.parameters(), *self.buffers()) if device is None else ():
            device = found.device
            break
        self.register_buffer("_home", torch.empty(0, device=device), persistent=False)
        self.train(self.TRACED_IN_TRAINING)

    @property
    def _device(self) -> torch.device:
        found: torch.device = self.get_buffer("_home").device
        return found

    def train(self, mode: bool = True) -> "Stage":
        if mode and not self.TRACED_IN_TRAINING:
            raise RuntimeError("traced in eval mode: trace the model in train mode to train it")
        return super().train(mode)

    def _scope(self, path: str) -> nn.Module:
        module: nn.Module = self
        for part in path.split(".") if path else ():
            if part not in module._modules:
                module.add_module(part, nn.Module())
            module = module.get_submodule(part)
        self._at[path] = module
        return module

    def _adopt(self, path: str, blocks: dict[str, nn.Module]) -> None:
        """Puts a module of the original at its path; at the root, its parts stand for it."""
        if path not in blocks:
            raise ValueError(f"{type(self).__name__} needs the original model's module '{path}'")
        parent, _, local = path.rpartition(".")
        if path:
            self._scope(parent).add_module(local, blocks[path])
        else:
            for name, child in blocks[path].named_children():
                self.add_module(name, child)
            for name, tensor in blocks[path].named_parameters(recurse=False):
                self.register_parameter(name, tensor)
            for name, buffer in blocks[path].named_buffers(recurse=False):
                self.register_buffer(name, buffer)
        self._at[path] = blocks[path]

    def _declare(self, name: str, tensor: Any, state: dict[str, torch.Tensor], device: Any) -> None:
        path, _, local = name.rpartition(".")
        owner = self._scope(path)
        if isinstance(tensor, Same):
            path, _, first = tensor.name.rpartition(".")
            found, persistent = getattr(self._at[path], first), True
        else:
            found, persistent = self._tensor(tensor, state.get(name), device), tensor.persistent
        if isinstance(found, nn.Parameter):
            owner.register_parameter(local, found)
        else:
            owner.register_buffer(local, found, persistent=persistent)

    def _tensor(self, tensor: Tensor, found: torch.Tensor | None, device: Any) -> torch.Tensor:
        if found is None and tensor.value is not None:
            found = torch.tensor(tensor.value, dtype=tensor.dtype, device=device)
            found = found.reshape(tensor.shape)
        elif found is None:
            found = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        if tensor.kind == "parameter" and not isinstance(found, nn.Parameter):
            found = nn.Parameter(found, requires_grad=tensor.grad)
        return found
