"""The steps of a plan whose kernels this engine writes: compiled side by side, launched one by one."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ....tensor import DType
from ..device.device import Device, Tensor
from ..device.expression import Expression
from ..device.generated import GeneratedKernel, compile_all
from ..device.layout import as_bytes, linear
from ..device.means import means_kernel
from ..device.nhwc import Launch
from ..device.pointwise import pointwise_kernel
from ..device.rows import rows_kernel
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

    def launch(self, step: Step) -> Launch:
        """The function that queues a step of the kind ``"pointwise"``."""
        kernel = self._kernels.get(step.outputs)
        if kernel is None:
            return _nothing
        return kernel.prepare([*map(self._operand, step.inputs), *(self._tensors[name] for name in step.outputs)])

    @functools.cached_property
    def _kernels(self) -> dict[tuple[str, ...], GeneratedKernel]:
        """Outputs → kernel, for all steps with values to compute."""
        steps = [step for step in self._plan.steps if step.kind == "pointwise"]
        found = {
            step.outputs: self._kernel(step) for step in steps if 0 not in self._tensors[step.outputs[0]].format.dims
        }
        compile_all(found.values())
        return found

    def _kernel(self, step: Step) -> GeneratedKernel:
        inputs = [self._operand(name).format for name in step.inputs]
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
            copy = self._device.upload(array)
            self._uploaded[name] = Tensor(copy.reshape(-1), linear(tuple(array.shape), DType.of(array)), copy)
        return self._uploaded[name]


def _nothing(stream: Any) -> None:
    """Queue nothing, for tensors without values."""
