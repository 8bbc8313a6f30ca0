"""Kernels of libraries behind kernels that let them begin early: what they read must have been written."""

import ctypes
import functools

import numpy as np
import pytest

from pytrtplugins.cuda.compiler import compile_source, newest_architecture
from pytrtplugins.cuda.driver import Function, Launch, Module
from pytrtplugins.engines.cuda.conv.cublaslt import CublasLtProvider
from pytrtplugins.engines.cuda.conv.cudnn import CudnnProvider
from pytrtplugins.engines.cuda.conv.delayed_copy import DelayedCopy
from pytrtplugins.engines.cuda.conv.problem import ConvProblem, DirectProvider, Operands, Scratch
from pytrtplugins.engines.cuda.conv.timer import Timer, hold_stream, pseudo_random_values
from pytrtplugins.engines.cuda.device.attention import AttentionProblem, Operand, attention
from pytrtplugins.engines.cuda.device.cublaslt import cublaslt_version
from pytrtplugins.engines.cuda.device.device import CudaDevice, tensor_at
from pytrtplugins.engines.cuda.device.fence import Fence
from pytrtplugins.engines.cuda.device.layout import channels_last, linear
from pytrtplugins.engines.cuda.run.cudnn_attention import CudnnAttention
from pytrtplugins.errors import KernelError
from pytrtplugins.tensor import DType
from tests.measures import relative

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]
HALF, CODES, SINGLE = DType.FLOAT16, DType.INT8, DType.FLOAT32


@functools.cache
def hopper():
    """The GPU, where kernels may begin early."""
    device = CudaDevice()
    if device.capability < 90:
        pytest.skip(f"compute capability {device.capability}: no kernel begins early there")
    return device


def cublaslt(device):
    """cuBLASLt's kernels; skips with the reason where they cannot be had."""
    if not cublaslt_version():
        pytest.skip('cuBLASLt is missing (pip install "pytrtplugins[cublaslt]")')
    return CublasLtProvider(device)


def convolution(c, k, side, size=1, stride=1, dtype=HALF, residual=False):
    x, y = channels_last((1, c, side, side), dtype), channels_last((1, k, side // stride, side // stride), dtype)
    pads = (size // 2,) * 4
    return ConvProblem(
        x=x, y=y, kernel=(size, size), strides=(stride, stride), pads=pads, activation="linear" if residual else "leaky",
        residual=y if residual else None, residual_activation="leaky",
    )  # fmt: skip


def operands_of(problem):
    k, c = problem.y.dims[1], problem.x.dims[1]
    codes = problem.x.dtype is CODES
    weights = pseudo_random_values(np, (k, c, *problem.kernel)) / (c * problem.kernel[0]) ** 0.5
    return Operands(
        load=lambda: np.rint(127 * weights).astype(np.int8) if codes else weights,
        bias=pseudo_random_values(np, (k,)),
        scale=np.full(k, 1 / 127**2, np.float32) if codes else None,
        residual_scale=1 / 127 if codes else 1.0,
        y_scale=1 / 40 if codes else 1.0,
    )


CASES = [
    convolution(*sizes, dtype=dtype, residual=residual)
    for sizes in ((64, 256, 56), (512, 1024, 28, 1, 2), (64, 64, 28, 3))
    for dtype in (HALF, CODES, SINGLE)
    for residual in (False, True)
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
@pytest.mark.parametrize("make", [CudnnProvider, cublaslt], ids=["cudnn", "cublaslt"])
def test_librarys_kernels_wait_for_what_they_read(case, make):
    device = hopper()
    timer, operands, provider = Timer(device, DirectProvider(device)), operands_of(case), make(device)
    tactics = list(provider.tactics(case))
    if not tactics:
        pytest.skip(f"{provider.name} has no kernel for {case.title}")
    hurried = [tactic for tactic in tactics if not timer.is_right(case, operands, provider, tactic)]
    timer._delayed_copy = None
    assert not [tactic for tactic in hurried if timer.is_right(case, operands, provider, tactic)]


def late(device, arrays, queue, captured):
    """Run work behind late copies of what it reads, which holds something else until then."""
    stream, copies, delayed = (
        device.new_streams(1)[0],
        [array.copy() for array in arrays],
        DelayedCopy(device.capability),
    )

    def both(stream):
        for source, target in zip(copies, arrays, strict=True):
            delayed.queue(source, target, stream)
        queue(stream)

    queue(stream)  # loads what it needs
    device.xp.cuda.Device().synchronize()
    for array in arrays:
        array.fill(1)
    device.xp.cuda.Device().synchronize()
    if captured:
        stream.begin_capture()
        try:
            both(stream)
        finally:
            graph = stream.end_capture()
        graph.launch(stream)
    else:
        with hold_stream(stream):
            both(stream)
    stream.synchronize()


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("captured", [False, True])
def test_what_does_not_wait_is_found_and_stands_behind_a_fence(fenced, captured):
    device = hopper()
    source, target = (device.xp.asarray(pseudo_random_values(np, (4096,))) for _ in range(2))
    wanted, fence, copy = source.get(), Fence(device.capability), _impatient(source, target)

    def queue(stream):
        if fenced:
            fence.queue(stream.ptr)
        copy(stream.ptr)

    late(device, [source], queue, captured)
    assert np.array_equal(target.get(), wanted) is fenced


def _impatient(source, target):
    """A copy that may begin early and does not wait."""
    text = """extern "C" __global__ void impatient(const float* source, float* target) {
        target[blockIdx.x * 128 + threadIdx.x] = source[blockIdx.x * 128 + threadIdx.x];
    }"""
    code = compile_source(
        text, newest_architecture(90), "impatient", lambda log, _: KernelError(log, path="impatient", line=None)
    )
    arguments = [ctypes.c_void_p(array.data.ptr) for array in (source, target)]
    return Launch(Function(Module(code), "impatient"), source.size // 128, 128, arguments, programmatic_launch=True)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("captured", [False, True])
def test_attention_waits_for_what_it_reads(captured, biased):
    device, dims = hopper(), (2, 4, 128, 128, 64, 64)
    lies = (4 * 128 * 64, 128 * 64, 64, 1)
    operand, scores = Operand(0, lies, HALF), Operand(0, (0, 128 * 128, 128, 1), HALF)
    problem = AttentionProblem(dims, operand, operand, operand, operand, scores if biased else None, 1, 0.125, False)
    form = linear((2, 4, 128, 64), HALF)
    tensors = [tensor_at(device.xp, device.allocate(form.bytes), 0, form) for _ in range(4)]
    for index, tensor in enumerate(tensors):
        tensor.view[...] = device.xp.asarray(pseudo_random_values(np, form.dims)) * (index + 1)
    bias = device.xp.asarray(pseudo_random_values(np, (4 * 128 * 128,)).astype(np.float16)) if biased else None
    q, k, v, y = tensors
    plain, library = (make(problem, q, k, v, y, bias) for make in (attention, CudnnAttention(device)))
    assert hasattr(library, "kept"), "cuDNN has none for this problem"
    stream = device.new_streams(1)[0]
    plain(stream)
    stream.synchronize()
    wanted = y.view.astype(np.float32).get()
    late(device, [q.flat, k.flat, v.flat] + ([bias] if biased else []), library, captured)
    assert relative(y.view.astype(np.float32).get(), wanted) < 3e-3


@pytest.mark.parametrize("dtype", [HALF, SINGLE])
@pytest.mark.parametrize("captured", [False, True])
def test_a_product_waits_for_what_it_reads(captured, dtype):
    device, forms = hopper(), [linear(dims, dtype) for dims in ((8, 128, 256), (8, 256, 64), (8, 128, 64))]
    a, b, y = (tensor_at(device.xp, device.allocate(form.bytes), 0, form) for form in forms)
    for tensor in (a, b):
        tensor.view[...] = device.xp.asarray(pseudo_random_values(np, tensor.format.dims))
    wanted, scratch = device.xp.matmul(a.view.astype(np.float64), b.view.astype(np.float64)).get(), Scratch()
    product = cublaslt(device).product(a, b, y, scratch)
    scratch.fill(device)
    late(device, [a.flat, b.flat], product, captured)
    assert relative(y.view.get().astype(np.float64), wanted) < 1e-3
