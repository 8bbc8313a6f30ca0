"""The steps of a plan whose kernels this engine writes: compiled side by side, launched one by one."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ....tensor import DType
from ..device.device import Device, Tensor
from ..device.elements import to_stored
from ..device.expression import Expression
from ..device.generated import GeneratedKernel, compile_all
from ..device.indexed import indexed_kernel
from ..device.layout import as_bytes, linear
from ..device.means import means_kernel
from ..device.nhwc import Launch
from ..device.pointwise import pointwise_kernel
from ..device.rows import rows_kernel
from ..device.squeeze_excite import SqueezeExciteKernel, SqueezeExciteProblem
from ..plan.plan import Plan, Step

__all__ = ["GeneratedSteps"]


class GeneratedSteps:
    """Makes the launches of one plan's generated kernels.

    Args:
        device: Where arrays live.
        plan: The plan.
        tensors: The plan's tensors in memory.
    """

    def __init__(self, device: Device, plan: Plan, tensors: Mapping[str, Tensor]) -> None:
        self._device, self._plan, self._tensors = device, plan, tensors
        self._uploaded: dict[str, Tensor] = {}
        self._scratch: dict[tuple[str, ...], int] = {}

    def launch(self, step: Step) -> Launch:
        """The function that queues a step of the kind ``"pointwise"``."""
        kernel = self._kernels.get(_key(step))
        if kernel is None:
            return _nothing
        return kernel.prepare([*map(self._operand, step.inputs), *(self._tensors[name] for name in step.outputs)])

    def launch_indexed(self, step: Step, flag: Any) -> Launch:
        """The function that queues a step of the kind ``"indexed"``, which raises the flag where an index is out of range."""
        tensors = [*map(self._operand, step.inputs), *(self._tensors.get(name) for name in step.outputs)]
        arrays = [None if tensor is None else tensor.flat for tensor in tensors]
        kernel, size = self._kernels[_key(step)], self._scratch[_key(step)]
        scratch = self._device.allocate(size) if size else None
        queue = kernel.bound([*arrays, flag, scratch])

        def launch(stream: Any, kept: Any = scratch) -> None:
            queue(stream)

        return launch

    def launch_squeeze_excite(self, step: Step) -> Launch:
        """The function that queues a step of the kind ``"squeeze-excite"``."""
        kernel = self._squeeze_excite.get(_key(step))
        if kernel is None:
            return _nothing
        return kernel.prepare([self._tensors[name] for name in (step.inputs[0], *step.outputs)])

    @functools.cached_property
    def _squeeze_excite(self) -> dict[tuple[str, ...], SqueezeExciteKernel]:
        """Kind and outputs of a step → its kernel, for all squeeze-and-excitation blocks with values to compute."""
        steps = [step for step in self._plan.steps if step.kind == "squeeze-excite"]
        steps = [step for step in steps if 0 not in self._tensors[step.outputs[0]].format.dims]
        kernels = {_key(step): self._squeeze_excite_kernel(step) for step in steps}
        compile_all(kernel.kernels[0] for kernel in kernels.values())
        return kernels

    def _squeeze_excite_kernel(self, step: Step) -> SqueezeExciteKernel:
        x, y = (self._tensors[name].format for name in (step.inputs[0], *step.outputs))
        weights = [self._plan.constants[name] for name in step.inputs[1:]]
        problem = SqueezeExciteProblem.of(step.attributes, x, y, weights[0].shape)
        return SqueezeExciteKernel(self._device, problem, weights)

    @functools.cached_property
    def _kernels(self) -> dict[tuple[str, ...], GeneratedKernel]:
        """Kind and outputs of a step → its kernel, for all steps with values to compute."""
        found = {
            _key(step): self._kernel(step)
            for step in self._plan.steps
            if step.kind == "indexed"
            or (step.kind == "pointwise" and 0 not in self._tensors[step.outputs[0]].format.dims)
        }
        compile_all(found.values())
        return found

    def _kernel(self, step: Step) -> GeneratedKernel:
        inputs = [self._operand(name).format for name in step.inputs]
        if step.kind == "indexed":
            forms = [self._tensors[name].format if name else None for name in step.outputs]
            at = step.attributes
            kernel, self._scratch[_key(step)] = indexed_kernel(self._device, step.op, at, inputs, forms, at["reads"])
            return kernel
        outputs = [self._tensors[name].format for name in step.outputs]
        if step.op == "Move":
            inputs, outputs = list(map(as_bytes, inputs)), list(map(as_bytes, outputs))
        at = step.attributes
        reads, writes = at.get("reads", ()), at.get("writes", {})
        expression = Expression.parse(len(reads or inputs), at["operations"], at["results"])
        if step.op == "Rows":
            means = None if reads or writes else means_kernel(self._device, expression, at["axes"], inputs, outputs)
            return means or rows_kernel(
                self._device, expression, at["dims"], at["axes"], inputs, outputs, reads, writes
            )
        return pointwise_kernel(self._device, expression, inputs, outputs, reads, writes)

    def _operand(self, name: str) -> Tensor:
        """A tensor, or a constant's copy on the device."""
        if name in self._tensors:
            return self._tensors[name]
        if name not in self._uploaded:
            array = self._plan.constants[name]
            copy = self._device.upload(to_stored(array))
            self._uploaded[name] = Tensor(copy.reshape(-1), linear(tuple(array.shape), DType.of(array)), copy)
        return self._uploaded[name]


def _key(step: Step) -> tuple[str, ...]:
    """What tells a step from others: two may write one tensor, but not steps of one kind."""
    return step.kind, *step.outputs


def _nothing(stream: Any) -> None:
    """Queue nothing, for tensors without values."""
