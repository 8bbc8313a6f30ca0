"""The whole engine but the GPU: lowered, fused, planned, and run on NumPy arrays with the engine's kernels."""

import math

import numpy as np

from pytrtplugins.engines import BuildOptions
from pytrtplugins.engines.cuda.conv.problem import DirectProvider
from pytrtplugins.engines.cuda.conv.selector import ConvSelector
from pytrtplugins.engines.cuda.device.device import HostDevice, tensor_at
from pytrtplugins.engines.cuda.device.elements import decoded, encoded, from_stored, to_stored
from pytrtplugins.engines.cuda.device.layout import FP8
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.plan.planner import make_plan
from pytrtplugins.engines.cuda.plan.weights import take_weights
from pytrtplugins.engines.cuda.run.execution import Execution
from pytrtplugins.engines.reference.engine import ReferenceEngine
from pytrtplugins.model.proto import info_dims, info_dtype
from pytrtplugins.plugin.policy import NO_REQUESTS
from pytrtplugins.tensor import DType, bind_dims
from tests.engines.cuda.plans import note_plan
from tests.measures import relative


class NumpyProvider:
    """A convolution as one matrix product for each tap, with the epilogue of the kernels: fast enough for whole networks."""

    name = "numpy"

    def tactics(self, problem):
        return [] if problem.fused else ["taps"]

    def prepare(self, problem, tactic, operands, scratch):
        return lambda x, y, residual, stream: convolve(problem, operands, x, y, residual)


def convolve(problem, operands, x, y, residual):
    n, k, oh, ow = problem.y.dims
    (r, s), (sh, sw), (top, left, bottom, right) = problem.kernel, problem.strides, problem.pads
    values = np.pad(
        decoded(np, x.view, x.format.dtype).astype(np.float64), [(0, 0), (0, 0), (top, bottom), (left, right)]
    )
    sums = np.zeros((n, k, oh, ow))
    dh, dw = problem.dilations
    for i in range(r):
        for j in range(s):
            part = values[:, :, i * dh : i * dh + (oh - 1) * sh + 1 : sh, j * dw : j * dw + (ow - 1) * sw + 1 : sw]
            if not part.any():  # nothing but border, as most taps of small images
                continue
            weights = operands.weights[:, :, i, j].astype(x.format.dtype.numpy).astype(np.float64)
            if problem.groups == 1:
                sums += np.tensordot(weights, part, ([1], [1])).transpose(1, 0, 2, 3)
            else:
                part = part.reshape(n, problem.groups, -1, oh, ow)
                filters = weights.reshape(problem.groups, k // problem.groups, -1)
                sums += np.einsum("ngchw,gkc->ngkhw", part, filters).reshape(sums.shape)
    column = (slice(None), None, None)
    result = sums.astype(np.float32) * (1 if operands.scale is None else operands.scale[column]) + operands.bias[column]
    result = activated(result, problem.activation, problem.bounds, operands.slopes)
    if residual is not None:
        added = decoded(np, residual.view, residual.format.dtype).astype(np.float32)
        result = result + added * np.float32(operands.residual_scale)
        result = activated(result, problem.residual_activation, problem.residual_bounds, operands.slopes)
    if y.format.dtype is DType.INT8:
        result = np.clip(np.rint(result / np.float32(operands.y_scale)), -128, 127)
    if y.format.dtype is FP8:
        result = encoded(np, result / np.float32(operands.y_scale), FP8, {})
    y.view[...] = result
    if problem.filters > k:
        base = np.lib.stride_tricks.as_strided
        form, size = y.format, y.flat.itemsize
        strides = [stride * size for stride in (oh * ow * form.pitch, form.pitch, 1)]
        base(y.flat, (n, oh * ow, problem.filters), strides)[..., k:] = 0


def activated(values, kind, bounds, slopes=None):
    if kind == "prelu":
        return np.where(values < 0, values * slopes[:, None, None], values)
    if kind == "leaky":
        return np.where(values > 0, values, values * np.float32(bounds[0])) if bounds[0] else np.maximum(values, 0)
    if kind == "clip":
        low, high = bounds
        return np.clip(values, np.float32(low), np.float32(high))
    if kind in ("logistic", "swish", "quick_gelu"):
        share = 1 / (1 + np.exp(-np.maximum(values * np.float32(1.702 if kind == "quick_gelu" else 1), -80)))
        return share if kind == "logistic" else values * share
    if kind == "hard_swish":
        return values * np.clip(values / 6 + np.float32(0.5), 0, 1)
    if kind == "hard_sigmoid":
        return np.clip(values * np.float32(bounds[0]) + np.float32(bounds[1]), 0, 1)
    if kind == "gelu":
        return values / 2 * (1 + np.vectorize(math.erf, otypes=[np.float32])(values / np.sqrt(2)))
    if kind == "gelu_tanh":
        return values / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (values + 0.044715 * values**3)))
    return values


def host_execution(
    model, inputs, float_type=DType.FLOAT32, disable=(), direct=False, requested=NO_REQUESTS, outside=None, lowered=None
):
    """A prepared model's execution for inputs of these dims; ``lowered``: what `lower` gave for it before."""
    sizes = {}
    for info in model.graph.input:
        sizes.update(bind_dims(info_dims(info), inputs[info.name].shape))
    if lowered is None:
        lowered = lower(model, disable, requested, float_type)
    lowered = lowered.clone()
    weights = take_weights(lowered)  # as the engine does: what takes other constants gives NaN
    device = HostDevice()
    providers = [DirectProvider(device)] if direct else [NumpyProvider(), DirectProvider(device)]
    selector = ConvSelector(device, providers, weights=weights.__getitem__)
    plan = make_plan(lowered, sizes, disable, requested)
    note_plan(plan)
    execution = Execution(device, plan, selector.launch, outside(plan) if outside else {})
    execution._arena[:] = 0x7F  # NaN in float16, 3e38 in float32: what is read without having been written shows
    execution.weights = weights.__getitem__
    for info in model.graph.output:
        if info.name in plan.outputs:
            planned = execution.tensors[plan.outputs[info.name]].format.dtype
            assert planned is info_dtype(info), f"output {info.name} is planned in {planned}"
    return execution


def run_on_host(model, inputs, float_type=DType.FLOAT32, disable=(), direct=False, requested=NO_REQUESTS, lowered=None):
    """Outputs of a prepared model, and the execution."""
    execution = host_execution(model, inputs, float_type, disable, direct, requested, lowered=lowered)
    for name, array in inputs.items():
        execution.input(name)[...] = to_stored(array)
    execution.queue(None)
    return {info.name: outcome(execution, info.name) for info in model.graph.output}, execution


def by_reference(model, inputs, precision="fp32"):
    """What the reference engine gives."""
    with ReferenceEngine(model, BuildOptions(precision)).create_context() as context:
        return context.run(inputs)


def assert_near(found, wanted, room):
    """The error of each output is less than so much of the norm."""
    for name, values in wanted.items():
        assert relative(found[name], values) < room, name


def assert_close(found, wanted, room):
    """The error of each value of the outputs is so much of it, and so much more, at most."""
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=room, atol=room, err_msg=name)


def assert_same(found, wanted):
    """All outputs are equal bit by bit."""
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def filled(form, values, gap=0):
    """A tensor of the host with these values; ``gap`` lies between and behind them."""
    tensor = tensor_at(np, HostDevice().allocate(form.bytes + 64), 0, form)
    tensor.flat[...] = gap
    tensor.view[...] = values
    return tensor


def copied(device, tensor):
    """A tensor's copy on a GPU, with what lies between and behind its values."""
    memory = device.upload(np.ascontiguousarray(tensor.flat).view(np.uint8))
    return tensor_at(device.xp, memory, 0, tensor.format)


def outcome(execution, name):
    """An output after a run."""
    if name in execution.late:
        return execution.late[name].numbers()
    form = execution.tensors[execution.plan.outputs[name]].format
    return from_stored(execution.output(name).copy(), form.dtype)


def run_shuffled(execution, inputs, seed):
    """Outputs of an execution whose steps run in any order that its streams allow, and that order."""
    before = execution.plan.schedule.before
    rng, left, done, order = np.random.default_rng(seed), list(range(len(execution.launches))), 0, []
    execution._arena[:] = 0x7F
    for name, array in inputs.items():
        execution.input(name)[...] = array
    while left:
        step = int(rng.choice([step for step in left if not before[step] & ~done]))
        left.remove(step)
        order.append(step)
        done |= 1 << step
        execution.launches[step][1](None)
    return {name: execution.output(name).copy() for name in execution.plan.outputs}, order
