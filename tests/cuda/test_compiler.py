"""CUDA sources are compiled by NVRTC or nvcc, and errors name the source and the way out, without a GPU."""

import sys
from types import SimpleNamespace

import pytest

from pytrtplugins.cuda import CudaKernel, compiler, find_symbol
from pytrtplugins.engines.cuda.device import source
from pytrtplugins.errors import KernelError, UnavailableError
from tests.cuda.conftest import AFFINE

pytestmark = pytest.mark.usefixtures("empty_cache")
BROKEN = "__global__ void f(float* x) {\n    x[0] = foo;\n}\n"
both = pytest.mark.parametrize("name", ["NVRTC", "nvcc"])


@both
def test_cubins_and_ptx(name, compile_with):
    compile_with(name)
    kernel = CudaKernel.from_source(AFFINE, "affine", options=["-use_fast_math"])
    *cubins, ptx = (kernel.compile("float16", architecture=which) for which in ("sm_75", "sm_90", "compute_75"))
    assert b".target sm_75" in ptx
    assert not ptx.endswith(b"\0")
    for cubin in cubins:
        assert cubin.startswith(b"\x7fELF")
        assert find_symbol(cubin, "affine", "affine.cu") == find_symbol(ptx, "affine", "affine.cu")
        assert find_symbol(cubin, "affine", "affine.cu").startswith("_Z6affineI6__half")
        with pytest.raises(KernelError, match="expected one kernel 'other'"):
            find_symbol(cubin, "other", "affine.cu")


@both
def test_a_compile_error_shows_the_line_of_the_source(name, compile_with):
    compile_with(name)
    title = r"f.cu: kernel f does not compile \((NVRTC 1\d\.\d|Build cuda_.*), sm_75\):"
    shown = title + r'\nf.cu:2: .*"foo" is undefined\n +2 \|     x\[0\] = foo;'
    with pytest.raises(KernelError, match=shown) as caught:
        CudaKernel.from_source(BROKEN, "f").compile()
    assert (caught.value.path, caught.value.line) == ("f.cu", 2)
    assert '"foo" is undefined' in caught.value.log


@both
def test_an_error_in_a_kernel_of_engine_cuda_names_file_and_line(name, compile_with):
    compile_with(name)
    window = {"ELEMENT": 1, "R": 2, "S": 2, "STRIDE_H": 2, "STRIDE_W": 2}  # PADDED is missing
    message = r"engine 'cuda': pool.cu does not compile \(.*, sm_80\):\npool.cu\(\d+\): error"
    with pytest.raises(KernelError, match=message) as caught:
        source.compile_kernel("pool.cu", window, 80)
    assert caught.value.path == "pool.cu"


@both
def test_cudas_own_headers_are_found(name, compile_with):
    compile_with(name)
    if name == "NVRTC" and not compiler.find_nvcc()[0]:
        pytest.skip("no CUDA headers. Do: install CUDA's toolkit")
    kernel = CudaKernel.from_source("#include <cuda_fp16.h>\n" + AFFINE, "affine")
    cubin = kernel.compile("float16", architecture="sm_80")
    assert find_symbol(cubin, "affine", "affine.cu")
    assert b".text._Z6affine" in cubin
    assert b".entry" in kernel.compile("float32", architecture="compute_75")


def test_without_a_compiler_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setattr(compiler, "find_nvrtc", lambda: (None, ""))
    monkeypatch.setattr(compiler, "find_nvcc", lambda: ("", ""))
    message = r'kernel f: neither NVRTC nor nvcc.*\nDo: pip install "pytrtplugins\[nvrtc\]"'
    with pytest.raises(UnavailableError, match=message):
        CudaKernel.from_source(BROKEN, "f").compile()
    with pytest.raises(UnavailableError, match=r"kernel f: nvcc is not installed\.\nDo: .* backend='cupy'"):
        CudaKernel.from_source(BROKEN, "f", backend="nvcc").compile()
    with pytest.raises(UnavailableError, match=r"engine 'cuda': pool\.cu: neither NVRTC nor nvcc"):
        source.compile_kernel("pool.cu", {}, 80)


def test_bindings_without_the_library_are_as_good_as_none(monkeypatch):
    def no_library():
        raise RuntimeError("Failed to dlopen libnvrtc.so.13")

    monkeypatch.setattr(compiler, "require", lambda *_, **__: SimpleNamespace(nvrtcVersion=no_library))
    assert compiler.find_nvrtc.__wrapped__() == (None, "")
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    assert compiler.find_nvrtc.__wrapped__() == (None, "")


def test_a_gpu_that_is_newer_than_nvrtc_gets_ptx(compile_with):
    compile_with("NVRTC")
    assert compiler.newest_architecture(90) == "sm_90"
    assert compiler.newest_architecture(91) == "compute_90"


def test_the_cache_tells_apart_all_that_a_result_depends_on(monkeypatch):
    made = []

    def compile_by(version, *, nvcc=False, code="source", architecture="sm_90", options=()):
        monkeypatch.setattr(compiler, "find_nvrtc", lambda: (None, "") if nvcc else ("NVRTC", version))
        monkeypatch.setattr(compiler, "find_nvcc", lambda: ("nvcc", version))
        for _ in range(2):
            compiler.compile_source(code, architecture, "kernel f", KernelError, options=options)

    monkeypatch.setattr(compiler, "_by_nvrtc", lambda *given: (made.append(given) or b"result", ""))
    monkeypatch.setattr(compiler, "_by_nvcc", lambda *given: (made.append(given) or b"result", ""))
    compile_by("13.0")
    compile_by("13.1")
    compile_by("13.1", nvcc=True)
    compile_by("13.2", nvcc=True)
    compile_by("13.0", code="another source")
    compile_by("13.0", architecture="sm_80")
    compile_by("13.0", architecture="compute_90")
    compile_by("13.0", options=["-use_fast_math"])
    assert len(made) == 8
