"""Classes that copy, with a fault in one form and one element type alone."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytrtplugins as ptp
from pytrtplugins.cuda import CudaKernel
from pytrtplugins.tensor import PLUGIN_DTYPES, DType

FAULTS = (
    "none",
    "a wrong order",
    "the last is not written",
    "written behind the end",
    "read behind the end",
    "an input is written",
)
"""Places are values of the field `fault`, and of the kernel's parameter."""


@ptp.plugin(namespace="faulty")
class Copy(ptp.Plugin):
    """Right in every type.

    Attributes:
        fault: What subclasses do in one type: place in `FAULTS`.
        of: Which type: place in `PLUGIN_DTYPES`. It and float32 are accepted; all types are where it is -1.
    """

    fault: int = 0
    of: int = -1

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x.copy()

    def supports_format(self, position, descs):
        desc = descs[position]
        place = PLUGIN_DTYPES.index(desc.dtype)
        accepted = place == 0 or self.of == -1 or self.of == place
        return desc.layout == "linear" and desc.dtype == descs[0].dtype and accepted


@ptp.plugin(namespace="faulty")
class Faulty(Copy):
    """Has the fault in `enqueue`."""

    kernel: ClassVar[CudaKernel] = CudaKernel.from_file(Path(__file__).parent / "faulty.cu", "faulty")

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        fault = 0
        for place, dtype in enumerate(PLUGIN_DTYPES):
            if DType.of(x) is dtype and self.of == place:
                fault = self.fault
        self._launch(x, y, fault, stream)

    def _launch(self, x, y, fault, stream):
        if DType.of(x) is DType.BFLOAT16:  # which kernels have no name for
            x, y = x.view("int16"), y.view("int16")
        self.kernel.launch(x, y, x.size, fault, threads=x.size, block=64, stream=stream)


@ptp.plugin(namespace="faulty")
class FaultyCompute(Faulty):
    """Has it in `compute`."""

    def compute(self, x):
        here = PLUGIN_DTYPES.index(DType.of(x)) == self.of
        y = x.copy()
        if here and FAULTS[self.fault] == "an input is written":
            x[...] = 1
        return y.reshape(-1)[::-1].reshape(x.shape) if here and FAULTS[self.fault] == "a wrong order" else y

    def enqueue(self, inputs, outputs, workspace, stream):
        self._launch(inputs[0], outputs[0], 0, stream)


@ptp.plugin(namespace="faulty")
class FaultyDecomposition(Copy):
    """Has it in `decompose`, and takes that type alone: operators of ONNX do the same in every type."""

    def supports_format(self, position, descs):
        alone = self.of == -1 or descs[position].dtype is PLUGIN_DTYPES[self.of]
        return super().supports_format(position, descs) and alone

    def decompose(self, op, x):
        return op.CastLike(op.Not(op.Cast(x, to=9)), x) if self.fault else op.Identity(x)  # 9: bool
