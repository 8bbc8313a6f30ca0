"""A planned step → a function that queues its work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...cuda import CudaKernel, launches_kernels
from ...cuda.prepare import prepare_plugin
from ...errors import BuildError
from ...plugin import Plugin
from ...tensor import DType, TensorDesc
from ..plugin_runner import naming_node
from .conv import KINDS, ConvLaunch, ConvProblem, Operands
from .device import Device, Tensor
from .format import Format
from .ops import ACTIVATIONS, OPS
from .own_pool import own_pool
from .plan import Plan, Step

__all__ = ["Launch", "StepBuilder", "conv_operands", "conv_problem", "max_pool", "reformat"]

Launch = Callable[[Any], None]
"""Queues a step's work on a stream."""

_SOURCE = Path(__file__).parent / "nhwc.cu"
_POOL = CudaKernel.from_file(_SOURCE, "pool")
_MAX_POOL = CudaKernel.from_file(_SOURCE, "max_pool")
_PIXELS = CudaKernel.from_file(_SOURCE, "pixels")
_PLANES = CudaKernel.from_file(_SOURCE, "planes")
_GATE = CudaKernel.from_file(_SOURCE, "gate")
_REFORMAT = CudaKernel.from_file(_SOURCE, "reformat")
_KNOWN_WHILE_PLANNED = {
    "Reshape": (1,), "Squeeze": (1,), "Unsqueeze": (1,), "Expand": (1,), "Slice": (1, 2, 3, 4), "Split": (1,),
    "Pad": (1, 2, 3), "ReduceMean": (1,), "ReduceSum": (1,), "ReduceMax": (1,), "ReduceMin": (1,), "ReduceL2": (1,),
    "ReduceSumSquare": (1,), "Resize": (1, 2, 3),
}  # fmt: skip


def conv_problem(step: Step, plan: Plan, tf32: bool) -> ConvProblem:
    """The problem that a ``conv`` step poses.

    Args:
        step: The step.
        plan: Its plan.
        tf32: Whether a convolution in float32 may round its operands to TF32.
    """
    at, names = step.attributes, step.inputs
    weights = plan.constants[names[1]]
    residual = plan.tensors[names[3]].format if len(names) > 3 and names[3] else None
    r, s = (int(side) for side in weights.shape[2:])
    x, y = plan.tensors[names[0]].format, plan.tensors[step.outputs[0]].format
    image = (DType.INT8 if at["x_scale"] else y.dtype) if at["image"] else None
    return ConvProblem(
        x,
        y,
        (r, s),
        (int(at["strides"][0]), int(at["strides"][1])),
        (int(at["pads"][0]), int(at["pads"][1]), int(at["pads"][2]), int(at["pads"][3])),
        (int(at["dilations"][0]), int(at["dilations"][1])),
        int(at["group"]),
        at["activation"],
        (float(at["bounds"][0]), float(at["bounds"][1])),
        residual,
        at["residual_activation"],
        (float(at["residual_bounds"][0]), float(at["residual_bounds"][1])),
        tf32 or (image or x.dtype) is not DType.FLOAT32,
        bool(at["pool"]),
        image,
        int(at["reorg"]),
    )


def conv_operands(
    step: Step, constants: Mapping[str, npt.NDArray[Any]], weights: Callable[[str], npt.NDArray[Any]] | None = None
) -> Operands:
    """Its constants; ``weights`` gives by name those that the plan leaves out."""
    at, names = step.attributes, step.inputs
    scale = None
    if at["x_scale"]:
        scale = (np.float64(at["x_scale"]) * constants[names[4]].astype(np.float64)).astype(np.float32)
    return Operands(
        lambda: (weights or constants.__getitem__)(names[1]),
        constants[names[2]].astype(np.float32),
        scale,
        float(np.float32(at["y_scale"])) or 1.0,
        float(np.float32(at["residual_scale"])) or 1.0,
        float(np.float32(at["x_scale"])) or 1.0,
    )


@dataclass
class StepBuilder:
    """Makes the launches of one context and one plan.

    Attributes:
        device: Where arrays live.
        plan: The plan.
        tensors: The plan's tensors in memory.
        conv: A convolution's launch, with the tactic that was chosen.
        plugins: Plugins made so far, to be closed with the context.
    """

    device: Device
    plan: Plan
    tensors: Mapping[str, Tensor]
    conv: Callable[[Step], ConvLaunch]
    plugins: list[Plugin]

    def build(self, step: Step) -> Launch:
        """The function that queues a step."""
        makers: dict[str, Callable[[Step], Launch]] = {
            "conv": self._conv,
            "pool": self._pool,
            "activation": self._activation,
            "reformat": self._reformat,
            "zero": self._zero,
            "plugin": self._plugin,
            "generic": self._generic,
        }
        return makers[step.kind](step)

    def _conv(self, step: Step) -> Launch:
        launch, names = self.conv(step), step.inputs
        x, y = self.tensors[names[0]], self.tensors[step.outputs[0]]
        residual = self.tensors[names[3]] if len(names) > 3 and names[3] else None
        return lambda stream: launch(x, y, residual, stream)

    def _pool(self, step: Step) -> Launch:
        x, y, at = self.tensors[step.inputs[0]], self.tensors[step.outputs[0]], step.attributes
        (n, c, h, w), (_, _, oh, ow) = x.format.dims, y.format.dims
        channels = c if c % y.format.vector == 0 else min(x.format.pitch, y.format.pitch)
        pads = tuple(at.get("pads", (0, 0, 0, 0)))
        aligned = all(form.pitch % form.vector == 0 and channels % form.vector == 0 for form in (x.format, y.format))
        if aligned and step.op == "MaxPool":
            sizes = tuple(at["kernel_shape"]), tuple(at.get("strides", (1, 1)))
            own: Launch | None = None if any(pads) else own_pool(self.device, x, y, *sizes)
            return own or max_pool(x, y, *sizes, (pads[0], pads[1]))
        numbers = (
            n, h, w, channels, x.format.pitch, oh, ow, y.format.pitch, tuple(at["kernel_shape"]),
            tuple(at.get("strides", (1, 1))), pads[:2], step.op == "AveragePool", bool(at.get("count_include_pad", 0)),
            h + pads[2], w + pads[3],
        )  # fmt: skip
        threads = n * oh * ow * channels
        return lambda stream: _POOL.launch(x.flat, y.flat, *numbers, threads=threads, stream=stream)

    def _activation(self, step: Step) -> Launch:
        x, y = self.tensors[step.inputs[0]], self.tensors[step.outputs[0]]
        n, c, h, w = y.format.dims
        groups = -(-c // y.format.vector)
        numbers = (n * h * w, c, groups, x.format.pitch, y.format.pitch, ACTIVATIONS[step.op])
        return lambda stream: _GATE.launch(x.flat, y.flat, *numbers, threads=n * h * w * groups, stream=stream)

    def _reformat(self, step: Step) -> Launch:
        x, y, at = self.tensors[step.inputs[0]], self.tensors[step.outputs[0]], step.attributes
        return reformat(x, y, float(at.get("x_scale", 1.0)), float(at.get("y_scale", 1.0)), "part" not in at)

    def _zero(self, step: Step) -> Launch:
        y, begin = self.tensors[step.outputs[0]], step.attributes["from"]
        padding = _with_padding(self.device.xp, y)[..., begin:]

        def launch(stream: Any) -> None:
            padding[...] = 0

        return launch

    def _plugin(self, step: Step) -> Launch:
        if step.plugin is None:
            raise BuildError(f"engine 'cudnn': step {step.name!r} has no plugin")
        plugin = step.plugin.clone()
        inputs, outputs = ([self.tensors[name] for name in names] for names in (step.inputs, step.outputs))
        ins, outs = (
            [
                TensorDesc(f"{step.name}.{kind}{index}", t.format.dims, t.format.dtype, _layout(t.format))
                for index, t in enumerate(tensors)
            ]
            for kind, tensors in (("input", inputs), ("output", outputs))
        )
        plugin.configure(ins, outs)
        size = plugin.workspace_size(ins, outs)
        workspace = self.device.allocate(size) if size else None
        plugin.initialize()
        self.plugins.append(plugin)
        if launches_kernels(type(plugin)):
            prepare_plugin(plugin, ins, outs, size)
        arrays = [[t.flat.reshape(t.format.dims) for t in tensors] for tensors in (inputs, outputs)]

        def launch(stream: Any) -> None:
            with naming_node(step.name):
                plugin.enqueue(arrays[0], arrays[1], workspace, stream)

        return launch

    def _generic(self, step: Step) -> Launch:
        xp, function = self.device.xp, OPS[step.op]
        kept = _KNOWN_WHILE_PLANNED.get(step.op, ())
        operands: list[Any] = []
        for index, name in enumerate(step.inputs):
            if not name or name in self.tensors:
                operands.append(self.tensors[name].view if name else None)
            else:
                array = self.plan.constants[name]
                operands.append(array if index in kept else self.device.upload(array))
        outputs = [self.tensors[name] for name in step.outputs if name]
        dims = [output.format.dims for output in outputs]
        paddings = [
            _with_padding(xp, output)[..., output.format.dims[1] :]
            for output in outputs
            if output.format.nhwc and output.format.dims[1] % output.format.vector
        ]

        def launch(stream: Any) -> None:
            given = [_computed_in(value) for value in operands]
            result = function(xp, step.attributes, dims, *given)
            results = result if isinstance(result, (list, tuple)) else [result]
            for output, value in zip(outputs, results, strict=True):
                output.view[...] = value
            for padding in paddings:
                padding[...] = 0

        return launch


def reformat(x: Tensor, y: Tensor, x_step: float = 1.0, y_step: float = 1.0, alone: bool = True) -> Launch:
    """Another type, layout or step of the same values; where y lies ``alone``, channels that fill 16 bytes become zero."""
    image, form = _as_image(x.format), _as_image(y.format)
    n, c, h, w = form.dims
    if alone and _is_planes(image) and _is_vectors(form) and x_step == 1.0:
        groups = -(-c // form.vector)
        return lambda stream: _PIXELS.launch(
            x.flat, y.flat, n, c, groups, h * w, form.pitch, y_step, threads=n * groups * h * w, stream=stream
        )
    if _is_vectors(image) and _is_planes(form) and y_step == 1.0:
        groups = -(-c // image.vector)
        return lambda stream: _PLANES.launch(
            x.flat, y.flat, n, c, groups, h * w, image.pitch, x_step, threads=n * groups * h * w, stream=stream
        )
    padded = min(form.pitch, -(-c // form.vector) * form.vector) if alone and form.nhwc and c % form.vector else c
    numbers = (
        KINDS[x.format.dtype], image.strides, x_step, y.flat, KINDS[y.format.dtype], form.strides, y_step,
        n, c, padded, h, w, form.nhwc,
    )  # fmt: skip
    threads = n * padded * h * w
    return lambda stream: _REFORMAT.launch(x.flat, *numbers, threads=threads, stream=stream)


def max_pool(
    x: Tensor,
    y: Tensor,
    kernel: tuple[int, ...] = (2, 2),
    strides: tuple[int, ...] = (2, 2),
    pads: tuple[int, int] = (0, 0),
) -> Launch:
    """The largest value of each window, of tensors whose channels fill 16 bytes, padding included."""
    (n, c, h, w), (_, _, oh, ow) = x.format.dims, y.format.dims
    channels = -(-c // x.format.vector) * x.format.vector
    numbers = (n, h, w, channels, x.format.pitch, oh, ow, y.format.pitch, kernel, strides, pads)
    runs = n * oh * ow * channels // x.format.vector
    return lambda stream: _MAX_POOL.launch(x.flat, y.flat, *numbers, threads=runs, stream=stream)


def _as_image(form: Format) -> Format:
    if len(form.dims) == 4:
        return form
    return replace(form, dims=(1, 1, 1, form.elements))


def _is_planes(form: Format) -> bool:
    return form.dtype is DType.FLOAT32 and not form.nhwc


def _is_vectors(form: Format) -> bool:
    """Whether a tensor consists of 16-byte groups of channels, the last of a pixel padded at most."""
    c, vector = form.dims[1], form.vector
    return (
        form.nhwc
        and form.dtype is not DType.UINT8
        and form.pitch % vector == 0
        and (c % vector == 0 or form.pitch - c < vector)
    )


def _with_padding(xp: Any, tensor: Tensor) -> Any:
    """The view (N, H, W, pitch) of an NHWC tensor, padding included."""
    n, _, h, w = tensor.format.dims
    pitch, size = tensor.format.pitch, tensor.format.dtype.itemsize
    strides = tuple(stride * size for stride in (h * w * pitch, w * pitch, pitch, 1))
    return xp.lib.stride_tricks.as_strided(tensor.flat, (n, h, w, pitch), strides)


def _layout(form: Format) -> str:
    return "nhwc" if form.nhwc else "linear"


def _computed_in(value: Any) -> Any:
    return value.astype(np.float32) if value is not None and value.dtype == DType.FLOAT16.numpy else value
