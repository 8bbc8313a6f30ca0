"""Run the kernels under NVIDIA's compute-sanitizer, on a machine with a GPU.

    python -m tests.cuda.sanitize [SUBJECT ...] [memcheck] [racecheck] [initcheck] [synccheck]

Each tool first has to find a fault that is there, in a kernel made for it; then it must find none in the subjects, which are
groups of tests: the kernels of plugins and of vision, engine cuda's convolutions, by themselves those with halos, for float32, of groups,
depthwise ones, of which those with a dilation, and those with PReLU, generated kernels and means, squeeze and excitation,
attention, products with few rows, copies, Unique, from images to boxes, and whole networks.
Arrays come from cudaMalloc one by one, so that no pool hides an access beyond the end. Tests run once before, by
themselves, so that the tools do not meet compilers.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

FAULTS = {
    "memcheck": "__global__ void fault(float* y, const float* x, int n) { y[n + threadIdx.x] = x[threadIdx.x]; }",
    "racecheck": """__global__ void fault(float* y, const float* x, int n) {
        __shared__ float tile[64];
        tile[threadIdx.x] = x[threadIdx.x];
        y[threadIdx.x] = tile[n - 1 - threadIdx.x];
    }""",
    "initcheck": "__global__ void fault(float* y, const float* x, int n) { if (y[threadIdx.x] > 1) y[0] = x[0]; }",
    "synccheck": """__global__ void fault(float* y, const float* x, int n) {
        if (threadIdx.x < n - 1) __syncthreads();
        y[threadIdx.x] = x[threadIdx.x];
    }""",
}
_FOUND = 9
_OURS = ("--report-api-errors", "no", "--kernel-name-exclude", "kns=cudnn,kns=nvjet,kns=cutlass,kns=xmma,kns=cublas")
"""Libraries ask the driver for functions that it lacks, and racecheck reports cuDNN's attention; their kernels are not ours to check."""
_ENGINE = "tests/engines/cuda"
_TESTS = "bits_of_compute or detection_on_the_gpu or queued_on_the_stream or constant_is_copied"
SUBJECTS = {
    "plugins": ["tests/cuda/test_gpu.py", "-k", _TESTS],
    "convolutions": [
        f"{_ENGINE}/conv/test_kernels_gpu.py",
        "-k",
        "not sums_of_codes and not simt and not float32 and not halo",
    ],
    "halos": [f"{_ENGINE}/conv/test_kernels_gpu.py", "-k", "halo_of_each_form"],
    "float32": [f"{_ENGINE}/conv/test_kernels_gpu.py", "-k", "simt or float32"],
    "groups": [f"{_ENGINE}/conv/test_groups_gpu.py", "-k", "not float8"],
    "depthwise": [f"{_ENGINE}/conv/test_depthwise_gpu.py", "-k", "every_tile"],
    "dilated": [f"{_ENGINE}/conv/test_depthwise_gpu.py", "-k", "every_tile and dilation"],
    "generated": [
        f"{_ENGINE}/device/test_generated_gpu.py",
        "-k",
        "every_operation or images_with or means_are or rows_of_any",
    ],
    "attention": [f"{_ENGINE}/lower/test_attention_gpu.py", "-k", "onnxruntimes_numbers"],
    "products": [f"{_ENGINE}/lower/test_matmul_gpu.py", "-k", "two_layers or computed"],
    "patches": [f"{_ENGINE}/lower/test_patches_gpu.py", "-k", "columns_become or on_the_way"],
    "squeeze_excite": [f"{_ENGINE}/device/test_squeeze_excite_gpu.py", "-k", "float64s_numbers"],
    "transposed": [f"{_ENGINE}/lower/test_transposed_convolution_gpu.py", "-k", "windows or resized"],
    "prelu": [f"{_ENGINE}/lower/test_prelu_gpu.py", "-k", "onnxruntimes and not libraries"],
    "copies": [f"{_ENGINE}/device/test_copier_gpu.py", "-k", "each_array and not sizes6"],
    "unique": [f"{_ENGINE}/device/indexed/test_unique_gpu.py", "-k", "each_run"],
    "images": [f"{_ENGINE}/run/test_detection_gpu.py", "-k", "several_layers or room_for or of_a_batch"],
    "engine": [f"{_ENGINE}/test_gpu.py", "-k", "left_out and tactics"],  # kernels of ours where there are any
    "mobile": [f"{_ENGINE}/test_gpu.py", "-k", "layer_of_a_mobile_network"],
}


def main(names: list[str]) -> int:
    """Run tools on subjects, all where none is named; 0 when each tool found the fault and nothing else."""
    tools, subjects = ([name for name in names if name in known] or list(known) for known in (FAULTS, SUBJECTS))
    with ThreadPoolExecutor(max(1, min(8, (os.cpu_count() or 1) // 2))) as pool:
        list(pool.map(_run, subjects))
        cases = [(subject, tool) for tool in tools for subject in ("fault", *subjects)]
        return int(not all(list(pool.map(lambda case: _sanitize(*case), cases))))


def _run(subject: str, *more: str, under: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*under, sys.executable, "-m", "tests.cuda.sanitize", "run", subject, *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _sanitize(subject: str, tool: str) -> bool:
    """Whether a tool finds what it should in a subject, and nothing else; prints it."""
    command = ("compute-sanitizer", "--tool", tool, "--error-exitcode", str(_FOUND), "--print-limit", "3", *_OURS)
    done = _run(subject, tool, under=(*command, "--padding", "64") if tool == "memcheck" else command)
    right = done.returncode == (_FOUND if subject == "fault" else 0)
    summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*|\d+ passed.*", done.stdout)
    verdict = "as it should be" if right else f"WRONG, exit code {done.returncode}"
    lines = [f"{tool:10} {subject:12} {verdict}: {'; '.join(summary)}"]
    if not right:
        lines += [done.stdout[-6000:], done.stderr[-2000:]]
    print("\n".join(lines), flush=True)
    return right


def _fault(tool: str) -> int:
    import cupy

    from pytrtplugins.cuda import CudaKernel

    cupy.cuda.set_allocator(None)
    x, y = cupy.zeros(64, "float32"), cupy.empty(64, "float32")
    CudaKernel.from_source(FAULTS[tool], "fault").launch(y, x, 64, threads=64, block=64)
    cupy.cuda.Device().synchronize()
    return 0


def _tests(subject: str) -> int:
    import cupy
    import pytest

    cupy.cuda.set_allocator(None)
    return int(pytest.main(["-q", "-p", "no:cacheprovider", *SUBJECTS[subject]]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        sys.exit(_fault(sys.argv[3]) if sys.argv[2] == "fault" else _tests(sys.argv[2]))
    sys.exit(main(sys.argv[1:]))
