"""Global average pooling of NHWC images, as in squeeze-excite blocks and before classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....tensor import DType
from .device import Device, Tensor
from .expression import Expression, Number
from .generated import GeneratedKernel
from .layout import Format
from .nhwc import Launch
from .source import sources
from .text import C_TYPES, operand_text

__all__ = ["MeansKernel", "means_kernel"]

_THREADS = 256
_BLOCKS = 256
"""With fewer, blocks share the pixels of an image."""
_LOADS, _SPLITS = 16, 16
"""Pieces that a thread reads before blocks share an image, since to put parts together takes as long as to read them; and how
many blocks share one at most, for the last of them adds all parts."""


class MeansKernel(GeneratedKernel):
    """The kernel of ``means.cu``, with memory of its own where blocks share an image.

    Args:
        device: Where it runs.
        x: Images, NHWC.
        y: A value for each image and channel.
        factor: What sums are multiplied by.
    """

    def __init__(self, device: Device, x: Format, y: Format, factor: Number) -> None:
        n, c, h, w = x.dims
        pieces, area = -(-c // x.vector), h * w
        side = next(side for side in (4, 2, 1) if pieces % side == 0)
        groups = pieces // side
        splits = max(1, min(_BLOCKS // (n * groups), area * side // (_THREADS * _LOADS), _SPLITS))
        numbers = {
            "N": n, "C": c, "AREA": area, "X_PITCH": x.pitch, "Y_PITCH": y.pitch or c, "SIDE": side, "SPLITS": splits,
            "THREADS": _THREADS,
        }  # fmt: skip
        lines = [f"typedef {C_TYPES[x.dtype]} T;", f"typedef {C_TYPES[y.dtype]} Y;"]
        lines += [f"constexpr int {name} = {number};" for name, number in numbers.items()]
        lines += [f"#define FACTOR {operand_text(factor)}"]
        text = "\n".join((sources("early.cu", "codes.cu", "activations.cu", "nhwc.cu"), *lines, sources("means.cu")))
        super().__init__(device, text, "means", n * groups * splits, _THREADS, in_turns=False)
        self._words = (n * splits * groups * side * x.vector + n * groups) if splits > 1 else 0

    def prepare(self, tensors: Sequence[Tensor]) -> Launch:
        """Return a function that queues the kernel for the images and their means."""
        scratch = self._device.upload(np.zeros(self._words, np.float32)) if self._words else None
        queue = self.bound([*(tensor.flat for tensor in tensors), scratch])

        def launch(stream: Any, kept: Any = scratch) -> None:
            queue(stream)

        return launch


def means_kernel(
    device: Device, expression: Expression, axes: Sequence[int], inputs: Sequence[Format], outputs: Sequence[Format]
) -> MeansKernel | None:
    """The kernel for an expression of rows that is the mean of each channel of images in NHWC; None for others.

    Args:
        device: Where it runs.
        expression: What is computed.
        axes: Of a row.
        inputs: How the inputs lie.
        outputs: How the results lie.
    """
    operations, form, result = expression.operations, inputs[0], outputs[0]
    if [each.op for each in operations] != ["ReduceSum", "Mul"] or tuple(axes) != (2, 3) or len(inputs) != 1:
        return None
    factor = operations[1].operands[1]
    if operations[0].operands != (0,) or operations[1].operands[0] != 1 or not isinstance(factor, Number):
        return None
    if expression.results != (2,) or not {form.dtype, result.dtype} <= {DType.FLOAT32, DType.FLOAT16}:
        return None
    fits = form.nhwc and form.pitch % form.vector == 0
    return MeansKernel(device, form, result, factor) if fits else None
