"""The package's kernels compile for the GPUs that people have, by both compilers; `make test-slow`."""

import dataclasses
import itertools

import pytest

from pytrtplugins.cuda import CudaKernel, find_symbol
from pytrtplugins.engines.cuda.conv import problem
from pytrtplugins.engines.cuda.conv.depthwise import DepthwiseProvider
from pytrtplugins.engines.cuda.conv.skinny_gemm import SkinnyGemmProvider
from pytrtplugins.engines.cuda.device import attention, nhwc, pool, reformat, source
from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.engines.cuda.device.expression import Expression, Number
from pytrtplugins.engines.cuda.device.layout import channels_last
from pytrtplugins.engines.cuda.device.means import MeansKernel
from pytrtplugins.engines.cuda.device.pointwise import pointwise_text
from pytrtplugins.engines.cuda.device.recurrent import RecurrentProblem, recurrent_text
from pytrtplugins.engines.cuda.device.recurrent_form import CLUSTER, ONE_BLOCK, WHOLE_GRID, LanesForm
from pytrtplugins.engines.cuda.device.rows import rows_text
from pytrtplugins.engines.cuda.device.squeeze_excite import SqueezeExciteForm, squeeze_excite_text
from pytrtplugins.engines.cuda.run import launches
from pytrtplugins.layers import Region, Reorg
from pytrtplugins.tensor import DType
from pytrtplugins.vision import kernels
from tests.engines.cuda.conv.shapes import FP8, HALF, INT8, SINGLE, square, stem, tactics_of
from tests.engines.cuda.device.test_squeeze_excite import problem_of

pytestmark = pytest.mark.usefixtures("empty_cache")
FLOATS = ("float32", "float16")
HOLDERS = (Region, Reorg, kernels, nhwc, pool, reformat, launches, problem)
FOUND = [getattr(holder, name) for holder in HOLDERS for name in dir(holder)]
FOUND.append(attention._kernel("attention", 64))
MATRIX_UNITS = attention._kernel("attention_mma", 64)  # from capability 8.0 on
KERNELS = sorted(
    {found for found in FOUND if isinstance(found, CudaKernel)}, key=lambda kernel: (kernel.label, kernel.name)
)
WITH_INT8 = ("reorg", "reorg_nhwc", "letterbox")
WITH_FP8 = ("direct", "few_rows", "patches", "pool")  # as uint8
STEM = dataclasses.replace(stem(HALF), h=16, w=16, x_strides=(768, 256, 16, 1))


def test_no_kernel_is_left_out():
    files = {path.name for path in source.KERNELS.parent.rglob("*.cu")}
    ours = {f"conv_{family}.cu" for family in ("halo", "hopper", "mma", "simt")}
    ours |= {"common.cu", "copies.cu", "fence.cu", "hopper.cu", "late_copy.cu", "pool.cu", "stem.cu"}
    generated = {
        "activations.cu",
        "codes.cu",
        "cluster.cu",
        "early.cu",
        "pointwise.cu",
        "rows.cu",
        "depthwise.cu",
        "few_rows.cu",
        "recurrent.cu",
        "recurrent_lanes.cu",
        "recurrent_mma.cu",
        "means.cu",
        "squeeze_excite.cu",
        "transpose.cu",
    }
    indexed = "arg block_sums cumulate grid_sample indexed nonzero order_keys pools roi_align scatter scatter_table sort suppress unique"
    generated |= {f"{name}.cu" for name in indexed.split()}
    assert {kernel.label for kernel in (*KERNELS, MATRIX_UNITS)} == files - ours - generated


@pytest.fixture(params=["NVRTC", "nvcc"])
def compiler(request, compile_with):
    """Kernels are compiled by it."""
    compile_with(request.param)


BY_BOTH = pytest.mark.usefixtures("compiler")
GPUS = pytest.mark.parametrize("capability", [75, 80, 86, 89, 90])


@pytest.mark.slow
@BY_BOTH
@GPUS
def test_every_kernel_compiles_without_a_gpu(capability):
    for kernel in [*KERNELS, *[MATRIX_UNITS] * (capability >= 80)]:
        dtypes = (None,) if kernel.signature.element is None else FLOATS
        more = ["int8"] * (kernel.name in WITH_INT8) + ["uint8"] * (kernel.name in WITH_FP8)
        for dtype in (*dtypes, *more):
            cubin = kernel.compile(dtype, architecture=f"sm_{capability}")
            assert cubin.startswith(b"\x7fELF")
            assert find_symbol(cubin, kernel.name, kernel.label)


@pytest.mark.slow
@BY_BOTH
@GPUS
def test_every_kernel_of_engine_cuda_compiles_without_a_gpu(capability):
    wanted = [("simt", SINGLE)]
    wanted += [("mma", HALF), ("mma", INT8)] if capability >= 80 else []
    wanted += [("mma", FP8)] if capability >= 89 else []
    wanted += [*itertools.product(["hopper", "halo"], [HALF, INT8, FP8])] if capability == 90 else []
    given = [("fence", {}), ("copies", {}), ("late_copy", {"CYCLES": 1})]
    for family, x_type in wanted:
        forms = [{}, {"pool": True}, {"reorg": 2}, {"blocks": 2}, {"blocks": 2, "cut": (1, 1, 1, 1)}, {"linear": True}]
        forms += [{"group_channels": 8, "group_filters": 8}] if family != "simt" else []
        forms += [{"gate": 8}, {"residual_gate": 8, "residual_type": x_type, "residual_pitch": 64}]
        for more in forms:
            shape = square(1, 16, 64, 64, 3, x_type, **more)
            given += [
                (f"conv_{family}", tactic.definitions(shape)) for tactic in tactics_of(family, shape, 1, capability)
            ]
    if capability >= 80:
        window = {"T": 3, "R": 3, "S": 2, "STRIDE_D": 2, "STRIDE_H": 2, "STRIDE_W": 1, "PADDED": 1}
        given += [("pool", {"ELEMENT": element, **window}) for element in (0, 1, 2, 4)]
        given += [("stem", dataclasses.replace(STEM, pool=pool, prelu=pool).definitions()) for pool in (True, False)]
        given += [("stem", dataclasses.replace(STEM, element=INT8, y_type=INT8, x_type=DType.UINT8).definitions())]
    if capability >= 89:
        given += [("stem", dataclasses.replace(STEM, element=FP8, y_type=FP8).definitions())]
    for name, definitions in given:
        cubin = source.compile_kernel(f"{name}.cu", definitions, capability)
        assert cubin.startswith(b"\x7fELF")
        assert find_symbol(cubin, name, name) == name


@pytest.mark.slow
@BY_BOTH
@GPUS
@pytest.mark.parametrize("dtype", [SINGLE, HALF])
def test_generated_kernels_compile_without_a_gpu(dtype, capability):
    image, mean = channels_last((1, 24, 8, 8), dtype), channels_last((1, 24, 1, 1), dtype)
    gated = Expression.parse(1, ["Sigmoid float32 0", "Mul float32 0 1"], [2])
    pooled = Expression.parse(1, ["ReduceSum float32 0", "Mul float32 1 float32:0.015625"], [2])
    texts = {
        "pointwise": pointwise_text(gated, [image], [image]),
        "rows": rows_text(pooled, image.dims, (2, 3), [image], [mean]),
    }
    for name in ("transpose", "pixels", "planes", "convert"):
        texts[name] = reformat.transpose_text(name, dtype, DType.INT8, True)
    for name, text in texts.items():
        cubin = CudaKernel.from_source(text, name).compile(architecture=f"sm_{capability}")
        assert cubin.startswith(b"\x7fELF")


@pytest.mark.slow
@BY_BOTH
@pytest.mark.parametrize("scales", [True, False])
@pytest.mark.parametrize("dtype", [SINGLE, HALF])
def test_squeeze_excite_compiles_without_a_gpu(dtype, scales):
    for spread in ((16, 1, 512), (2, 8, 512), (1, 1, 512)):
        form = SqueezeExciteForm(problem_of((1, 152, 60, 60), 50, dtype, scales), *spread)
        kernel = CudaKernel(squeeze_excite_text(form), "squeeze_excite")
        assert kernel.compile(architecture="sm_90a").startswith(b"\x7fELF")


@pytest.mark.slow
@BY_BOTH
@GPUS
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_recurrences_compile_without_a_gpu(op, capability):
    at = {"operator": op, "direction": "bidirectional", "layout": 0, "hidden_size": 100}
    case = RecurrentProblem.of({**at, "linear_before_reset": 0, "input_forget": 0}, (9, 3, 0), HALF)
    for exchange in (ONE_BLOCK, CLUSTER, WHOLE_GRID) if capability >= 90 else (ONE_BLOCK, WHOLE_GRID):
        for kind, place in ((SINGLE, 0), (HALF, 1)):
            form = LanesForm(case.shape, exchange, 4 if exchange else 1, 1, 256, kind, place)
            kernel = CudaKernel(recurrent_text(case, form, True), "recurrent")
            assert kernel.compile(architecture=f"sm_{capability}").startswith(b"\x7fELF")


@pytest.mark.slow
@BY_BOTH
@GPUS
@pytest.mark.parametrize("dtype", [SINGLE, HALF, INT8, FP8])
def test_kernels_of_one_problem_compile_without_a_gpu(dtype, capability):
    form, vector = channels_last((1, 48, 9, 9), dtype), channels_last((1, 48, 1, 1), dtype)
    depthwise = problem.ConvProblem(x=form, y=form, kernel=(5, 5), pads=(2, 2, 2, 2), groups=48, activation="swish")
    product = problem.ConvProblem(x=vector, y=vector, kernel=(1, 1), activation="hard_sigmoid", bounds=(0.2, 0.5))
    if dtype in (SINGLE, HALF):
        means = MeansKernel(HostDevice(), form, vector, Number.of(1 / 81, SINGLE))
        assert means._kernel.compile(architecture=f"sm_{capability}").startswith(b"\x7fELF")
    for provider, case in ((DepthwiseProvider, depthwise), (SkinnyGemmProvider, product)):
        for tactic in provider(HostDevice()).tactics(case):
            kernel = provider(HostDevice())._kernel(case, tactic)
            assert kernel._kernel.compile(architecture=f"sm_{capability}").startswith(b"\x7fELF")
