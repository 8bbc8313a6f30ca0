"""Convolution kernels that are compiled for one problem, whose numbers are constants of their source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....tensor import DType
from ..device.activation import ACTIVATIONS
from ..device.device import Device, Tensor
from ..device.expression import Number
from ..device.generated import GeneratedKernel
from ..device.layout import CODES, FP8, KIND
from ..device.source import sources
from ..device.text import C_TYPES, operand_text
from .problem import ConvLaunch, ConvProblem, Operands, epilogue_operands

__all__ = ["SpecializedProvider", "fixed_kernel", "fixed_launch", "has_kinds"]

_TYPES = {**C_TYPES, FP8: "unsigned char"}


class SpecializedProvider(ABC):
    """A family of such kernels.

    Args:
        device: Where arrays live.
    """

    def __init__(self, device: Device) -> None:
        self.device = device

    def compile(self, problem: ConvProblem, tactic: str) -> None:
        """Compile a tactic's kernel.

        Raises:
            KernelError: it does not compile.
            ValueError: there is no such tactic.
        """
        self._kernel(problem, tactic).compile()

    @abstractmethod
    def _kernel(self, problem: ConvProblem, tactic: str) -> GeneratedKernel:
        """The kernel of a tactic, which a file or the disk may name, once it is known that it fits the problem."""


def has_kinds(problem: ConvProblem) -> bool:
    """Whether such kernels have the types of all tensors."""
    tensors = (problem.x, problem.y, *([] if problem.residual is None else [problem.residual]))
    return {form.dtype for form in tensors} <= set(KIND)


def fixed_kernel(
    device: Device, name: str, problem: ConvProblem, numbers: Mapping[str, int], blocks: int, threads: int
) -> GeneratedKernel:
    """A kernel of the file of its name; its parameters are x, weights, scale, bias, steps, residual and y.

    Args:
        device: Where it runs.
        name: Of the kernel.
        problem: What is compiled in: types, pitches, filters and the epilogue.
        numbers: Further constants.
        blocks: How many it has.
        threads: Of a block.
    """
    text = "\n".join(
        (
            sources("early.cu", "codes.cu", "activations.cu", "nhwc.cu"),
            _constants(problem, numbers),
            sources(f"{name}.cu"),
        )
    )
    return GeneratedKernel(device, text, name, blocks, threads, in_turns=False)


def fixed_launch(
    device: Device, kernel: GeneratedKernel, problem: ConvProblem, weights: Any, operands: Operands
) -> ConvLaunch:
    """Load the kernel, and return a function that queues it; its first launch may be captured.

    Args:
        device: Where arrays live.
        kernel: From `fixed_kernel`.
        problem: What was compiled in.
        weights: On the device.
        operands: The other constants.
    """
    kernel.load()
    scale, bias = epilogue_operands(device, problem, operands)
    steps = np.array([operands.residual_scale, operands.y_scale], np.float32)
    uploaded = operands.on_device(device, ["residual_scale y_scale"], steps.nbytes, lambda: steps)

    def launch(x: Tensor, y: Tensor, residual: Tensor | None, stream: Any) -> None:
        added = None if residual is None else residual.flat
        kernel.launch([x.flat, weights, scale, bias, uploaded, added, y.flat], stream)

    return launch


def _constants(problem: ConvProblem, numbers: Mapping[str, int]) -> str:
    x, y, residual = problem.x, problem.y, problem.residual
    given = {
        "K": y.dims[1], "FILTERS": problem.filters, "SCALED": int(x.dtype in CODES), "OUT": KIND[y.dtype],
        "X_PITCH": x.pitch, "Y_PITCH": y.pitch, "RESIDUAL_PITCH": 0 if residual is None else residual.pitch,
        "RESIDUAL": -1 if residual is None else KIND[residual.dtype], "ACTIVATION": int(ACTIVATIONS[problem.activation]),
        "RESIDUAL_ACTIVATION": int(ACTIVATIONS[problem.residual_activation]),
        "SLOPED": int("prelu" in (problem.activation, problem.residual_activation)), **numbers,
    }  # fmt: skip
    bounds: Sequence[float] = (*problem.bounds, *problem.residual_bounds)
    lines = [f"typedef {_TYPES[x.dtype]} T;", f"typedef {_TYPES[y.dtype]} Y;"]
    lines += [f"constexpr int {name} = {number};" for name, number in given.items()]
    for name, bound in zip(("A", "B", "RESIDUAL_A", "RESIDUAL_B"), bounds, strict=True):
        lines.append(f"#define {name} {operand_text(Number.of(bound, DType.FLOAT32))}")
    return "\n".join(lines)
