"""Every convolution of a run, held against its definition in float64 on the very tensors that it read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pytrtplugins.engines.cuda.conv.problem import DirectProvider, Scratch
from pytrtplugins.engines.cuda.conv.selector import ConvSelector
from pytrtplugins.engines.cuda.conv.step import conv_operands, conv_problem
from pytrtplugins.engines.cuda.device.device import HostDevice, Tensor, rows_of, tensor_at
from pytrtplugins.engines.cuda.device.elements import decoded
from pytrtplugins.engines.cuda.device.layout import FP8, Format
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import NumpyProvider


@dataclass(frozen=True)
class Layer:
    """What a convolution gave, and what it should have given.

    ``magnitude`` is the same convolution of absolute values, without rounding to codes: what rounding errors are relative to. What
    is written as FP8 is given as the codes' values, and the magnitude in their unit. ``half_sums``: a library rounds the sums
    themselves to float16.
    """

    name: str
    x: DType
    y: DType
    found: np.ndarray
    wanted: np.ndarray
    magnitude: np.ndarray | None
    half_sums: bool = False


def of_cublaslt(engine):
    """Names of the layers that cuBLASLt runs with their epilogue."""
    rows = [row for row in engine.tactics() if row.choice.provider == "cublaslt" and "fused" in row.choice.tactic]
    return {name for row in rows for name in row.layers}


def of_cudnn(engine):
    """Names of the layers whose sums cuDNN writes, in float16 where the layer is: the epilogue is a kernel of its own."""
    rows = [row for row in engine.tactics() if row.choice.provider == "cudnn" and "plain" in row.choice.tactic]
    return {name for row in rows for name in row.layers}


def layers_of(execution, tf32=True, weights=None, half_bias=(), half_sums=()):
    """The convolutions of an execution that has run, and whose tensors share no memory (``disable=["reuse"]``).

    ``weights`` gives those that an engine's plans leave out, by name. ``half_bias`` are layers of cuBLASLt's, which wants a bias
    in the output's type, as it wants weights; ``half_sums`` are cuDNN's.
    """
    host = HostDevice()
    selector = ConvSelector(host, [NumpyProvider(), DirectProvider(host)])
    for step in execution.plan.steps:
        if step.kind != "conv":
            continue
        problem = conv_problem(step, execution.plan, tf32)
        operands = conv_operands(step, execution.plan.constants, weights)
        if step.name in half_bias and problem.y.dtype is DType.FLOAT16:
            operands = replace(operands, bias=operands.bias.astype(np.float16).astype(np.float32))
        names = [step.inputs[0], step.inputs[3] if len(step.inputs) > 3 else ""]
        x, residual = (on_host(execution.tensors[name]) if name else None for name in names)
        found, magnitude = on_host(execution.tensors[step.outputs[0]]), None
        if step.attributes["rows"]:
            x, found = rows_of(np, x), rows_of(np, found)
            residual = None if residual is None else rows_of(np, residual)
        wanted = computed(selector, problem, operands, x, residual)
        if found.format.dtype is not DType.INT8:
            plain = replace(problem, y=in_float32(problem.y)) if found.format.dtype is FP8 else problem
            positive = replace(operands, load=partial(np.abs, operands.weights), bias=np.abs(operands.bias), packed={})
            sizes = [None if tensor is None else absolute(tensor) for tensor in (x, residual)]
            magnitude = computed(selector, plain, positive, *sizes)
            magnitude = magnitude * max(1.0, *np.abs([1.0] if operands.slopes is None else operands.slopes))
        given = found.view
        if found.format.dtype is FP8:
            given, wanted = (decoded(np, codes, FP8) for codes in (given, wanted))
            magnitude = magnitude / np.float32(operands.y_scale)
        dtypes = problem.element or problem.x.dtype, problem.y.dtype
        yield Layer(step.name, *dtypes, given, wanted, magnitude, step.name in half_sums)


def computed(selector, problem, operands, x, residual):
    scratch, wide = Scratch(), problem.y.dtype
    if wide is DType.FLOAT16:  # the result before it is rounded
        problem = replace(problem, y=in_float32(problem.y))
    launch = selector._prepare(problem, operands, scratch)
    scratch.fill(HostDevice())
    y = tensor_at(np, HostDevice().allocate(problem.y.bytes), 0, problem.y)
    launch(x, y, residual, None)
    return y.view


def in_float32(form):
    return Format(form.dims, DType.FLOAT32, form.pitch)


def absolute(tensor):
    if tensor.format.dtype is FP8:
        return Tensor(tensor.flat & 0x7F, tensor.format, tensor.view & 0x7F)
    return Tensor(np.abs(tensor.flat), tensor.format, np.abs(tensor.view))


def on_host(tensor):
    """A tensor of any device as NumPy arrays."""
    flat = tensor.flat.get() if hasattr(tensor.flat, "get") else tensor.flat
    return tensor_at(np, np.ascontiguousarray(flat).view(np.uint8), 0, tensor.format)


HOPPER_FP8 = 2.0**-8
"""Of the sum of magnitudes: what sums of FP8 lose at most on Hopper's matrix units, which keep some 14 bits, in hundreds of steps."""


def assert_right(layer, precision, fp8_sums=2.0**-16):
    """One layer alone.

    FP32: 1e-5 of the norm. TF32 rounds both factors of a product to 11 bits, so errs by 2^-10 of the sum of magnitudes at
    most. FP16: products are exact, sums in float32 (2^-24 a step; 2^-16 allows for 256 in a row), and the result rounded by
    2^-11 of itself; so too an image that was rounded to half first, and sums that a library wrote in half. INT8: one step in
    0.2 % of the values. FP8: the same, with what its sums lose, and one code in 5 % of the values.
    """
    if layer.magnitude is None:
        off = np.abs(layer.found.astype(np.int32) - layer.wanted)
        assert off.max() <= 1, layer.name
        assert (off > 0).mean() < 2e-3, layer.name
        return
    error = np.abs(layer.found.astype(np.float64) - layer.wanted)
    if precision == "fp32" and layer.x is DType.FLOAT32:
        assert np.linalg.norm(error) <= 1e-5 * np.linalg.norm(layer.wanted), layer.name
        return
    share = {DType.FLOAT32: 2.0**-10, FP8: fp8_sums}.get(layer.x, 2.0**-16)
    if layer.y is FP8:
        lost = share * layer.magnitude + 2.0**-9
        assert (error <= lost + np.abs(layer.wanted) / 8).all(), layer.name
        assert (error > lost).mean() < 0.05, layer.name
        return
    if layer.half_sums and layer.x is DType.FLOAT16:
        share += 2.0**-11
    rounding = 2.0**-11 * np.abs(layer.wanted) + 2.0**-24 if layer.found.dtype == np.float16 else 0
    assert (error <= share * layer.magnitude + rounding).all(), layer.name
