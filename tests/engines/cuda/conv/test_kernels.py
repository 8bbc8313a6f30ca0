"""The kernels compile for the GPUs that they are for."""

import itertools

import pytest

from pytrtplugins.engines.cuda.device.source import compile_kernel, wgmma_text
from tests.engines.cuda.conv.shapes import FP8, HALF, INT8, SINGLE, grouped, square, stem, tactics_of


def test_the_matrix_instruction_names_each_register_once():
    text = wgmma_text(64, INT8)
    assert "m64n64k32.s32.s8.s8" in text
    assert all(text.count(f'"+r"(d[{index}])') == 1 for index in range(32))
    assert '"+f"(d[31])' in wgmma_text(64, HALF)
    assert "m64n64k32.f32.e4m3.e4m3" in wgmma_text(64, FP8)
    assert "%32, %33, 1, 1, 1;" in wgmma_text(64, FP8)


@pytest.mark.parametrize("compiler", ["NVRTC", "nvcc"])
@pytest.mark.parametrize(
    ("family", "x_type"),
    [*itertools.product(["hopper", "halo", "mma"], [HALF, INT8, FP8]), ("simt", SINGLE)],
)
def test_kernels_compile(family, x_type, compiler, compile_with):
    compile_with(compiler)
    shape, capability = square(1, 16, 64, 64, 3, x_type, pool=True), 89 if x_type is FP8 else 80
    tactic = tactics_of(family, shape, capability=capability)[0]
    cubin = compile_kernel(f"conv_{family}.cu", tactic.definitions(shape), capability)
    assert cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize("side", [416, 32])
def test_kernels_whose_blocks_compute_several_tiles_compile(side, compile_with):
    compile_with("NVRTC")
    shape = square(8, side // 2, 32 if side > 32 else 256, 64, 3, INT8)
    found = {tactic.keeps_weights(shape): tactic for tactic in tactics_of("halo", shape, 1000) if tactic.persistent}
    assert set(found) == ({True, False} if side > 32 else set())
    for tactic in found.values():
        assert compile_kernel("conv_halo.cu", tactic.definitions(shape), 90).startswith(b"\x7fELF")


@pytest.mark.parametrize(
    ("shape", "capability"),
    [
        *((stem(FP8, y_type=y_type), 89) for y_type in (HALF, FP8)),
        *((stem(element, k=64, y_pitch=64, prelu=True), 90) for element in (HALF, INT8)),
    ],
)
def test_the_stem_of_fp8_and_with_slopes_compiles(shape, capability, compile_with):
    compile_with("NVRTC")
    assert shape.unsupported() == ""
    assert compile_kernel("stem.cu", shape.definitions(), capability).startswith(b"\x7fELF")


RESIDUALS = [{"residual_type": FP8, "residual_pitch": 64}, {"y_type": HALF, "gate": 2}]
OF_EACH = [("hopper", HALF), ("mma", INT8), ("simt", SINGLE)]
OF_ALL = [*itertools.product(("hopper", "halo", "mma"), (HALF, INT8)), ("simt", SINGLE)]
FORMS = [
    *((family, square(1, 13, 64, 64, 1, FP8, **more)) for family in ("hopper", "mma") for more in RESIDUALS),
    *((family, grouped(1, 8, 16, 8, kind, residual_type=kind, residual_pitch=128))
      for family, kind in (("hopper", HALF), ("halo", HALF), ("mma", INT8))),
    *((family, square(1, 16, 64, 64, 1, kind, gate=gate)) for family, kind in OF_EACH for gate in range(1, 10)),
    *((family, square(1, 13, 64, 33, 3, kind, residual_type=kind, residual_pitch=48, residual_gate=8))
      for family, kind in OF_ALL),
]  # fmt: skip
"""Residuals of FP8 and halves of it, groups, each activation, and slopes behind a residual."""


@pytest.mark.parametrize(
    ("family", "shape"), FORMS, ids=lambda value: value if isinstance(value, str) else str(value.x_type)
)
def test_kernels_of_each_form_compile(family, shape, compile_with):
    compile_with("NVRTC")
    tactic = tactics_of(family, shape, capability=90)[0]
    assert compile_kernel(f"conv_{family}.cu", tactic.definitions(shape), 90).startswith(b"\x7fELF")


@pytest.mark.parametrize("compiler", ["NVRTC", "nvcc"])
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("element", [0, 1, 2, 4])
def test_pools_compile(capability, element, compiler, compile_with):
    compile_with(compiler)
    window = {"ELEMENT": element, "T": 3, "R": 3, "S": 2, "STRIDE_D": 2, "STRIDE_H": 2, "STRIDE_W": 1, "PADDED": 1}
    cubin = compile_kernel("pool.cu", window, capability)
    assert cubin.startswith(b"\x7fELF")
