"""CudaKernel on a CPU: what it computes, what it refuses, what it says."""

import copy
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins import errors
from pytrtplugins.cuda import Constant, CudaKernel
from pytrtplugins.cuda import kernel as kernel_module
from pytrtplugins.cuda.backends import host as host_backend
from pytrtplugins.cuda.source import CompileUnit, compile_error
from tests.cuda.conftest import AFFINE
from tests.interleaving import Interleaving

FLIP = """
#include <cuda_fp16.h>
__global__ void flip(const float* x, float* y, int n) {
    __shared__ float tile[64];
    if (threadIdx.x < n) tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < n) y[threadIdx.x] = tile[n - 1 - threadIdx.x];
}
"""
PLACE = """__global__ void place(int* y, long long nx, unsigned ny, uint64_t nz) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, v = blockIdx.y * blockDim.y + threadIdx.y;
    const int z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x < nx && v < ny && z < nz) y[(z * ny + v) * nx + x] = 10000 * z + 100 * v + x;
}"""


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int32", "float64", "uint8"])
def test_the_type_parameter_is_the_element_type_of_the_arrays(host, affine, dtype):
    x = np.arange(40).astype(dtype)
    y = np.empty_like(x)
    affine.launch(x, y, x.size, 3, False, threads=x.size, block=32)
    np.testing.assert_array_equal(y, 3 * x)


def test_tuples_are_spread_and_three_axes_of_threads_reach_each_place(host):
    kernel = CudaKernel.from_source(PLACE, "place")
    y = np.full((3, 5, 7), -1, np.int32)
    kernel.launch(y, (7, 5), 3, threads=(7, 5, 3), block=(4, 2, 2))
    z, v, x = np.indices(y.shape)
    np.testing.assert_array_equal(y, 10000 * z + 100 * v + x)


def test_threads_of_a_block_wait_for_each_other_on_a_cpu_too(host):
    kernel = CudaKernel.from_source(FLIP, "flip")
    x, y = np.arange(50, dtype=np.float32), np.zeros(50, np.float32)
    kernel.launch(x, y, 50, threads=64, block=64)
    np.testing.assert_array_equal(y, x[::-1])


def test_shared_memory_of_kernels_that_are_named_alike_is_apart(host):
    text = """template <typename T> __global__ void keep(const T* x, T* y) {
        __shared__ T tile[SIZE];
        for (int i = 0; i < SIZE; ++i) tile[i] = x[i];
        __syncthreads();
        for (int i = 0; i < SIZE; ++i) y[i] = tile[i];
    }"""
    for size in (4, 1 << 16):  # the second would write far behind the first's memory
        kernel = CudaKernel.from_source(text, "keep", options=(f"-DSIZE={size}",))
        x, y = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
        kernel.launch(x, y, threads=1, block=1)
        np.testing.assert_array_equal(y, x)


@given(n=st.integers(0, 600), block=st.integers(1, 300), factor=st.floats(-8, 8, width=16))
def test_every_size_is_covered_once_whatever_the_block(n, block, factor):
    if not host_backend.available():
        pytest.skip("no C++ compiler")
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    y = np.full(n + 3, 7, np.float32)
    kernel = CudaKernel.from_source(AFFINE, "affine")
    kernel.launch(x, y[:n], n, factor, True, threads=n, block=block)
    np.testing.assert_array_equal(y[:n], -(x * np.float32(factor)))
    assert (y[n:] == 7).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", "y", 4, 2.0), r"expected 5 arguments, found 4 .*missing: bool negate"),
        (("x", "y", 4, 2.0, True, 1), r"expected 5 arguments, found 6"),
        (("x", "y", 4.5, 2.0, True), r"`int n`: expected a whole number, found 4.5"),
        (("x", "y", 2**31, 2.0, True), r"`int n`: 2147483648 does not fit"),
        (("x", "y", 4, "two", True), r"`float factor`: expected a number, found str"),
        (("x", "y", 4, 2.0, 1), r"`bool negate`: expected True or False, found 1"),
        (("x", 3, 4, 2.0, True), r"`T\* y`: expected an array, found int"),
        (("x", "half", 4, 2.0, True), r"`T\* y`: expected an array of float32 as the first one is, found float16"),
        (("x", "strided", 4, 2.0, True), r"`T\* y`: the array is not contiguous"),
        (("x", "frozen", 4, 2.0, True), r"`T\* y`: the array is read-only"),
        (
            ("x", "swapped", 4, 2.0, True),
            r"`T\* y`: the array is in the other byte order; take its astype\(numpy.float32\)",
        ),
        ((None, None, 4, 2.0, True), r"no array says what T is"),
        (("complex", "complex", 4, 2.0, True), r"T cannot be complex64"),
        (("x", "constant", 4, 2.0, True), r"`T\* y`: a Constant cannot be written"),
    ],
)
def test_a_wrong_argument_is_named(affine, arguments, message):
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    arrays = {
        "x": np.zeros(4, np.float32), "y": np.zeros(4, np.float32), "half": np.zeros(4, np.float16), "frozen": frozen,
        "swapped": np.zeros(4, np.dtype(np.float32).newbyteorder()), "strided": np.zeros(8, np.float32)[::2],
        "complex": np.zeros(4, np.complex64),
        "constant": Constant(np.zeros(4, np.float32)),
    }  # fmt: skip
    given = [arrays.get(value, value) if isinstance(value, str) else value for value in arguments]
    with pytest.raises(errors.KernelError, match=message):
        affine.launch(*given, threads=4)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"threads": (1, 2, 3, 4)}, "threads: expected one to three whole numbers"),
        ({"threads": 2.5}, "threads: expected one to three whole numbers"),
        ({"threads": (1, 2.5)}, "threads: expected one to three whole numbers"),
        ({"threads": ()}, "threads: expected one to three whole numbers"),
        ({"threads": -1}, "expected at least 0"),
        ({"threads": 4, "block": 2000}, "expected 1 to 1024 threads"),
        ({"threads": 4, "block": 1025}, "expected 1 to 1024 threads"),
        ({"threads": 4, "block": (32, 33)}, "expected 1 to 1024 threads"),
        ({"threads": 4, "block": 0}, "expected 1 to 1024 threads"),
        ({"threads": (4, -1)}, "expected at least 0"),
        ({"threads": (1, 65536), "block": 1}, "65536 blocks along y, at most 65535"),
        ({"threads": (1, 1, 65536), "block": 1}, "65536 blocks along z, at most 65535"),
        ({"threads": 2**31, "block": 1}, "2147483648 blocks along x, at most 2147483647"),
    ],
)
def test_a_shape_that_no_gpu_launches_is_refused(affine, shape, message):
    x = np.zeros(4, np.float32)
    with pytest.raises(errors.KernelError, match=message):
        affine.launch(x, x.copy(), 4, 1.0, False, **shape)


@pytest.mark.parametrize(
    ("threads", "block", "grid"),
    [
        ((2**31 - 1, 65535, 65535), (1, 1, 1), (2**31 - 1, 65535, 65535)),
        ((1025, 1, 1), (1024, 1, 1), (2, 1, 1)),
        ((64, 33, 0), (16, 32, 2), (4, 2, 0)),
    ],
)
def test_the_largest_shapes_that_gpus_launch_are_taken(affine, threads, block, grid):
    assert affine._grid(threads, block) == grid


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("__global__ void other(int n) {}", r"no `__global__ void f\(...\)`. Kernels in it: other"),
        ("int f;", "Kernels in it: none"),
        ("// __global__ void f(int n) {}", "Kernels in it: none"),
        ("template <int N> __global__ void f(int n) {}", r"k.cu:1: .*expected one type parameter"),
        ("\n__global__ void f(float** x) {}", r"k.cu:2: kernel f: parameter `float\*\* x` cannot be passed"),
        ("__global__ void f(Dims dims) {}", "parameter `Dims dims` cannot be passed"),
        ("__global__ void f(int) {}", "parameter `int` cannot be passed"),
    ],
)
def test_a_source_without_such_a_kernel_is_refused_where_it_is_declared(source, message):
    with pytest.raises(errors.KernelError, match=message):
        CudaKernel(source, "f", label="k.cu")


def test_a_signature_is_read_through_qualifiers_comments_and_line_breaks():
    source = """/* __global__ void k(int wrong) */ template <class Element>
        __global__ void __launch_bounds__(256, 2) k(Element const *__restrict__ x, // the input
            unsigned long long count, const float scale, signed char* const y, const void* z) {}"""
    signature = CudaKernel.from_source(source, "k").signature
    text = "k(const Element* x, unsigned long long count, float scale, signed char* y, const void* z)"
    assert (str(signature), signature.element, signature.line) == (text, "Element", 1)


def test_a_compile_error_shows_the_line_of_the_source(host):
    kernel = CudaKernel.from_source("\n__global__ void f(float* x, int n) {\n    x[0] = foo(n);\n}\n", "f")
    with pytest.raises(errors.KernelError, match=r"f.cu:3: .*foo.*\n +3 \|     x\[0\] = foo\(n\);") as caught:
        kernel.launch(np.zeros(1, np.float32), 1, threads=1)
    assert (caught.value.line, caught.value.path) == (3, "f.cu")


def test_what_does_not_compile_is_compiled_once(host, monkeypatch):
    kernel, calls = CudaKernel.from_source("__global__ void f(float* x) { x[0] = foo; }", "f"), []
    load = host_backend.load
    monkeypatch.setattr(host_backend, "load", lambda unit: (calls.append(unit), load(unit))[1])
    for _ in range(3):
        with pytest.raises(errors.KernelError, match="does not compile"):
            kernel.launch(np.zeros(1, np.float32), threads=1)
    assert len(calls) == 1


def test_dynamic_shared_memory_needs_a_gpu(host):
    text = "__global__ void f(float* x) { extern __shared__ float tile[]; x[0] = tile[0]; }"
    kernel = CudaKernel.from_source(text, "f")
    with pytest.raises(errors.UnavailableError, match="dynamic shared memory"):
        kernel.launch(np.zeros(1, np.float32), threads=1, shared_bytes=16)


def test_without_a_cpp_compiler_the_error_says_what_to_install(affine, monkeypatch):
    monkeypatch.setattr(host_backend, "compiler", lambda: ("", ""))
    x = np.zeros(4, np.float32)
    with pytest.raises(errors.UnavailableError, match=r"Do: apt-get install g\+\+"):
        affine.launch(x, x.copy(), 4, 1.0, False, threads=4)


def test_a_compiled_kernel_is_found_on_disk_by_the_next_process(host, tmp_path):
    script = tmp_path / "run.py"
    (tmp_path / "affine.cu").write_text(AFFINE)
    script.write_text(
        "import numpy as np, pytrtplugins as ptp\n"
        "x, y = np.ones(4, np.float32), np.zeros(4, np.float32)\n"
        "ptp.CudaKernel.from_file('affine.cu', 'affine').launch(x, y, 4, 2.5, False, threads=4)\n"
        "print(y.tolist())\n"
    )
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "/usr/local/bin:/usr/bin:/bin"}

    command = [sys.executable, str(script)]

    def run():
        return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)

    first = run()
    assert first.stdout.strip() == "[2.5, 2.5, 2.5, 2.5]", first.stderr
    (library,) = (tmp_path / "cache" / "pytrtplugins" / "kernels").glob("*.so")
    written = library.stat().st_mtime_ns
    second = run()
    assert second.stdout == first.stdout
    assert library.stat().st_mtime_ns == written


def test_a_missing_file_is_named():
    with pytest.raises(errors.KernelError, match=r"kernel f: .*tests.*cuda.*missing.cu cannot be read"):
        CudaKernel.from_file("missing.cu", "f")


def test_an_unknown_backend_is_refused():
    with pytest.raises(errors.UsageError, match=r"backend 'opencl' is unknown\. Known: auto, cupy, nvcc"):
        CudaKernel(AFFINE, "affine", backend="opencl")


def test_a_kernel_on_a_class_is_not_copied_with_its_plugins(affine):
    assert copy.deepcopy({"kernel": affine})["kernel"] is affine


def test_a_kernel_needs_to_be_told_its_element_type_ahead_of_time(affine):
    with pytest.raises(errors.KernelError, match="expected an element type for T, found None"):
        affine.prepare()
    with pytest.raises(errors.KernelError, match="T cannot be bfloat16"):
        affine.unit("bfloat16")


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("k.cu:1:5: error: first", 1),
        ("k.cu(3): error: last", 3),
        ("k.cu:0: error: before the source", None),
        ("k.cu(4): error: behind the source", None),
        ("other.cu:2:1: error: elsewhere", None),
        ("k.cu:2:1: warning: no error", None),
        ("k.cu(2): catastrophic error: x\nk.cu(1): error: y", 2),
    ],
)
def test_a_complaint_names_a_line_of_the_source(log, line):
    unit = CompileUnit("one\ntwo\nthree", "k.cu", CudaKernel("__global__ void k(int n) {}", "k").signature, None)
    error = compile_error(unit, log, "g++")
    assert error.facts["line"] == line
    assert (f"k.cu:{line}: " in str(error)) == (line is not None)


@pytest.mark.parametrize("part", ["load", "prepare"])
def test_one_thread_at_a_time_loads_a_kernel_and_prepares_its_launches(part, monkeypatch):
    kernel, calls = CudaKernel("__global__ void k(int n) {}", "k"), []
    both = Interleaving(kernel._lock)

    def protected(*arguments):
        calls.append(arguments)
        both.inside()
        return lambda *run: None

    monkeypatch.setattr(kernel, "_lock", both.lock)
    if part == "load":
        monkeypatch.setattr(kernel_module.host, "load", protected)
        first, second = both.run(*[lambda: kernel._load("host", None)] * 2)
        assert first is second
        assert len(calls) == 1
    else:
        monkeypatch.setattr(kernel, "_load", lambda place, element: protected)
        monkeypatch.setattr(kernel_module.gpu, "library", lambda name: None)
        monkeypatch.setattr(kernel, "_gpu_backend", lambda: "cupy")
        both.run(*[lambda: kernel._device_plan([3], None, (1, 1, 1), (64, 1, 1), 0)] * 2)
        assert len(calls) == 2
    assert both.order == ["first", "second"]
